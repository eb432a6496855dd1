/* lrpe where batch entries share their angles. Heads with one theta share them, too, and take the place of batch
 * entries (lrpe.cu). Bound by memory. A block has a few tokens of a head, in all batch entries or some. It makes their
 * sines and cosines once, in shared memory, while its loads are under way. A thread has one pair of vectors (with
 * cosine, one vector that becomes two) in several tokens, to spread the work that it does once. Small blocks were
 * fastest on an H200: the many other blocks of a multiprocessor then hide what one waits for at its barrier. */
#include "backends/gpu/lrpe/block_rotations.h"
#include "backends/gpu/lrpe/rows.h"

#include <algorithm>
#include <cstdlib>

namespace COPES_GPU::lrpe
{

enum { MANY_ENTRIES = 16, MOST_THREADS = 512, MOST_BYTES = 48 << 10 }; /* of a block */

/* Tokens of a thread: as many as registers hold without lowering the number of blocks on a multiprocessor. */
template <typename T, encoding E, activation A, bool BACKWARD>
inline constexpr int shares = BACKWARD                                  ? (A == activation::none ? 3 : 2)
                              : sizeof(T) == 4 || E == encoding::cosine ? 4
                                                                        : 3;

/* Do a token's batch entries lie side by side, as heads do? */
static bool are_near(const copes_lrpe_problem &problem)
{
    return std::abs(problem.dst.stride[0]) < std::abs(problem.dst.stride[1]);
}

/* The batch entries that a block is to have; choose_entries may take some more. Where the tensors do not fit the
 * caches, memory is up to 3 % faster if fewer places are read and written at a time. But with fewer entries a block
 * makes more rotations for its rows, and other arithmetic leaves less time for them: a grid's divisions, or cosine
 * backward, which needs twice the rotations of rotate. */
template <typename T, encoding E, activation A> int entries_wanted(const copes_lrpe_problem &problem)
{
    constexpr bool exact = sizeof(T) == 4, softmax = A == activation::softmax, none = A == activation::none;
    const bool line = problem.grid_rank == 1, cosine = E == encoding::cosine;
    const bool heavy = problem.backward && cosine && !none && !exact;
    const double large = line ? 200e6 : 1e9; /* bytes */
    if (heavy || are_near(problem) || copes_lrpe_bytes(&problem) < large)
        return MANY_ENTRIES;
    if (line && (none || softmax || (exact && cosine && !problem.backward)))
        return 2;
    return problem.grid_rank > 2 || (exact && !softmax) ? 6 : 4;
}

struct batch_tiling {
    rotation_plan rotations;
    block_order order;
    row_shape shape;
    uint32_t next_group, next_entry; /* steps in batch entries: to the next block's first, and to a block's next */
};

template <typename T, encoding E, activation A, bool BACKWARD>
__global__ void lrpe_batch(copes_act act, GPU_PARAMETER tensor_rows src, GPU_PARAMETER tensor_rows x,
                           GPU_PARAMETER tensor_rows dst, GPU_PARAMETER batch_tiling tiling)
{
    constexpr int V = vector_length<T>, SHARES = shares<T, E, A, BACKWARD>;
    block_place place = find_block(tiling.order);
    place.token *= tiling.rotations.tokens;
    const uint32_t entry = (uint32_t)place.entry * tiling.next_group + threadIdx.z * tiling.next_entry;
    const bool exists = entry < (uint32_t)tiling.shape.b;
    place.entry = exists ? (int)entry : 0;
    const unit_places at = find_unit<E, V>(tiling.shape.d, tiling.shape.k, 0, tiling.shape.units, (int)threadIdx.x);
    const int left = min(tiling.rotations.tokens, tiling.shape.n - place.token) - 1; /* the block's last token */
    const T *const src_row = first_row<const T>(src, place), *const x_row = first_row<const T>(x, place);
    row_words<T, E, A, BACKWARD> words[SHARES];
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int token = min((int)threadIdx.y + i * (int)blockDim.y, left);
        words[i].src.read(src_row, token * src.n, BACKWARD ? at.encoded : at.plain);
        words[i].x.read(x_row, token * x.n, at.plain);
    }
    const block_rotations<V> made(tiling.rotations, dynamic_shared());
    make_rotations<sizeof(T) == 4, A == activation::softmax && sizeof(T) == 2>(tiling.rotations, made, place.head,
                                                                               place.token);
    T *const dst_row = first_row<T>(dst, place);
    const bool live = at.there && exists;
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        const int token = (int)threadIdx.y + i * (int)blockDim.y;
        rotation rotations[V];
        made.read((unsigned)token, at.there ? threadIdx.x : 0, rotations);
        transform_row(act, words[i], at, true, live && token <= left, rotations, tiling.shape.lanes, dst_row,
                      token * dst.n);
    }
}

