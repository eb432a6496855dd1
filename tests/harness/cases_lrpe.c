/* The cases of lrpe_rotate and lrpe_cosine: a list of sketches, each run with every activation, type and direction. */
#include "tests/harness/case.h"
#include "tests/harness/random.h"

#include <string.h>

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

enum { FAR = INT32_MAX }; /* the largest position */

/* A case without its variant, activation, type and direction. */
typedef struct sketch {
    int rank; /* of x; 0: 4 */
    int64_t b, h, d;
    int grid_rank; /* 0: only grid[0], as the length that is left */
    int64_t grid[COPES_MAX_GRID], offset[COPES_MAX_GRID];
    int64_t prefix, suffix, rotary_dim;
    bool interleaved, sections, shared; /* shared: theta has one row */
    int64_t width;                      /* of theta; 0: K; -m: the least that a grid of m dimensions takes */
    bool pad;                           /* with a width of 1: pad_theta, which other widths below K take anyway */
    check_type theta_type;
    check_angles angles;
    check_layout in, out;
    bool mixed, in_place, lse, large;
    check_fill fill;
    int position_rank, dimensions; /* positions in place of the grid, of which grid[0] is N */
    check_type position_type;
    check_positions positions;
    bool offsets, each; /* each: a theta for each dimension */
    bool only_last;     /* with sections: the last dimension has all angles */
    bool inverse, learns;
    double amplitude;
    int64_t rotary_begin;
} sketch;

