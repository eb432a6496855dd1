/* lrpe where batch entries share their angles. Heads with one theta share them, too, and take the place of batch
 * entries (lrpe.cu). Bound by memory. A block has a few tokens of a head, in all batch entries or some. It makes their
 * sines and cosines once, in shared memory, while its loads are under way. A thread has one pair of vectors (with
 * cosine, one vector that becomes two) in several tokens, to spread the work that it does once. Small blocks were
 * fastest on an H200: the many other blocks of a multiprocessor then hide what one waits for at its barrier. */
#ifndef COPES_BACKENDS_GPU_LRPE_BATCH_H
#define COPES_BACKENDS_GPU_LRPE_BATCH_H

#include "backends/gpu/lrpe/block_rotations.h"
#include "backends/gpu/lrpe/rows.h"

#include <stdlib.h>

namespace COPES_GPU::lrpe
{

enum { MANY_ENTRIES = 16, FEWEST_THREADS = 64, MOST_THREADS = 512, MOST_BYTES = 48 << 10 }; /* of a block */
enum { ENOUGH_BLOCKS = 4 };                                                                 /* on a multiprocessor */

/* Tokens of a thread: as many as registers hold without lowering the number of blocks on a multiprocessor; of narrow ones the same
 * bytes. */
template <typename T, encoding E, activation A, bool BACKWARD>
inline constexpr int shares = is_narrow<T>                              ? 6
                              : BACKWARD                                ? (A == activation::none ? 3 : 2)
                              : sizeof(T) == 4 || E == encoding::cosine ? 4
                                                                        : 3;

/* Do a token's batch entries lie side by side, as heads do? */
inline bool are_near(const copes_lrpe_problem &problem)
{
    return is_nearer(problem, 0, 1);
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

/* The kernel's arguments. Rotations come from a `Source`. */
template <typename Source> struct batch_arguments {
    Source source;
    tensor_rows src, x, dst;
    block_order order;
    row_shape shape;
    uint32_t next_group, next_entry; /* steps in batch entries: to the next block's first, and to a block's next */
    copes_act act;
};

/* What a block does. The kernels are lrpe_batch and lrpe_anywhere. */
template <typename T, encoding E, activation A, bool BACKWARD, typename Source>
DEVICE void run_block(const batch_arguments<Source> &argument)
{
    constexpr int V = vector_length<T>, SHARES = shares<T, E, A, BACKWARD>;
    const batch_arguments<Source> &all = Source::read(argument);
    block_place place = find_block(all.order, blockIdx.x);
    place.token *= all.source.tokens;
    const uint32_t entry = (uint32_t)place.entry * all.next_group + threadIdx.z * all.next_entry;
    const bool exists = entry < (uint32_t)all.shape.b;
    place.entry = exists ? (int)entry : 0;
    const unit_places at =
        find_unit<E, V>(all.shape.d, all.shape.k, all.source.begin(), all.shape.units, (int)threadIdx.x);
    const int left = min(all.source.tokens, all.shape.n - place.token) - 1; /* the block's last token */
    const T *const src_row = first_row<const T>(all.src, place), *const x_row = first_row<const T>(all.x, place);
    row_words<T, E, A, BACKWARD> words[SHARES];
    const auto read = [&] {
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            const int token = min((int)threadIdx.y + i * (int)blockDim.y, left);
            words[i].src.read(src_row, token * all.src.n, BACKWARD ? at.encoded : at.plain);
            words[i].x.read(x_row, token * all.x.n, at.plain);
        }
    };
    read();
    const block_rotations<E, V> made(all.source, dynamic_shared());
    constexpr bool exactly = sizeof(T) == 4, by_product = A == activation::softmax && !exactly;
    if (!make_rotations<exactly, by_product>(all.source, made, place, left)) {
        make_any_rotations(all.source, made, place, left);
        read(); /* what was read needs no registers meanwhile */
    }
    const batch_arguments<Source> &now = Source::read(argument);
    T *const dst_row = first_row<T>(now.dst, place);
    const bool live = at.there && exists;
#pragma unroll
    for (int i = 0; i < SHARES && i * (int)blockDim.y <= left; i++) {
        const int token = (int)threadIdx.y + i * (int)blockDim.y;
        rotation rotations[V];
        made.read((unsigned)token, at.there ? threadIdx.x : 0, rotations);
        transform_row(now.act, words[i], at, true, live && token <= left, rotations, now.shape.lanes, dst_row,
                      token * now.dst.n);
    }
}

/* The batch entries of a block, `most` at most: as many as wanted, or fewer than twice as many if the last group then
 * has fewer idle ones. */
inline int choose_entries(int b, int wanted, int most)
{
    int best = lesser(wanted, most);
    for (int entries = best; entries < 2 * wanted && entries <= most; entries++)
        if ((int64_t)times(b, entries) * entries < (int64_t)times(b, best) * best)
            best = entries;
    return best;
}

/* What limits blocks: tokens of a thread, batch entries that share angles, and threads. With fewer blocks than `enough`,
 * they become smaller, but for what would not run at once, where a thread has so many `registers`; 0: that is not known. */
struct batch_limits {
    int share, wanted, least, most, enough;
    int multiprocessors = 0, registers = 0;

