/* Softmax over rows on Hopper: which of them go to the clusters of softmax_cluster.cu. */
#include "backends/cuda/act/methods.h"
#include "backends/gpu/act/team.h"

namespace COPES_GPU::act
{

inline constexpr int USUAL_THREADS = 512; /* two such blocks run on a multiprocessor at once */

struct cluster_shape {
    int blocks, threads;
    int64_t holds; /* vectors */
};

/* The smallest cluster of usual blocks that holds a row of `units` vectors, else the largest; more blocks where there are fewer rows than
 * fill the device. Blocks have no more threads than hold it. */
static cluster_shape shape_of(const gpu_device &device, int64_t rows, int64_t units, int held)
{
    const int most = largest_cluster(device);
    int blocks = 2;
    while (blocks < most &&
           ((int64_t)blocks * USUAL_THREADS * held < units || 2 * rows * blocks <= device.multiprocessors))
        blocks *= 2;
    const int64_t of_warps = (int64_t)blocks * held * WARP, warps = (units + of_warps - 1) / of_warps;
    const int threads = WARP * (int)greater<int64_t>(1, lesser<int64_t>(warps, MOST_THREADS / WARP));
    return {blocks, threads, (int64_t)blocks * threads * held};
}

template <typename T>
static const char *refuse_cluster(const gpu_device &device, const copes_act_problem &problem, int64_t rows)
{
    const int64_t units = problem.shape[problem.axis] / vector_length<T>;
    const int held = problem.backward ? MANY<true> : MANY<false>;
    if (!COPES_RESIDENT)
        return "the library has no code for compute capability 9.0 or newer";
    if (device.architecture < 90 || largest_cluster(device) == 1)
        return "the device has no clusters";
    if (problem.passes != COPES_BOTH_PASSES)
        return "the axis lies in shares";
    if (const char *why = refuse_team<T>(problem))
        return why;
    const cluster_shape shape = shape_of(device, rows, units, held);
    if (units > shape.holds)
        return "a row is more than a cluster holds";
    if (rows == 0 || rows > INT32_MAX / shape.blocks)
        return "there are more blocks than a launch takes, or none";
    const bool few = 2 * rows <= device.multiprocessors && units > USUAL_THREADS;
    if (!asks_for_one(device) && !few && units <= USUAL_THREADS * held)
        return "a block of 512 threads holds a row";
    return nullptr;
}

template <typename T>
bool plan_fast(const gpu_device &device, const copes_act_problem &problem, const act_strides &rows, copes_plan *plan)
{
    if (!is_allowed(device, cluster_name, plan))
        return false;
    if (const char *why = refuse_cluster<T>(device, problem, rows.count))
        return refuse(plan, cluster_name, why);
#if COPES_RESIDENT
    const int64_t units = problem.shape[problem.axis] / vector_length<T>;
    const cluster_shape shape = shape_of(device, rows.count, units, problem.backward ? MANY<true> : MANY<false>);
    set_tiling(plan, cluster_tiling{rows, shape.blocks});
    set_launch(plan, (unsigned)(rows.count * shape.blocks), (unsigned)shape.threads, 0);
    return problem.backward ? take_cluster<T, true>(plan) : take_cluster<T, false>(plan);
#else
    return false;
#endif
}

template <typename T> void list_fast(variant_list *list)
{
    if (!COPES_RESIDENT)
        return;
    list->add(name_of_cluster<T, false>);
    list->add(name_of_cluster<T, true>);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool plan_fast<T>(const gpu_device &, const copes_act_problem &, const act_strides &, copes_plan *);      \
    template void list_fast<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
#undef INSTANTIATE

} // namespace COPES_GPU::act
