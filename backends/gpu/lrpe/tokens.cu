/* lrpe where nothing shares an angle: a batch of one, on a grid of one dimension. Each angle serves one row, so the
 * arithmetic of angles binds. A thread goes over several tokens. A token's angle is that of the thread's first token
 * plus an advance, which all threads of the block share. Its rotation then comes from a table or a polynomial or, for
 * softmax, from a product of rotations. Reading ahead hides the rest of the arithmetic behind memory. */
#include "backends/gpu/lrpe/block_rotations.h"
#include "backends/gpu/lrpe/rows.h"
#include "backends/gpu/lrpe/sincos_table.h"

namespace COPES_GPU::lrpe
{

enum { THREADS = 128, ENOUGH_BLOCKS = 2 /* a multiprocessor */, MOST_BYTES = 16 << 10 };
enum { MOST_ROUNDS = 12, LEAST_ROUNDS = 4 }; /* tokens of a thread: a multiple of LEAST_ROUNDS */

struct token_tiling {
    rotation_plan rotations; /* `tokens` is the number of a thread's tokens */
    block_order order;
    row_shape shape;
};

/* Tokens that a thread reads ahead while it works on as many: as many as registers allow. */
constexpr int tokens_ahead(bool cosine, activation act, bool backward)
{
    if (act == activation::none)
        return 4;
    if (!cosine)
        return 2;
    if (act == activation::softmax)
        return backward ? 1 : 2;
    return backward ? 2 : 4;
}

template <encoding E, activation A, bool BACKWARD>
inline constexpr int ahead = tokens_ahead(E == encoding::cosine, A, BACKWARD);

/* Blocks of a multiprocessor that registers must leave room for: more where threads wait not only for memory. */
constexpr int blocks_at_once(bool exactly, encoding e, activation act, bool backward)
{
    const bool cosine = e == encoding::cosine;
    if (act == activation::none)
        return exactly ? 3 : cosine && !backward ? 5 : 4;
    if (act == activation::softmax && e == encoding::interleaved)
        return 4; /* of five, threads would lack a register */
    if (act == activation::softmax)
        return cosine ? 6 : backward ? 4 : 5;
    return backward ? 4 : exactly ? 6 : 5;
}

template <typename T, encoding E, activation A, bool BACKWARD>
inline constexpr int least_blocks = blocks_at_once(sizeof(T) == 4, E, A, BACKWARD);

/* An advance as a phase. The sum of phases is exact, so that a sine near 0 is accurate, too. */
template <typename Table> struct advance_by_phase {
    typedef Table table; /* makes rotations of phases */
    uint32_t phase;

    DEVICE advance_by_phase of(uint32_t phase, float)
    {
        return {phase};
    }
    __device__ __forceinline__ rotation after(const advance_by_phase &first, const table &rotations) const
    {
        return rotations.of(first.phase + phase);
    }
};

/* An advance as a rotation. A product of rotations takes few operations. Its errors near 0 are small enough for a
 * softmax, whose results are held to the row's largest. */
template <bool EXACTLY> struct advance_by_rotation {
    typedef sincos_polynomial<EXACTLY> table;
    rotation advance;

    DEVICE advance_by_rotation of(uint32_t phase, float poison)
    {
        return {rotation_of<EXACTLY>(ZERO_PHASE + phase, poison)};
    }
    __device__ __forceinline__ rotation after(const advance_by_rotation &first, const table &) const
    {
        return first.advance * advance;
    }
};

/* A table is worth its filling where an activation's arithmetic binds, too. */
template <encoding E, activation A, bool BACKWARD>
inline constexpr bool by_table = A != activation::none && (!BACKWARD || E == encoding::cosine);

template <typename T, encoding E, activation A, bool BACKWARD, bool EXACTLY = sizeof(T) == 4>
using advance_of = std::conditional_t<
    A == activation::softmax, advance_by_rotation<EXACTLY>,
    advance_by_phase<std::conditional_t<by_table<E, A, BACKWARD>, sincos_table<EXACTLY>, sincos_polynomial<EXACTLY>>>>;

/* What a block's threads share: the table, the steps of its head's angles, and the advances from a thread's first token to
 * all of its tokens. */
template <typename Advance, encoding E, int V> struct shared_angles {
    typedef typename Advance::table table;
    static constexpr int N = 16 / sizeof(Advance);
    table rotations;
    int angles; /* of a token */
    angle_step *steps;
    Advance *advances;

    __device__ __forceinline__ shared_angles(const rotation_plan &plan, char *memory)
        : rotations(memory), angles((int)plan.angles.divisor),
          steps(reinterpret_cast<angle_step *>(memory + table::BYTES)),
          advances(reinterpret_cast<Advance *>(steps + angles))
    {
    }
    static size_t bytes_of(const rotation_plan &plan)
    {
        return table::BYTES +
               (size_t)plan.angles.divisor * (sizeof(angle_step) + (size_t)plan.tokens * sizeof(Advance));
    }
    /* `apart`: from one token of a thread to its next. All threads take part. An angle past the last one has step 0. */
    __device__ __forceinline__ void fill(const rotation_plan &plan, int head, int apart) const
    {
        const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
        rotations.fill(thread, threads);
        for (int at = thread; at < angles; at += threads) {
            const int k = (int)angle_of<E, V>(plan.k, (uint32_t)at / V, (uint32_t)at % V);
            const angle_step step = k < plan.theta.end[0] ? step_of(plan.theta.at(head, k, 0)) : angle_step{0, 0, 0};
            steps[at] = step;
            const uint64_t advance = ((uint64_t)step.high << 32 | step.low) * (uint32_t)apart;
            uint64_t phase = 0;
            for (int token = 0; token < plan.tokens; token++, phase += advance)
                advances[unit_place<V, N, unsigned>(angles / V, token, at / V, at % V)] =
                    Advance::of((uint32_t)(phase >> 32), step.poison);
        }
        __syncthreads();
    }
};

/* The rotations of a thread's unit, token by token. The thread's first token may be before the grid. */
template <typename Advance, encoding E, int V> struct unit_rotations {
    static constexpr int N = shared_angles<Advance, E, V>::N;
    struct alignas(16) quad {
        Advance advance[N];
    };
    typename Advance::table table;
    const angle_step *steps;
    const quad *quads;
    int units;
    Advance first[V];
    bool finite; /* no theta is inf or NaN; else rotations in the grid must be NaN */

    __device__ __forceinline__ unit_rotations(const shared_angles<Advance, E, V> &shared, int unit, int32_t position)
        : table(shared.rotations), steps(shared.steps + unit * V),
          quads(reinterpret_cast<const quad *>(shared.advances) + unit), units(shared.angles / V), finite(true)
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            first[i] = Advance::of(copes_phase_top(steps[i].high, steps[i].low, position), steps[i].poison);
            finite = finite && steps[i].poison == 0;
        }
    }
    __device__ __forceinline__ void next(rotation (&rotations)[V])
    {
#pragma unroll
        for (int i = 0; i < V; i += N, quads += units) {
            const quad here = *quads;
#pragma unroll
            for (int j = 0; j < N; j++)
                rotations[i + j] = here.advance[j].after(first[i + j], table);
        }
        if (finite)
            return;
#pragma unroll
        for (int i = 0; i < V; i++)
            rotations[i] = {rotations[i].cosine + steps[i].poison, rotations[i].sine + steps[i].poison};
    }
};