static const sketch sketches[] = {
    {.b = 2, .h = 3, .d = 16, .grid = {7}, .lse = true},
    {.b = 1, .h = 2, .d = 128, .grid = {17}, .offset = {4096}, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 2, .h = 2, .d = 12, .grid = {5}, .offset = {FAR - 4}, .interleaved = true, .theta_type = CHECK_F16},
    {.b = 1,
     .h = 3,
     .d = 10,
     .grid = {4},
     .offset = {-FAR},
     .width = 1,
     .prefix = 2,
     .suffix = 1,
     .rotary_dim = 6,
     .theta_type = CHECK_BF16,
     .lse = true},
    {.b = 2,
     .h = 2,
     .d = 14,
     .grid_rank = 2,
     .grid = {3, 5},
     .offset = {-2, 9},
     .width = -2,
     .shared = true,
     .prefix = 1,
     .in = CHECK_SWAPPED,
     .out = CHECK_SWAPPED,
     .lse = true},
    {.b = 1,
     .h = 2,
     .d = 24,
     .grid_rank = 3,
     .grid = {2, 3, 2},
     .offset = {FAR - 1, -FAR, 1000000},
     .sections = true,
     .suffix = 3,
     .interleaved = true,
     .in = CHECK_SWAPPED,
     .out = CHECK_DENSE},
    {.b = 1,
     .h = 1,
     .d = 22,
     .grid_rank = 4,
     .grid = {1, 2, 2, 3},
     .offset = {1, 2, 3, 4},
     .width = -4,
     .prefix = 1,
     .suffix = 1,
     .in = CHECK_DENSE,
     .out = CHECK_PADDED},
    {.b = 1,
     .h = 2,
     .d = 20,
     .grid_rank = 4,
     .grid = {2, 1, 3, 2},
     .offset = {5, FAR, -6, 7},
     .sections = true,
     .lse = true},
    {.rank = 3, .b = 3, .h = 1, .d = 16, .grid = {129}, .width = 3, .angles = CHECK_ANY_ANGLE, .lse = true},
    {.b = 2, .h = 2, .d = 20, .grid = {9}, .offset = {12}, .width = 1, .pad = true, .prefix = 1, .lse = true},
    {.rank = 3, .b = 2, .h = 1, .d = 7, .grid_rank = 1, .grid = {3}, .shared = true, .in = CHECK_SWAPPED},
    {.b = 1, .h = 1, .d = 2, .grid = {1}, .offset = {1}, .angles = CHECK_ANY_ANGLE},
    {.b = 1, .h = 1, .d = 1, .grid = {1}, .offset = {FAR}, .angles = CHECK_ANY_ANGLE, .lse = true},
    {.b = 2,
     .h = 2,
     .d = 34,
     .grid = {11},
     .in = CHECK_REVERSED,
     .out = CHECK_NEGATIVE,
     .interleaved = true,
     .lse = true},
    {.b = 2, .h = 2, .d = 18, .grid = {9}, .in = CHECK_STRIDED, .out = CHECK_REVERSED, .rotary_dim = 8},
    {.b = 2, .h = 3, .d = 66, .grid = {5}, .in = CHECK_ODD, .out = CHECK_ODD, .lse = true},
    {.b = 3, .h = 2, .d = 16, .grid = {6}, .in = CHECK_BROADCAST, .out = CHECK_STRIDED, .lse = true},
    {.b = 2, .h = 5, .d = 32, .grid = {8}, .in = CHECK_PADDED, .out = CHECK_PADDED, .in_place = true},
    {.b = 2,
     .h = 2,
     .d = 30,
     .grid = {8},
     .in = CHECK_SWAPPED,
     .in_place = true,
     .interleaved = true,
     .rotary_dim = 20},
    {.b = 2, .h = 2, .d = 8, .grid = {13}, .in = CHECK_NEGATIVE, .mixed = true, .out = CHECK_SWAPPED, .lse = true},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .offset = {77}, .angles = CHECK_TINY_ANGLE},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .offset = {-11}, .angles = CHECK_HUGE_ANGLE},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .angles = CHECK_ODD_ANGLE, .prefix = 1},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .offset = {FAR - 31}, .angles = CHECK_ANY_ANGLE, .fill = CHECK_WIDE},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_SPECIAL},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_FINITE, .lse = true},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_SUBNORMAL, .interleaved = true},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_LARGE, .angles = CHECK_ANY_ANGLE},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_EQUAL, .lse = true},
    {.b = 1, .h = 3, .d = 16, .grid = {31}, .fill = CHECK_MASKED},
    {.b = 2, .h = 3, .d = 16, .grid = {41}, .fill = CHECK_LATE, .lse = true},
    {.b = 1, .h = 2, .d = 8, .grid = {5}, .fill = CHECK_LATE, .lse = true},
    {.b = 2, .h = 3, .d = 16, .grid = {41}, .fill = CHECK_RISING, .lse = true},
    {.b = 7, .h = 3, .d = 6, .grid = {9}, .prefix = 1, .lse = true},
    {.b = 1, .h = 19, .d = 130, .grid = {3}, .offset = {555}},
    {.b = 0, .h = 3, .d = 16, .grid = {5}},
    {.b = 2, .h = 0, .d = 16, .grid = {5}, .shared = true},
    {.b = 2, .h = 3, .d = 16, .grid = {0}, .prefix = 2, .suffix = 1, .lse = true},
    {.b = 2, .h = 3, .d = 16, .grid = {0}},
    /* a grid without tokens, however large; and rows with so many angles that a GPU's block has few */
    {.b = 1, .h = 1, .d = 8, .grid_rank = 3, .grid = {0, 1 << 16, 1 << 16}, .prefix = 8, .shared = true},
    {.b = 1, .h = 2, .d = 512, .grid_rank = 2, .grid = {4, 5}, .prefix = 1},
};

/* Long enough to be shared between threads, or, without a batch, for a GPU's thread to have several tokens; or with more
 * batch entries than a GPU's block has, or heads where those share their angles, or with so many that several threads step
 * through an angle's tokens. Two types are enough. */
static const sketch long_sketches[] = {
    {.b = 2, .h = 4, .d = 64, .grid = {211}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 3, .h = 2, .d = 64, .grid = {1531}, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 1, .d = 64, .grid = {1531}, .interleaved = true, .fill = CHECK_RISING},
    {.b = 2, .h = 1, .d = 6002, .grid = {9}, .width = 1, .lse = true},
    {.b = 1, .h = 8, .d = 128, .grid = {1061}, .prefix = 5, .suffix = 3, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1,
     .h = 3,
     .d = 128,
     .grid_rank = 2,
     .grid = {13, 19},
     .width = -2,
     .prefix = 10,
     .in = CHECK_SWAPPED,
     .out = CHECK_SWAPPED,
     .shared = true},
    {.b = 37, .h = 2, .d = 64, .grid = {13}, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 19, .h = 2, .d = 64, .grid = {29}, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 9, .h = 2, .d = 64, .grid = {29}, .prefix = 1, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 8, .d = 64, .grid = {1061}, .prefix = 3, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1,
     .h = 8,
     .d = 128,
     .grid = {1061},
     .prefix = 20,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE,
     .fill = CHECK_SPECIAL},
    {.b = 2, .h = 37, .d = 64, .grid = {13}, .shared = true, .in = CHECK_SWAPPED, .out = CHECK_DENSE},
};