/* The batch entries of a block, `most` at most: as many as wanted, or fewer than twice as many if the last group then
 * has fewer idle ones. */
static int choose_entries(int b, int wanted, int most)
{
    int best = std::min(wanted, most);
    for (int entries = best; entries < 2 * wanted && entries <= most; entries++)
        if ((int64_t)times(b, entries) * entries < (int64_t)times(b, best) * best)
            best = entries;
    return best;
}

/* Returns the number of blocks; 0: this kernel does not take the problem. A block's batch entries share angles, and it
 * takes tokens until it has a thread for each angle of a token. */
static int64_t find_tiling(const copes_lrpe_problem &problem, int v, int share, int wanted, batch_tiling *tiling,
                           dim3 *threads)
{
    const row_shape &shape = tiling->shape;
    const int entries = choose_entries(shape.b, std::min(wanted, shape.b), MOST_THREADS / shape.lanes);
    const int64_t bytes = (int64_t)share * shape.units * v * (int64_t)sizeof(rotation); /* for a thread's tokens */
    int together = times(v, entries);
    while (together > 1 && (together * entries * shape.lanes > MOST_THREADS || together * bytes > MOST_BYTES))
        --together;
    *threads = dim3((unsigned)shape.lanes, (unsigned)together, (unsigned)entries);
    const int tokens = together * share, tiles = times(shape.n, tokens), groups = times(shape.b, entries);
    const bool side_by_side = are_near(problem); /* else a block's entries are far apart: memory is faster so */
    tiling->next_group = side_by_side ? (uint32_t)entries : 1;
    tiling->next_entry = side_by_side ? 1 : (uint32_t)groups;
    tiling->rotations = rotation_plan(problem, shape.units, v);
    tiling->rotations.tokens = tokens;
    tiling->order = block_order(problem, tiles);
    const bool near = is_near(problem.src, tokens) && is_near(problem.x, tokens) && is_near(problem.dst, tokens);
    const double blocks = (double)tiles * groups * (double)problem.h;
    const bool fits = block_rotations_bytes(tiling->rotations) <= MOST_BYTES && blocks <= INT32_MAX;
    return near && fits ? (int64_t)blocks : 0;
}

inline constexpr variant_word batch_name = "lrpe_batch";

/* The kernel's arguments. */
struct batch_arguments {
    tensor_rows src, x, dst;
    batch_tiling tiling;
};

template <typename T, encoding E, activation A, bool BACKWARD>
static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const batch_arguments &all = tiling_of<batch_arguments>(plan);
    return launch(queue, lrpe_batch<T, E, A, BACKWARD>, grid_of(plan), block_of(plan), (size_t)plan.shared,
                  problem.lrpe.act, all.src, all.x, all.dst, all.tiling);
}

template <typename T, encoding E, activation A>
bool plan_batch(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    batch_arguments all = {tensor_rows(problem.src), tensor_rows(problem.x), tensor_rows(problem.dst), {}};
    if (!is_allowed(device, batch_name, plan))
        return false;
    if (const char *why = refuse_anywhere(problem))
        return refuse(plan, batch_name, why);
    if (const char *why = refuse_shape<T, E>(problem, A == activation::softmax, &all.tiling.shape))
        return refuse(plan, batch_name, why);
    if (!rotation_plan::fits(problem))
        return refuse(plan, batch_name, "theta's strides reach past 2^31 elements");
    dim3 threads;
    const int64_t blocks =
        find_tiling(problem, vector_length<T>, problem.backward ? shares<T, E, A, true> : shares<T, E, A, false>,
                    entries_wanted<T, E, A>(problem), &all.tiling, &threads);
    if (blocks == 0)
        return refuse(plan, batch_name,
                      "the rotations of a block do not fit its shared memory, or a stride or the grid 2^31");
    set_launch(plan, (unsigned)blocks, threads, (int64_t)block_rotations_bytes(all.tiling.rotations));
    set_tiling(plan, all);
    return problem.backward ? take(plan, row_variant<batch_name, T, E, A, true>, run<T, E, A, true>)
                            : take(plan, row_variant<batch_name, T, E, A, false>, run<T, E, A, false>);
}

#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    template bool plan_batch<T, encoding::E, activation::A>(const gpu_device &, const copes_lrpe_problem &,            \
                                                            copes_plan *);
#include "backends/gpu/lrpe/instantiate.inc"
#undef LRPE_INSTANTIATE

void list_batch(variant_list *list)
{
#define LRPE_INSTANTIATE(T, E, A)                                                                                      \
    list->add(row_variant<batch_name, T, encoding::E, activation::A, false>);                                          \
    list->add(row_variant<batch_name, T, encoding::E, activation::A, true>);
#include "backends/gpu/lrpe/instantiate.inc"
}

} // namespace COPES_GPU::lrpe
