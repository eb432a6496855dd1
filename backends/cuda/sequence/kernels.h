/* The kernels that keep a slab on chip: a table with one row for each of them, and the numbers that follow from
 * a row and a storage type. resident.cu instantiates each row for each storage type, and the
 * rows of pairs for both pairings. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_KERNELS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_KERNELS_H

#include "backends/cuda/sequence/methods.h"
#include "backends/gpu/encoding.h"
#include "backends/gpu/sequence/column.h"

namespace COPES_GPU::sequence
{

/* Which blocks share a slab. The blocks of a cluster write to each other's shared memory. The blocks of a
 * cooperative launch form groups of any number of blocks, up to all of them; they exchange their sums through global
 * memory. */
enum class scope { cluster, cooperative };

/* The encoding after softmax. Both pairings of rotate have the same rows. */
enum class encodes { nothing, pairs, cosine };

/* How a token's gradient is used. It is read twice: for the sums, and for the result.
 *   none       forward: there is no gradient
 *   plain      it is read as it is
 *   relative   each reading rotates it back, but only as far as the thread's first token. The rest of the rotation is
 *              the same for all tokens of the thread: the sums and the finished columns take it, once each
 *   decoded    the first reading decodes it, and puts it back into its places as float32 for the second */
enum class gradient_form { none, plain, relative, decoded };

struct kernel_row {
    role direction;
    encodes after_softmax;
    scope blocks;
    int units; /* side by side in a slab: its width is 16 bytes times this */

    int warps;           /* of token threads */
    int exchange_warps;  /* cluster: 1 for all; cooperative: 1 sums, 1 finishes, 1 prepares (group.h) */
    int batch;           /* tokens of a thread in a step */
    int span;            /* tokens of a thread that share one advance of their rotations; 1 where nothing rotates */
    int ahead;           /* steps whose copies are under way */
    int gradient_pieces; /* of 16 bytes: 1 for a unit's gradient, 2 where cosine made two columns of each */
    gradient_form gradient;
    bool recomputes; /* may it meet a slab that its references or its fixed point do not suit? */
};

/* Warps are as many as registers allow: with rotations a cooperative launch's block has fewer, since its two more
 * exchange warps take registers too. Forward, rotations go by larger steps, so that a step has two tokens for each
 * advance. */
/* clang-format off */
inline constexpr kernel_row KERNELS[] = {
    /*                                                     units
     *                                                     |   warps
     *                                                     |   |   exchange_warps
     *                                                     |   |   |   batch
     *                                                     |   |   |   |   span
     *                                                     |   |   |   |   |   ahead
     *                                                     |   |   |   |   |   |   gradient_pieces
     * direction    after_softmax     blocks               |   |   |   |   |   |   |   gradient            recomputes */
    {role::forward, encodes::nothing, scope::cluster,      8,  16, 1,  2,  1,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::nothing, scope::cooperative, 16,  16, 3,  2,  1,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::nothing, scope::cooperative,  8,  16, 3,  2,  1,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::nothing, scope::cooperative,  4,  15, 3,  2,  1,  3,  0,  gradient_form::none,     true},

    {role::given,   encodes::nothing, scope::cluster,      8,  16, 1,  2,  1,  2,  1,  gradient_form::plain,    false},
    {role::given,   encodes::nothing, scope::cooperative, 16,  16, 3,  1,  1,  2,  1,  gradient_form::plain,    true},
    {role::given,   encodes::nothing, scope::cooperative,  8,  16, 3,  1,  1,  2,  1,  gradient_form::plain,    true},
    {role::given,   encodes::nothing, scope::cooperative,  4,  15, 3,  1,  1,  2,  1,  gradient_form::plain,    true},

    {role::forward, encodes::pairs,   scope::cluster,      8,   8, 1,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::pairs,   scope::cooperative, 16,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::pairs,   scope::cooperative,  8,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::pairs,   scope::cooperative,  4,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},

    {role::kept,    encodes::pairs,   scope::cluster,      8,  11, 1,  2,  1,  2,  1,  gradient_form::relative, true},
    {role::kept,    encodes::pairs,   scope::cooperative, 16,   8, 3,  2,  1,  2,  1,  gradient_form::relative, true},
    {role::kept,    encodes::pairs,   scope::cooperative,  8,   8, 3,  2,  1,  2,  1,  gradient_form::relative, true},
    {role::kept,    encodes::pairs,   scope::cooperative,  4,   8, 3,  2,  1,  2,  1,  gradient_form::relative, true},

    {role::forward, encodes::cosine,  scope::cluster,      8,   8, 1,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::cosine,  scope::cooperative, 16,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::cosine,  scope::cooperative,  8,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},
    {role::forward, encodes::cosine,  scope::cooperative,  4,   8, 3,  4,  2,  3,  0,  gradient_form::none,     true},

    {role::kept,    encodes::cosine,  scope::cluster,      8,  11, 1,  2,  1,  2,  2,  gradient_form::decoded,  true},
    {role::kept,    encodes::cosine,  scope::cooperative, 16,   8, 3,  2,  1,  2,  2,  gradient_form::decoded,  true},
    {role::kept,    encodes::cosine,  scope::cooperative,  8,   8, 3,  2,  1,  2,  2,  gradient_form::decoded,  true},
    {role::kept,    encodes::cosine,  scope::cooperative,  4,   8, 3,  2,  1,  2,  2,  gradient_form::decoded,  true},
};
/* clang-format on */