/* For the one activation that cares, forward and backward: long enough for a GPU's thread to turn several spans of
 * tokens, and so long that it holds x and not the gradient of cosine on chip. */
static const sketch longest[] = {
    {.b = 1, .h = 1, .d = 16, .grid = {6007}, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 1, .d = 16, .grid = {20011}, .in = CHECK_DENSE, .out = CHECK_DENSE},
};

/* So long that many blocks of a GPU have to share a few features, and enough of those for several shares in a row; with
 * values that some of them have to be done over for; more features, of which they share whole heads; so many tokens
 * that all of the GPU has room for less than a line of memory's worth of each; and so many that the same blocks go on
 * from one batch entry to the next forward, too. */
static const sketch shared_by_many[] = {
    {.b = 3, .h = 1, .d = 64, .grid = {24001}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 2, .h = 1, .d = 128, .grid = {20011}, .in = CHECK_DENSE, .out = CHECK_DENSE, .interleaved = true},
    {.b = 2, .h = 1, .d = 64, .grid = {24001}, .in = CHECK_DENSE, .out = CHECK_DENSE, .fill = CHECK_WIDE},
    {.b = 2, .h = 1, .d = 64, .grid = {24001}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true, .fill = CHECK_WIDE},
    {.b = 2, .h = 6, .d = 128, .grid = {4099}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 2, .h = 1, .d = 64, .grid = {48017}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 2, .h = 1, .d = 128, .grid = {32771}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
};

/* Without a batch, and with so many rows that a GPU's thread has several tokens where a row has few threads, as in 16 bits: a
 * GPU of one multiprocessor, as emulators are, and one of 132. */
static const sketch many_rows[] = {
    {.b = 1, .h = 2, .d = 64, .grid = {421}, .prefix = 3, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 2, .d = 64, .grid = {421}, .suffix = 2, .interleaved = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 8, .d = 128, .grid = {2129}, .in = CHECK_DENSE, .out = CHECK_DENSE, .large = true},
};

/* Positions of a tensor, of every type, rank and size; thetas for each dimension; and the attributes beside them. */
static const sketch positioned[] = {
    {.b = 2, .h = 3, .d = 16, .grid = {7}, .position_rank = 2, .position_type = CHECK_I64, .shared = true, .lse = true},
    {.b = 2,
     .h = 8,
     .d = 128,
     .grid = {19},
     .position_rank = 1,
     .position_type = CHECK_I32,
     .shared = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE},
    {.b = 3,
     .h = 2,
     .d = 12,
     .grid = {5},
     .position_rank = 2,
     .position_type = CHECK_I32,
     .positions = CHECK_FAR,
     .interleaved = true,
     .in = CHECK_SWAPPED},
    {.b = 2,
     .h = 3,
     .d = 10,
     .grid = {6},
     .position_rank = 2,
     .position_type = CHECK_I64,
     .positions = CHECK_FAR,
     .width = 1,
     .rotary_dim = 6,
     .theta_type = CHECK_BF16,
     .lse = true},
    {.b = 2,
     .h = 2,
     .d = 32,
     .grid = {9},
     .position_rank = 3,
     .dimensions = 3,
     .position_type = CHECK_I64,
     .sections = true,
     .shared = true,
     .offset = {4, -5, 6}},
    {.b = 2,
     .h = 2,
     .d = 32,
     .grid = {9},
     .position_rank = 3,
     .dimensions = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_FRACTION,
     .width = -2,
     .shared = true,
     .angles = CHECK_ANY_ANGLE},
    {.b = 2,
     .h = 3,
     .d = 24,
     .grid = {8},
     .position_rank = 3,
     .dimensions = 3,
     .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED,
     .each = true,
     .angles = CHECK_ANY_ANGLE,
     .offset = {1, 2, 3}},
    {.b = 1,
     .h = 2,
     .d = 16,
     .grid = {23},
     .position_rank = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED,
     .angles = CHECK_TINY_ANGLE},
    {.b = 1,
     .h = 2,
     .d = 16,
     .grid = {23},
     .position_rank = 1,
     .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED,
     .angles = CHECK_HUGE_ANGLE},
    {.b = 1,
     .h = 2,
     .d = 16,
     .grid = {23},
     .position_rank = 1,
     .position_type = CHECK_F32,
     .positions = CHECK_FAR,
     .angles = CHECK_ANY_ANGLE},
    {.b = 1,
     .h = 2,
     .d = 16,
     .grid = {23},
     .position_rank = 3,
     .dimensions = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_FAR,
     .angles = CHECK_ANY_ANGLE,
     .offset = {INT64_MAX, INT64_MIN}},
    {.b = 2,
     .h = 2,
     .d = 16,
     .grid = {11},
     .position_rank = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_ODD_POSITION,
     .shared = true},
    {.b = 1,
     .h = 2,
     .d = 16,
     .grid = {11},
     .position_rank = 3,
     .dimensions = 4,
     .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED,
     .each = true,
     .shared = true,
     .angles = CHECK_ODD_ANGLE},
    {.b = 3,
     .h = 2,
     .d = 16,
     .grid = {9},
     .offsets = true,
     .position_type = CHECK_I64,
     .positions = CHECK_SCATTERED,
     .prefix = 1,
     .suffix = 1,
     .offset = {3},
     .lse = true},
    {.b = 3,
     .h = 4,
     .d = 32,
     .grid = {5},
     .offsets = true,
     .position_type = CHECK_I32,
     .positions = CHECK_FAR,
     .shared = true,
     .in = CHECK_BROADCAST,
     .out = CHECK_DENSE},
    {.b = 2,
     .h = 3,
     .d = 18,
     .grid_rank = 2,
     .grid = {3, 4},
     .each = true,
     .offset = {-1, 7},
     .prefix = 1,
     .suffix = 2,
     .angles = CHECK_ANY_ANGLE},
    {.b = 2, .h = 2, .d = 24, .grid = {6}, .rotary_begin = 8, .rotary_dim = 16, .amplitude = 1.1, .lse = true},
    {.b = 2,
     .h = 2,
     .d = 26,
     .grid = {6},
     .rotary_begin = 5,
     .rotary_dim = 12,
     .interleaved = true,
     .inverse = true,
     .in = CHECK_SWAPPED,
     .out = CHECK_PADDED},
    {.b = 2,
     .h = 4,
     .d = 32,
     .grid = {8},
     .rotary_begin = 16,
     .amplitude = -0.5,
     .inverse = true,
     .shared = true,
     .in_place = true,
     .position_rank = 2,
     .position_type = CHECK_I64},
    {.b = 1, .h = 2, .d = 16, .grid = {9}, .amplitude = 3, .prefix = 2, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 2, .h = 3, .d = 16, .grid = {7}, .learns = true, .lse = true},
    {.b = 2,
     .h = 3,
     .d = 20,
     .grid = {7},
     .learns = true,
     .lse = true,
     .shared = true,
     .interleaved = true,
     .amplitude = 1.5,
     .prefix = 1},
    {.b = 2,
     .h = 2,
     .d = 18,
     .grid = {5},
     .learns = true,
     .lse = true,
     .width = 1,
     .rotary_dim = 8,
     .rotary_begin = 3,
     .inverse = true,
     .in = CHECK_SWAPPED},
    {.b = 2,
     .h = 3,
     .d = 24,
     .grid_rank = 2,
     .grid = {3, 4},
     .learns = true,
     .width = -2,
     .offset = {1, 2},
     .suffix = 1,
     .lse = true},
    {.b = 2,
     .h = 2,
     .d = 24,
     .grid_rank = 3,
     .grid = {2, 2, 3},
     .learns = true,
     .lse = true,
     .sections = true,
     .shared = true,
     .in = CHECK_STRIDED,
     .out = CHECK_REVERSED},
    {.b = 3,
     .h = 2,
     .d = 20,
     .grid = {9},
     .learns = true,
     .each = true,
     .position_rank = 3,
     .dimensions = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_FRACTION,
     .angles = CHECK_ANY_ANGLE,
     .lse = true},
    {.b = 2,
     .h = 5,
     .d = 34,
     .grid = {130},
     .learns = true,
     .lse = true,
     .shared = true,
     .position_rank = 2,
     .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED},
    {.b = 0, .h = 2, .d = 16, .grid = {4}, .learns = true, .lse = true},
    {.b = 2, .h = 1, .d = 16, .grid = {0}, .learns = true, .lse = true},
    {.b = 2,
     .h = 2,
     .d = 12,
     .grid_rank = 2,
     .grid = {3, 2},
     .learns = true,
     .lse = true,
     .sections = true,
     .only_last = true},
    {.b = 2,
     .h = 2,
     .d = 16,
     .grid = {0},
     .learns = true,
     .lse = true,
     .shared = true,
     .position_rank = 2,
     .position_type = CHECK_I64},
    {.b = 2, .h = 2, .d = 16, .grid = {9}, .learns = true, .lse = true, .in_place = true, .pad = true, .width = 3},
    /* for a GPU's kernel whose threads go over the heads of a token */
    {.b = 3,
     .h = 7,
     .d = 64,
     .grid = {13},
     .position_rank = 2,
     .position_type = CHECK_I64,
     .interleaved = true,
     .shared = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE},
    {.b = 2,
     .h = 9,
     .d = 128,
     .grid = {11},
     .position_rank = 3,
     .dimensions = 3,
     .position_type = CHECK_I64,
     .positions = CHECK_SCATTERED,
     .sections = true,
     .shared = true,
     .in = CHECK_SWAPPED,
     .out = CHECK_DENSE},
    {.b = 2,
     .h = 5,
     .d = 64,
     .grid = {11},
     .position_rank = 3,
     .dimensions = 3,
     .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED,
     .each = true,
     .shared = true,
     .interleaved = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE},
    {.b = 2,
     .h = 6,
     .d = 64,
     .grid = {9},
     .position_rank = 2,
     .position_type = CHECK_I64,
     .positions = CHECK_FAR,
     .shared = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE},
    {.b = 1,
     .h = 6,
     .d = 64,
     .grid = {17},
     .position_rank = 2,
     .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED,
     .shared = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE,
     .offset = {100}},
    {.b = 3,
     .h = 5,
     .d = 192,
     .grid = {7},
     .offsets = true,
     .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED,
     .rotary_begin = 128,
     .rotary_dim = 64,
     .amplitude = 1.5,
     .inverse = true,
     .prefix = 2,
     .shared = true,
     .in_place = true},
    {.b = 2,
     .h = 4,
     .d = 128,
     .grid_rank = 2,
     .grid = {4, 5},
     .each = true,
     .shared = true,
     .suffix = 1,
     .offset = {-3, 2},
     .in = CHECK_DENSE,
     .out = CHECK_SWAPPED,
     .fill = CHECK_SPECIAL},
};

static void set_angles(check_case *c, const sketch *s, int64_t angles)
{
    copes_lrpe_attributes *a = &c->op.lrpe;
    int m = s->position_rank == 3 ? s->dimensions : s->grid_rank > 0 ? s->grid_rank : 1;
    c->theta_each = s->each;
    c->theta_shape[0] = s->shared ? 1 : s->h;
    c->theta_shape[1] = s->width < 0        ? (angles + m - 1) / m
                        : s->width == 0     ? angles
                        : s->width < angles ? s->width
                                            : angles;
    if (!s->sections) {
        a->pad_theta = !s->each && m == 1 && c->theta_shape[1] < angles && (c->theta_shape[1] > 1 || s->pad);
        return;
    }
    c->theta_shape[1] = angles;
    for (int j = 0, left = (int)angles; j < m; j++) { /* uneven: each but the last has about half of what is left */
        a->sections[j] = j == m - 1 ? left : s->only_last ? 0 : (left + 1) / 2;
        left -= (int)a->sections[j];
    }
}

static check_case drawn(const sketch *s, copes_lrpe_variant variant)
{
    check_case c = {.family = variant == COPES_LRPE_ROTATE ? "lrpe_rotate" : "lrpe_cosine",
                    .rank = s->rank == 0 ? 4 : s->rank};
    int64_t d = variant == COPES_LRPE_ROTATE && s->d == 1 ? 2 : s->d, rotary = s->rotary_dim;
    c.op.lrpe = (copes_lrpe_attributes){.variant = variant,
                                        .grid_rank = s->grid_rank,
                                        .prefix = s->prefix,
                                        .suffix = s->suffix};
    int64_t length = 1;
    for (int j = 0; j < (s->grid_rank > 0 ? s->grid_rank : 1); j++) {
        length *= s->grid[j];
        c.op.lrpe.grid[j] = s->grid_rank > 0 ? s->grid[j] : 0;
        c.op.lrpe.offset[j] = s->offset[j];
    }
    if (variant == COPES_LRPE_ROTATE) {
        rotary = rotary == 0 && d % 2 == 1 ? d - 1 : rotary;
        c.op.lrpe.rotary_dim = rotary;
        c.op.lrpe.pairing = s->interleaved ? COPES_LRPE_INTERLEAVED : COPES_LRPE_HALF;
    }
    int64_t shape[] = {s->b, s->prefix + length + s->suffix, s->h, d};
    shape[c.rank - 1] = d;
    memcpy(c.shape, shape, sizeof shape);
    c.op.lrpe.rotary_begin = variant == COPES_LRPE_ROTATE ? s->rotary_begin : 0;
    c.op.lrpe.inverse = s->inverse;
    set_angles(&c, s, variant == COPES_LRPE_COSINE ? d : (rotary == 0 ? d - s->rotary_begin : rotary) / 2);
    c.position_rank = s->position_rank;
    c.dimensions = s->dimensions;
    c.offsets = s->offsets;
    c.position_type = s->position_type;
    c.positions = s->positions;
    c.theta_type = s->theta_type;
    c.angles = s->angles;
    c.in_layout = s->in;
    c.out_layout = s->out;
    c.mixed = s->mixed;
    c.in_place = s->in_place && variant == COPES_LRPE_ROTATE;
    c.fill = s->fill;
    c.large = s->large;
    return c;
}

static void add(case_list *list, const sketch *s, check_case c, copes_act act, int dim)
{
    c.op.lrpe.act = act;
    c.op.lrpe.dim = dim;
    check_set_amplitude(&c, s->amplitude);
    c.lse = s->lse && act == COPES_ACT_SOFTMAX && dim == -3;
    c.seed = list->count + 1;
    if (check_makes_sense(&c)) {
        case_list_add(list, &c);
    }
}

static void add_acts(case_list *list, const sketch *s, copes_lrpe_variant variant, check_type type)
{
    check_case c = drawn(s, variant);
    c.type = type;
    for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
        c.op.kind = (copes_kind)kind;
        c.grad_theta = s->learns && kind == COPES_LRPE_BACKWARD;
        for (int act = COPES_ACT_NONE; act < COPES_ACT_SOFTMAX; act++) {
            add(list, s, c, (copes_act)act, 0);
        }
        add(list, s, c, COPES_ACT_SOFTMAX, list->count % 2 == 0 ? 0 : -1);
        add(list, s, c, COPES_ACT_SOFTMAX, -3);
    }
}

