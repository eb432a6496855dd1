/* The tables of lrpe's sketches. */
#include "tests/harness/sketch_lrpe.h"

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

/* Without a batch, and with so many rows that a GPU's thread has several tokens: a
 * GPU of one multiprocessor, as emulators are, and one of 132. */
static const sketch many_rows[] = {
    {.b = 1, .h = 2, .d = 64, .grid = {421}, .prefix = 3, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 2, .d = 64, .grid = {421}, .suffix = 2, .interleaved = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 8, .d = 128, .grid = {2129}, .in = CHECK_DENSE, .out = CHECK_DENSE, .large = true},
    {.b = 1,
     .h = 8,
     .d = 128,
     .grid = {2131},
     .interleaved = true,
     .in = CHECK_DENSE,
     .out = CHECK_DENSE,
     .large = true},
};

/* Positions of a tensor, of every type, rank and size; thetas for each dimension; and the attributes beside them. */
/* clang-format off */
static const sketch positioned[] = {
    {.b = 2, .h = 3, .d = 16, .grid = {7}, .position_rank = 2, .position_type = CHECK_I64, .shared = true,
     .lse = true},
    {.b = 2, .h = 8, .d = 128, .grid = {19}, .position_rank = 1, .position_type = CHECK_I32, .shared = true,
     .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 3, .h = 2, .d = 12, .grid = {5}, .position_rank = 2, .position_type = CHECK_I32, .positions = CHECK_FAR,
     .interleaved = true, .in = CHECK_SWAPPED},
    {.b = 2, .h = 3, .d = 10, .grid = {6}, .position_rank = 2, .position_type = CHECK_I64, .positions = CHECK_FAR,
     .width = 1, .rotary_dim = 6, .theta_type = CHECK_BF16, .lse = true},
    {.b = 2, .h = 2, .d = 32, .grid = {9}, .position_rank = 3, .dimensions = 3, .position_type = CHECK_I64,
     .sections = true, .shared = true, .offset = {4, -5, 6}},
    {.b = 2, .h = 2, .d = 32, .grid = {9}, .position_rank = 3, .dimensions = 2, .position_type = CHECK_F32,
     .positions = CHECK_FRACTION, .width = -2, .shared = true, .angles = CHECK_ANY_ANGLE},
    {.b = 2, .h = 3, .d = 24, .grid = {8}, .position_rank = 3, .dimensions = 3, .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED, .each = true, .angles = CHECK_ANY_ANGLE, .offset = {1, 2, 3}},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .position_rank = 2, .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED, .angles = CHECK_TINY_ANGLE},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .position_rank = 1, .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED, .angles = CHECK_HUGE_ANGLE},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .position_rank = 1, .position_type = CHECK_F32, .positions = CHECK_FAR,
     .angles = CHECK_ANY_ANGLE},
    {.b = 1, .h = 2, .d = 16, .grid = {23}, .position_rank = 3, .dimensions = 2, .position_type = CHECK_F32,
     .positions = CHECK_FAR, .angles = CHECK_ANY_ANGLE, .offset = {INT64_MAX, INT64_MIN}},
    {.b = 2, .h = 2, .d = 16, .grid = {11}, .position_rank = 2, .position_type = CHECK_F32,
     .positions = CHECK_ODD_POSITION, .shared = true},
    {.b = 1, .h = 2, .d = 16, .grid = {11}, .position_rank = 3, .dimensions = 4, .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED, .each = true, .shared = true, .angles = CHECK_ODD_ANGLE},
    {.b = 3, .h = 2, .d = 16, .grid = {9}, .offsets = true, .position_type = CHECK_I64,
     .positions = CHECK_SCATTERED, .prefix = 1, .suffix = 1, .offset = {3}, .lse = true},
    {.b = 3, .h = 4, .d = 32, .grid = {5}, .offsets = true, .position_type = CHECK_I32, .positions = CHECK_FAR,
     .shared = true, .in = CHECK_BROADCAST, .out = CHECK_DENSE},
    {.b = 2, .h = 3, .d = 18, .grid_rank = 2, .grid = {3, 4}, .each = true, .offset = {-1, 7}, .prefix = 1,
     .suffix = 2, .angles = CHECK_ANY_ANGLE},
    {.b = 2, .h = 2, .d = 24, .grid = {6}, .rotary_begin = 8, .rotary_dim = 16, .amplitude = 1.1, .lse = true},
    {.b = 2, .h = 2, .d = 26, .grid = {6}, .rotary_begin = 5, .rotary_dim = 12, .interleaved = true,
     .inverse = true, .in = CHECK_SWAPPED, .out = CHECK_PADDED},
    {.b = 2, .h = 4, .d = 32, .grid = {8}, .rotary_begin = 16, .amplitude = -0.5, .inverse = true, .shared = true,
     .in_place = true, .position_rank = 2, .position_type = CHECK_I64},
    {.b = 1, .h = 2, .d = 16, .grid = {9}, .amplitude = 3, .prefix = 2, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 2, .h = 3, .d = 16, .grid = {7}, .learns = true, .lse = true},
    {.b = 2, .h = 3, .d = 20, .grid = {7}, .learns = true, .lse = true, .shared = true, .interleaved = true,
     .amplitude = 1.5, .prefix = 1},
    {.b = 2, .h = 2, .d = 18, .grid = {5}, .learns = true, .lse = true, .width = 1, .rotary_dim = 8,
     .rotary_begin = 3, .inverse = true, .in = CHECK_SWAPPED},
    {.b = 2, .h = 3, .d = 24, .grid_rank = 2, .grid = {3, 4}, .learns = true, .width = -2, .offset = {1, 2},
     .suffix = 1, .lse = true},
    {.b = 2, .h = 2, .d = 24, .grid_rank = 3, .grid = {2, 2, 3}, .learns = true, .lse = true, .sections = true,
     .shared = true, .in = CHECK_STRIDED, .out = CHECK_REVERSED},
    {.b = 3, .h = 2, .d = 20, .grid = {9}, .learns = true, .each = true, .position_rank = 3, .dimensions = 2,
     .position_type = CHECK_F32, .positions = CHECK_FRACTION, .angles = CHECK_ANY_ANGLE, .lse = true},
    {.b = 2, .h = 5, .d = 34, .grid = {130}, .learns = true, .lse = true, .shared = true, .position_rank = 2,
     .position_type = CHECK_I32, .positions = CHECK_SCATTERED},
    {.b = 0, .h = 2, .d = 16, .grid = {4}, .learns = true, .lse = true},
    {.b = 2, .h = 1, .d = 16, .grid = {0}, .learns = true, .lse = true},
    {.b = 2, .h = 2, .d = 12, .grid_rank = 2, .grid = {3, 2}, .learns = true, .lse = true, .sections = true,
     .only_last = true},
    {.b = 2, .h = 2, .d = 16, .grid = {0}, .learns = true, .lse = true, .shared = true, .position_rank = 2,
     .position_type = CHECK_I64},
    {.b = 2, .h = 2, .d = 16, .grid = {9}, .learns = true, .lse = true, .in_place = true, .pad = true, .width = 3},
    /* for a GPU's kernel whose blocks have the heads of a token */
    {.b = 3, .h = 7, .d = 64, .grid = {13}, .position_rank = 2, .position_type = CHECK_I64, .interleaved = true,
     .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 2, .h = 9, .d = 128, .grid = {11}, .position_rank = 3, .dimensions = 3, .position_type = CHECK_I64,
     .positions = CHECK_SCATTERED, .sections = true, .shared = true, .in = CHECK_SWAPPED, .out = CHECK_DENSE},
    {.b = 2, .h = 5, .d = 64, .grid = {11}, .position_rank = 3, .dimensions = 3, .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED, .each = true, .shared = true, .interleaved = true, .in = CHECK_DENSE,
     .out = CHECK_DENSE},
    {.b = 2, .h = 6, .d = 64, .grid = {9}, .position_rank = 2, .position_type = CHECK_I64, .positions = CHECK_FAR,
     .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 6, .d = 64, .grid = {17}, .position_rank = 2, .position_type = CHECK_F32,
     .positions = CHECK_SCATTERED, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE, .offset = {100}},
    {.b = 3, .h = 5, .d = 192, .grid = {7}, .offsets = true, .position_type = CHECK_I32,
     .positions = CHECK_SCATTERED, .rotary_begin = 128, .rotary_dim = 64, .amplitude = 1.5, .inverse = true,
     .prefix = 2, .shared = true, .in_place = true},
    {.b = 2, .h = 4, .d = 128, .grid_rank = 2, .grid = {4, 5}, .each = true, .shared = true, .suffix = 1,
     .offset = {-3, 2}, .in = CHECK_DENSE, .out = CHECK_SWAPPED, .fill = CHECK_SPECIAL},
};
/* clang-format on */