/* A thread's rows of one tensor, `together` tokens apart. */
template <typename T> struct row_walk {
    T *row;
    int64_t step;

    __device__ __forceinline__ row_walk(const tensor_rows &rows, const block_place &place, int token, int together)
        : row(first_row<T>(rows, place) + token * rows.n), step((int64_t)together * rows.n)
    {
    }
    __device__ __forceinline__ T *next()
    {
        T *const here = row;
        row += step;
        return here;
    }
};

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void LAUNCH_BOUNDS(THREADS, (least_blocks<T, E, A, BACKWARD>))
    lrpe_tokens(copes_act act, GPU_PARAMETER tensor_rows src, GPU_PARAMETER tensor_rows x,
                GPU_PARAMETER tensor_rows dst, GPU_PARAMETER token_tiling tiling)
{
    constexpr int V = vector_length<T>, AHEAD = ahead<E, A, BACKWARD>;
    const int together = (int)blockDim.y, rounds = tiling.rotations.tokens;
    block_place place = find_block(tiling.order, blockIdx.x);
    place.token *= rounds * together;
    const int left = tiling.shape.n - place.token - 1; /* tokens after the block's first */
    const unit_places at = find_unit<E, V>(tiling.shape.d, tiling.shape.k, 0, tiling.shape.units, (int)threadIdx.x);
    int token = (int)threadIdx.y, token_ahead = token; /* from the block's first */
    row_walk<const T> src_rows(src, place, token, together), x_rows(x, place, token, together);
    row_walk<T> dst_rows(dst, place, token, together);
    row_words<T, E, A, BACKWARD> next[AHEAD] = {};
    const auto read_ahead = [&] {
#pragma unroll
        for (int i = 0; i < AHEAD; i++, token_ahead += together) {
            const T *const src_row = src_rows.next(), *const x_row = x_rows.next();
            if (token_ahead > left)
                continue;
            next[i].src.read(src_row, 0, BACKWARD ? at.encoded : at.plain);
            next[i].x.read(x_row, 0, at.plain);
        }
    };
    read_ahead();
    typedef advance_of<T, E, A, BACKWARD> advance;
    const shared_angles<advance, E, V> shared(tiling.rotations, dynamic_shared());
    shared.fill(tiling.rotations, place.head, together);
    const int in_grid = place.token + token - tiling.rotations.prefix;
    unit_rotations<advance, E, V> unit(shared, at.there ? (int)threadIdx.x : 0, tiling.rotations.offset[0] + in_grid);
    for (int round = 0; round < rounds; round += AHEAD) {
        row_words<T, E, A, BACKWARD> words[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            words[i] = next[i];
        if (round + AHEAD < rounds)
            read_ahead();
#pragma unroll
        for (int i = 0; i < AHEAD; i++, token += together) {
            rotation rotations[V];
            const bool inside =
                (uint32_t)(place.token + token - tiling.rotations.prefix) < (uint32_t)tiling.rotations.length;
            unit.next(rotations);
            transform_row(act, words[i], at, inside, at.there && token <= left, rotations, tiling.shape.lanes,
                          dst_rows.next(), 0);
        }
    }
}

inline constexpr variant_word tokens_name = "lrpe_tokens";

/* The kernel's arguments. */
struct token_arguments {
    tensor_rows src, x, dst;
    token_tiling tiling;
};

/* Why the problem has no tiling; nullptr: it has one, with `together` of a block's tokens side by side. */
static const char *refuse_tiling(const gpu_device &device, const copes_lrpe_problem &problem, int v,
                                 size_t bytes_of_angle, token_tiling *tiling, int *together, int64_t *blocks)
{
    const row_shape &shape = tiling->shape;
    *together = THREADS / shape.lanes;
    if (problem.b != 1)
        return "batch entries, or heads with one theta, share their angles";
    if (problem.grid_rank != 1)
        return "the grid has more than one dimension";
    if (*together == 0)
        return "a row has more vectors than a block's threads";
    if (problem.offset[0] - problem.prefix < INT32_MIN)
        return "a token before the grid would have a position below any";
    const int64_t rows = (int64_t)shape.n * problem.h / *together,
                  wanted = rows / ENOUGH_BLOCKS / device.multiprocessors;
    const int64_t room = MOST_BYTES / (shape.units * v * (int64_t)bytes_of_angle);
    const int rounds = (int)lesser(lesser(wanted, room), (int64_t)MOST_ROUNDS) / LEAST_ROUNDS * LEAST_ROUNDS;
    if (rounds < LEAST_ROUNDS)
        return "there are too few tokens for several a thread";
    tiling->rotations = rotation_plan(problem, shape.units, v);
    tiling->rotations.tokens = rounds;
    const int tokens = rounds * *together, tiles = times(shape.n, tokens);
    tiling->order = block_order(problem, tiles, 1);
    if (!is_near(problem.src, tokens) || !is_near(problem.x, tokens) || !is_near(problem.dst, tokens))
        return "a thread's tokens lie further apart than 2^31 elements";
    *blocks = (int64_t)tiles * problem.h;
    return *blocks <= INT32_MAX ? nullptr : "there are more blocks than a launch takes";
}

typedef void tokens_kernel(copes_act, tensor_rows, tensor_rows, tensor_rows, token_tiling);

static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const token_arguments &all = tiling_of<token_arguments>(plan);
    return launch_plan<tokens_kernel>(queue, plan, problem.lrpe.act, all.src, all.x, all.dst, all.tiling);
}