static void add_table(case_list *list, copes_lrpe_variant variant)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        for (size_t i = 0; i < sizeof sketches / sizeof *sketches; i++) {
            add_acts(list, &sketches[i], variant, float_types[t]);
        }
        for (size_t i = 0; i < sizeof positioned / sizeof *positioned; i++) {
            add_acts(list, &positioned[i], variant, float_types[t]);
        }
    }
    for (size_t i = 0; i < sizeof long_sketches / sizeof *long_sketches; i++) {
        add_acts(list, &long_sketches[i], variant, i % 2 == 0 ? CHECK_F32 : CHECK_BF16);
    }
    for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
        const sketch *s = &longest[kind == COPES_LRPE_BACKWARD];
        check_case c = drawn(s, variant);
        c.type = CHECK_F32;
        c.op.kind = (copes_kind)kind;
        add(list, s, c, COPES_ACT_SOFTMAX, -3);
    }
}

static void add_shared_by_many(case_list *list, copes_lrpe_variant variant)
{
    static const check_type types[] = {CHECK_F32, CHECK_BF16, CHECK_F16};
    for (size_t i = 0; i < sizeof shared_by_many / sizeof *shared_by_many; i++) {
        for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
            check_case c = drawn(&shared_by_many[i], variant);
            c.type = types[(i + (size_t)kind + (variant == COPES_LRPE_COSINE)) % 3];
            c.op.kind = (copes_kind)kind;
            c.large = true;
            add(list, &shared_by_many[i], c, COPES_ACT_SOFTMAX, -3);
        }
    }
}