    /* The blocks of `threads` that run at once. Each of a multiprocessor's schedulers has registers of its own. */
    double at_once(int threads) const
    {
        if (registers == 0 || SCHEDULER_REGISTERS == 0)
            return INT32_MAX;
        const int warps = SCHEDULERS * (SCHEDULER_REGISTERS / (registers * 32));
        return (double)(warps / times(threads, 32)) * multiprocessors;
    }
};

/* How blocks share the rows. A block's batch entries share angles, and it takes tokens until it has a thread for each
 * angle of a token, and as many as it must. */
struct batch_cut {
    dim3 threads;
    int tokens, tiles, groups;
    double blocks;

    batch_cut(const copes_lrpe_problem &problem, const row_shape &shape, int v, const batch_limits &limits)
    {
        const int entries = choose_entries(shape.b, lesser(limits.wanted, shape.b), limits.most / shape.lanes);
        const int row_threads = entries * shape.lanes;
        const int64_t bytes_of_token = shape.units * v * (int64_t)sizeof(rotation);
        int share = limits.share, together = greater(times(v, entries), limits.least / row_threads);
        while (together > 1 && (together * row_threads > limits.most || together * share * bytes_of_token > MOST_BYTES))
            --together;
        groups = times(shape.b, entries);
        const auto count = [&](int tokens) { return (double)times(shape.n, tokens) * groups * (double)problem.h; };
        const auto are_enough = [&] { return count(together * share) >= limits.enough; };
        while (share > 1 && !are_enough() && count(together * (share - 1)) <= limits.at_once(together * row_threads))
            --share;
        while (together > 1 && together * row_threads > FEWEST_THREADS && !are_enough())
            --together;
        threads = dim3((unsigned)shape.lanes, (unsigned)together, (unsigned)entries);
        tokens = together * share;
        tiles = times(shape.n, tokens);
        blocks = (double)tiles * groups * (double)problem.h;
    }
};

/* Fills in the arguments, whose shape is known. Returns why the kernel does not take the problem; nullptr: it does. */
template <typename Source>
const char *cut_batch(const copes_lrpe_problem &problem, const batch_cut &cut, const Source &source,
                      batch_arguments<Source> *all)
{
    const int entries = (int)cut.threads.z;
    const bool side_by_side = are_near(problem); /* else a block's entries are far apart: memory is faster so */
    all->next_group = side_by_side ? (uint32_t)entries : 1;
    all->next_entry = side_by_side ? 1 : (uint32_t)cut.groups;
    all->source = source;
    all->source.tokens = cut.tokens;
    all->src = tensor_rows(problem.src);
    all->x = tensor_rows(problem.x);
    all->dst = tensor_rows(problem.dst);
    all->order = block_order(problem, cut.tiles, cut.groups);
    all->act = problem.act;
    if (!is_near(problem.src, cut.tokens) || !is_near(problem.x, cut.tokens) || !is_near(problem.dst, cut.tokens))
        return "a block's tokens lie further apart than 2^31 elements";
    if (all->source.bytes() > MOST_BYTES)
        return "the rotations of a block do not fit its shared memory";
    return cut.blocks <= INT32_MAX ? nullptr : "there are more blocks than a launch takes";
}

template <typename Source> using batch_kernel = void(batch_arguments<Source>);

template <typename Source>
copes_status run_batch(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch_plan<batch_kernel<Source>>(queue, plan, tiling_of<batch_arguments<Source>>(plan));
}

/* Plans all but the kernel for vectors of v elements. Returns why not; nullptr: it did. */
template <typename Source>
const char *plan_launch(const gpu_device &device, const copes_lrpe_problem &problem, const row_shape &shape,
                        const Source &source, int share, int registers, int wanted, int v, copes_plan *plan)
{
    const batch_cut cut(problem, shape, v,
                        {share, wanted, 0, MOST_THREADS, ENOUGH_BLOCKS * device.multiprocessors, device.multiprocessors,
                         registers});
    batch_arguments<Source> all = {};
    all.shape = shape;
    if (const char *why = cut_batch(problem, cut, source, &all))
        return why;
    set_launch(plan, (unsigned)cut.blocks, cut.threads, (int64_t)all.source.bytes());
    set_tiling(plan, all);
    return nullptr;
}

/* A method's kernel, and the registers of its threads that a plan may count on; 0: none. */
template <typename Source> struct batch_method {
    batch_kernel<Source> *kernel;
    int registers;
};

/* Plans a problem whose tensors are whole vectors for the method NAME, whose kernels are for the forward and the backward, or notes why
 * not. */
template <variant_word NAME, typename T, encoding E, activation A, typename Source>
bool plan_shared(const gpu_device &device, const copes_lrpe_problem &problem, const row_shape &shape,
                 const Source &source, int wanted, const batch_method<Source> (&methods)[2], copes_plan *plan)
{
    const int share = problem.backward ? shares<T, E, A, true> : shares<T, E, A, false>;
    const batch_method<Source> &method = methods[problem.backward];
    if (const char *why =
            plan_launch(device, problem, shape, source, share, method.registers, wanted, vector_length<T>, plan))
        return refuse(plan, NAME, why);
    return take<batch_kernel<Source>>(plan,
                                      problem.backward ? row_variant<NAME, T, E, A, true>
                                                       : row_variant<NAME, T, E, A, false>,
                                      run_batch<Source>, method.kernel);
}

} // namespace COPES_GPU::lrpe

#endif