/* Plans all but the kernel, for vectors of v elements. Returns why not; nullptr: it did. */
static const char *plan_launch(const gpu_device &device, const copes_lrpe_problem &problem, const row_shape &shape,
                               int v, size_t bytes_of_angle, size_t (*bytes_of)(const rotation_plan &),
                               copes_plan *plan)
{
    token_arguments all = {tensor_rows(problem.src), tensor_rows(problem.x), tensor_rows(problem.dst), {}};
    int together;
    int64_t blocks;
    all.tiling.shape = shape;
    if (const char *why = theta_source::refuse(problem))
        return why;
    if (const char *why = refuse_tiling(device, problem, v, bytes_of_angle, &all.tiling, &together, &blocks))
        return why;
    set_launch(plan, (unsigned)blocks, dim3((unsigned)shape.lanes, (unsigned)together),
               (int64_t)bytes_of(all.tiling.rotations));
    set_tiling(plan, all);
    return nullptr;
}

template <typename T, encoding E, activation A, bool BACKWARD>
static bool plan_direction(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    typedef advance_of<T, E, A, BACKWARD> advance;
    row_shape shape;
    const char *why = refuse_anywhere(problem);
    if (why == nullptr)
        why = refuse_shape<T, E>(problem, A == activation::softmax, &shape);
    if (why == nullptr)
        why = plan_launch(device, problem, shape, V, sizeof(advance), shared_angles<advance, E, V>::bytes_of, plan);
    return why == nullptr ? take<tokens_kernel>(plan, row_variant<tokens_name, T, E, A, BACKWARD>, run,
                                                lrpe_tokens<T, E, A, BACKWARD>)
                          : refuse(plan, tokens_name, why);
}

template <typename T, encoding E, activation A>
bool plan_tokens(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, tokens_name, plan))
        return false;
    return problem.backward ? plan_direction<T, E, A, true>(device, problem, plan)
                            : plan_direction<T, E, A, false>(device, problem, plan);
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool plan_tokens<T, encoding::E, activation::A>(const gpu_device &, const copes_lrpe_problem &,           \
                                                             copes_plan *);
#include "backends/gpu/lrpe/instantiate.inc"
#undef LRPE_INSTANTIATE

void list_tokens(variant_list *list)
{
#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    list->add(row_variant<tokens_name, T, encoding::E, activation::A, false>);                                         \
    list->add(row_variant<tokens_name, T, encoding::E, activation::A, true>);
#include "backends/gpu/lrpe/instantiate.inc"
}

} // namespace COPES_GPU::lrpe