/* Slabs that every way of sharing them takes, as a GPU's kernels of softmax over the sequence have: any of them can be forced
 * on these. */
static const sketch any_sharing[] = {
    {.b = 2, .h = 4, .d = 128, .grid = {333}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 2, .h = 4, .d = 128, .grid = {333}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true, .interleaved = true},
};

static void add_any_sharing(case_list *list, copes_lrpe_variant variant)
{
    static const check_type types[] = {CHECK_F32, CHECK_BF16, CHECK_F16};
    for (size_t i = 0; i < (variant == COPES_LRPE_COSINE ? 1 : 2); i++)
        for (size_t t = 0; t < 3; t++)
            for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
                check_case c = drawn(&any_sharing[i], variant);
                c.type = types[t];
                c.op.kind = (copes_kind)kind;
                c.large = true;
                add(list, &any_sharing[i], c, COPES_ACT_SOFTMAX, -3);
            }
}

static void add_many_rows(case_list *list, copes_lrpe_variant variant)
{
    for (size_t i = 0; i < sizeof many_rows / sizeof *many_rows; i++) {
        add_acts(list, &many_rows[i], variant, CHECK_F16);
        add_acts(list, &many_rows[i], variant, CHECK_BF16);
    }
}

void check_rotate_table(case_list *list)
{
    add_table(list, COPES_LRPE_ROTATE);
    add_shared_by_many(list, COPES_LRPE_ROTATE);
    add_many_rows(list, COPES_LRPE_ROTATE);
    add_any_sharing(list, COPES_LRPE_ROTATE);
}