/* For the gradients of x and theta together. */
/* clang-format off */
static const sketch learned[] = {
    /* NaN before the grid, where it is no part of theta's gradient */
    {.b = 2, .h = 3, .d = 18, .grid = {9}, .prefix = 1, .learns = true, .lse = true, .fill = CHECK_STRAY},
    {.b = 2, .h = 3, .d = 32, .grid = {9}, .prefix = 1, .learns = true, .lse = true, .fill = CHECK_STRAY},
    /* for a GPU's kernel of both gradients */
    {.b = 2, .h = 5, .d = 32, .grid = {13}, .learns = true, .lse = true, .shared = true, .interleaved = true,
     .position_rank = 2, .position_type = CHECK_I64, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 3, .h = 2, .d = 64, .grid_rank = 2, .grid = {4, 5}, .learns = true, .lse = true, .each = true, .prefix = 1,
     .offset = {-3, 2}, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 2, .h = 6, .d = 32, .grid = {11}, .learns = true, .lse = true, .each = true, .shared = true,
     .interleaved = true, .position_rank = 3, .dimensions = 3, .position_type = CHECK_F32,
     .positions = CHECK_FRACTION, .in = CHECK_DENSE, .out = CHECK_DENSE},
    {.b = 1, .h = 2, .d = 32, .grid = {9001}, .learns = true, .lse = true, .shared = true, .in = CHECK_DENSE,
     .out = CHECK_DENSE, .large = true},
};
/* clang-format on */

/* Slabs that every way of sharing them takes, as a GPU's kernels of softmax over the sequence have: any of them can be forced
 * on these. */
static const sketch any_sharing[] = {
    {.b = 2, .h = 4, .d = 128, .grid = {333}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true},
    {.b = 2, .h = 4, .d = 128, .grid = {333}, .in = CHECK_DENSE, .out = CHECK_DENSE, .lse = true, .interleaved = true},
};

#define TABLE(rows) {rows, sizeof(rows) / sizeof(rows)[0]}
const sketch_table sketches_on_grids = TABLE(sketches);
const sketch_table sketches_long = TABLE(long_sketches);
const sketch_table sketches_longest = TABLE(longest);
const sketch_table sketches_shared_by_many = TABLE(shared_by_many);
const sketch_table sketches_of_many_rows = TABLE(many_rows);
const sketch_table sketches_with_positions = TABLE(positioned);
const sketch_table sketches_learned = TABLE(learned);
const sketch_table sketches_of_any_sharing = TABLE(any_sharing);