constexpr encodes encoded_by(coding c)
{
    return c == coding::none ? encodes::nothing : c == coding::cosine ? encodes::cosine : encodes::pairs;
}

/* The row of a kernel. Without one this is no constant, and the kernel does not compile. */
constexpr kernel_row find_row(role direction, coding c, scope blocks, int units)
{
    int i = 0;
    while (KERNELS[i].direction != direction || KERNELS[i].after_softmax != encoded_by(c) ||
           KERNELS[i].blocks != blocks || KERNELS[i].units != units)
        i++;
    return KERNELS[i];
}

/* One instance of the kernel: a row of the table for a storage type. */
template <typename Type, coding CODING, role ROLE, int UNIT_COUNT, scope SCOPE = scope::cluster> struct kernel_of {
    static constexpr kernel_row ROW = find_row(ROLE, CODING, SCOPE, UNIT_COUNT);
    typedef Type T;
    static constexpr coding C = CODING;
    static constexpr role R = ROLE;
    static constexpr encoding E = C == coding::cosine        ? encoding::cosine
                                  : C == coding::interleaved ? encoding::interleaved
                                                             : encoding::half;
    static constexpr bool COOPERATIVE = SCOPE == scope::cooperative;
    static constexpr bool BACKWARD = R != role::forward, ROTATED = C != coding::none;
    static constexpr bool TERMS = R != role::given;                  /* it computes e^x itself */
    static constexpr bool SPLIT = R == role::kept && sizeof(T) == 4; /* its terms are split_term's */
    static constexpr bool RECOMPUTES = ROW.recomputes;
    static constexpr gradient_form GRADIENT = ROW.gradient;
    static constexpr int UNITS = ROW.units, WARPS = ROW.warps, BATCH = ROW.batch, SPAN = ROW.span, AHEAD = ROW.ahead;
    static constexpr int THREADS = 32 * WARPS; /* token threads; exchange warps come after them */
    static constexpr int BLOCK = THREADS + 32 * ROW.exchange_warps;
    static constexpr int ROWS = THREADS / UNITS;              /* tokens that a block's threads have at once */
    static constexpr int N = vector_length<T>;                /* columns of a unit */
    static constexpr int V = C == coding::cosine ? N : N / 2; /* angles of a unit, if it has any */
    static constexpr int COLUMNS = UNITS * N, ANGLES = ROTATED ? UNITS * V : 1; /* of a slab */
    static constexpr int GRADIENT_PIECES = ROW.gradient_pieces,
                         PIECES = 1 + GRADIENT_PIECES;     /* of a unit in the ring */
    static constexpr uint32_t PIECE_STRIDE = 16 * THREADS; /* from a thread's piece to its next one in the ring */
    static constexpr uint32_t STAGE_BYTES = BATCH * PIECES * PIECE_STRIDE;
};

} // namespace COPES_GPU::sequence

#endif