void check_cosine_table(case_list *list)
{
    add_table(list, COPES_LRPE_COSINE);
    add_shared_by_many(list, COPES_LRPE_COSINE);
    add_many_rows(list, COPES_LRPE_COSINE);
    add_any_sharing(list, COPES_LRPE_COSINE);
}

static int64_t random_offset(int64_t length, uint64_t *state)
{
    switch (check_below(state, 4)) {
    case 0: return FAR - (length > 0 ? length - 1 : 0);
    case 1: return check_below(state, FAR) * (check_random(state) & 1 ? -1 : 1) - length;
    case 2: return -check_below(state, 100);
    default: return check_below(state, 100000);
    }
}

static void draw_grid(sketch *s, uint64_t *state)
{
    s->grid_rank = (int)check_below(state, 5);
    int m = s->grid_rank > 0 ? s->grid_rank : 1;
    for (int j = 0; j < m; j++) {
        s->grid[j] = 1 + check_below(state, m == 1 ? 60 : m == 2 ? 9 : 4);
        s->offset[j] = random_offset(s->grid[j], state);
        s->offset[j] = s->offset[j] < -FAR ? -FAR : s->offset[j];
    }
    s->prefix = check_below(state, 3) == 0 ? check_below(state, 4) : 0;
    s->suffix = check_below(state, 3) == 0 ? check_below(state, 4) : 0;
    s->sections = check_below(state, 3) == 0;
    s->width = m > 1 ? -m : check_below(state, 3) == 0 ? 1 + check_below(state, 8) : 0;
    s->pad = check_random(state) & 1;
}

