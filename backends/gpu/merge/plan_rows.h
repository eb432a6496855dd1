/* What the planners of attention_merge share: the variants' names, and which problems are of whole vectors. */
#ifndef COPES_BACKENDS_GPU_MERGE_PLAN_ROWS_H
#define COPES_BACKENDS_GPU_MERGE_PLAN_ROWS_H

#include "backends/gpu/merge/rows.h"
#include "backends/gpu/names.h"
#include "backends/gpu/plan.h"

namespace COPES_GPU::merge
{

inline constexpr int THREADS = 128; /* of a block */

inline constexpr variant_word vectors_name = "merge_vectors", any_name = "merge_any";
inline constexpr variant_word index_names[] = {"uint32", "uint64"};
inline constexpr variant_word count_names[] = {"2", "4", "8", "more"};

/* AT_ONCE shares are read at a time; MORE: there may be more. */
template <typename T, bool BACKWARD, int AT_ONCE, bool MORE>
inline constexpr const char *name_of_vectors =
    variant_name<vectors_name, type_name<T>, direction_names[BACKWARD], count_names[MORE ? 3 : AT_ONCE / 4]>::text;

/* Calls take<AT_ONCE, MORE>() of the kernel for so many shares: one for fewer takes fewer registers. */
template <typename Take> bool take_by_shares(int64_t shares, const Take &take)
{
    if (shares <= 2)
        return take.template operator()<2, false>();
    if (shares <= 4)
        return take.template operator()<4, false>();
    return shares <= 8 ? take.template operator()<8, false>() : take.template operator()<4, true>();
}

template <typename T, bool BACKWARD> void list_vectors(variant_list *list)
{
    list->add(name_of_vectors<T, BACKWARD, 2, false>);
    list->add(name_of_vectors<T, BACKWARD, 4, false>);
    list->add(name_of_vectors<T, BACKWARD, 8, false>);
    list->add(name_of_vectors<T, BACKWARD, 4, true>);
}

template <typename T, bool BACKWARD, typename Index>
inline constexpr const char *name_of_any =
    variant_name<any_name, type_name<T>, direction_names[BACKWARD], index_names[sizeof(Index) / 8]>::text;

/* About as many as there are: the number itself need not fit 63 bits. */
inline double rows_of(const copes_merge_problem &problem)
{
    return (double)problem.b * (double)problem.n * (double)problem.h;
}

inline bool has_whole_floats(const copes_view &view)
{
    return reinterpret_cast<uintptr_t>(view.data) % sizeof(float) == 0;
}

/* May variants of vectors take it, as far as its tensors go, with `threads` threads? */
template <typename T>
bool is_in_vectors(const gpu_device &device, const copes_merge_problem &problem, double threads, copes_plan *plan)
{
    const int64_t lengths[5] = {problem.shares, problem.b, problem.n, problem.h, problem.e};
    if (!is_allowed(device, vectors_name, plan))
        return false;
    if (problem.e == 0 || problem.e % vector_length<T> != 0 || !in_vectors<T>(problem.o_shares, lengths, 5) ||
        !in_vectors<T>(problem.row, lengths + 1, 4) || !in_vectors<T>(problem.grad_o_shares, lengths, 5))
        return refuse(plan, vectors_name, "a tensor's rows are not whole vectors, aligned to 16 bytes");
    if (!has_whole_floats(problem.lse_shares) || !has_whole_floats(problem.lse) ||
        !has_whole_floats(problem.grad_lse_shares))
        return refuse(plan, vectors_name, "an lse is not aligned to 4 bytes");
    return threads <= INT32_MAX || refuse(plan, vectors_name, "it counts threads in 31 bits");
}

/* The type of both directions' kernels. */
template <typename Index> using row_kernel = void(row_arguments<Index>);

template <typename Index>
copes_status run_rows(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    return launch_plan<row_kernel<Index>>(queue, plan,
                                          row_arguments<Index>{problem.merge, tiling_of<row_threads<Index>>(plan)});
}

/* The launch in which `pieces` threads have a row. */
template <typename Index> void set_threads(const copes_merge_problem &problem, int64_t pieces, copes_plan *plan)
{
    const row_threads<Index> threads(problem, pieces);
    set_tiling(plan, threads);
    set_launch(plan, blocks_of(divide_up((int64_t)threads.count, THREADS), THREADS), THREADS, 0);
}

} // namespace COPES_GPU::merge

#endif