/* Positions of a tensor in place of the grid, or beside a line. */
static void draw_positions(sketch *s, uint64_t *state)
{
    static const check_type types[] = {CHECK_I32, CHECK_I64, CHECK_F32};
    s->position_type = types[check_below(state, 3)];
    s->positions =
        (check_positions)check_below(state, s->position_type == CHECK_F32 ? CHECK_POSITIONS : CHECK_FRACTION);
    if (s->grid_rank <= 1 && check_random(state) & 1) {
        s->offsets = true;
        return;
    }
    s->position_rank = 1 + (int)check_below(state, 3);
    s->dimensions = s->position_rank == 3 ? 1 + (int)check_below(state, 4) : 1;
    s->grid_rank = 0;
    s->grid[0] = 1 + check_below(state, 60);
    s->prefix = s->suffix = 0;
    for (int j = s->dimensions; j < COPES_MAX_GRID; j++)
        s->offset[j] = 0;
    s->width = s->dimensions > 1 ? -s->dimensions : s->width;
}

static void draw_factors(sketch *s, uint64_t *state)
{
    static const double amplitudes[] = {0, 0, 1.1, -0.5, 3, 1e-3};
    s->amplitude = amplitudes[check_below(state, sizeof amplitudes / sizeof *amplitudes)];
    s->inverse = check_below(state, 4) == 0;
    s->learns = check_below(state, 3) == 0;
    s->rotary_begin = check_below(state, 3) == 0 ? check_below(state, s->d - s->rotary_dim + 1) : 0;
    s->rotary_dim = s->rotary_dim == 0 && s->rotary_begin > 0 ? (s->d - s->rotary_begin) / 2 * 2 : s->rotary_dim;
    s->rotary_begin = s->rotary_dim == 0 ? 0 : s->rotary_begin;
}

static check_case random_case(uint64_t seed, copes_lrpe_variant variant)
{
    uint64_t state = seed;
    sketch s = {.b = 1 + check_below(&state, 3), .h = 1 + check_below(&state, 4)};
    s.d = check_random(&state) & 1 ? 1 + check_below(&state, 40) : 8 * (1 + check_below(&state, 16));
    s.rank = s.h == 1 ? 3 : 4;
    s.rotary_dim = check_below(&state, 3) == 0 ? check_below(&state, s.d / 2 + 1) * 2 : 0;
    draw_grid(&s, &state);
    if (check_random(&state) & 1)
        draw_positions(&s, &state);
    s.each = check_below(&state, 4) == 0;
    s.sections = s.sections && !s.each;
    s.width = s.each ? 0 : s.width;
    draw_factors(&s, &state);
    s.interleaved = check_random(&state) & 1;
    s.shared = check_random(&state) & 1;
    s.theta_type = (check_type)check_below(&state, 3);
    s.angles = check_random(&state) & 1 ? CHECK_ROPE : (check_angles)check_below(&state, CHECK_ODD_ANGLE);
    s.in = (check_layout)check_below(&state, CHECK_LAYOUTS);
    s.out = (check_layout)check_below(&state, CHECK_BROADCAST);
    s.mixed = check_random(&state) & 1;
    s.in_place = check_below(&state, 4) == 0;
    check_case c = drawn(&s, variant);
    c.type = float_types[check_below(&state, 4)];
    c.op.kind = check_random(&state) & 1 ? COPES_LRPE_FORWARD : COPES_LRPE_BACKWARD;
    c.op.lrpe.act = (copes_act)check_below(&state, 5);
    c.op.lrpe.dim = check_random(&state) & 1 ? -3 : -1;
    c.grad_theta = s.learns && c.op.kind == COPES_LRPE_BACKWARD;
    check_set_amplitude(&c, s.amplitude);
    /* GPUs need it for theta's gradient */
    c.lse = (check_random(&state) & 1 || c.grad_theta) && c.op.lrpe.act == COPES_ACT_SOFTMAX && c.op.lrpe.dim == -3;
    c.fill = check_random(&state) & 1 ? CHECK_NORMAL : (check_fill)check_below(&state, CHECK_FILLS);
    c.fill = check_makes_sense(&c) ? c.fill : CHECK_WIDE;
    c.seed = seed;
    c.random = true;
    return c;
}

check_case check_rotate_random(uint64_t seed)
{
    return random_case(seed, COPES_LRPE_ROTATE);
}

check_case check_cosine_random(uint64_t seed)
{
    return random_case(seed, COPES_LRPE_COSINE);
}
