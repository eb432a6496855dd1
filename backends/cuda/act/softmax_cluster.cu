/* Softmax over rows that a cluster of blocks holds in its registers each, and reads once. Blocks exchange a number for each reduction. */
#include "backends/cuda/act/methods.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/gpu/act/team.h"

namespace COPES_GPU::act
{

struct cluster_memory {
    float of_warps[MOST_THREADS / WARP];
    float2 of_blocks[MOST_CLUSTER];
    uint64_t received; /* the mbarrier of of_blocks: 1 arrival, and the blocks' bytes */
};

/* As block_team is (backends/gpu/act/team.h). A row's blocks exchange numbers once, by st.async: a barrier of the
 * cluster that orders memory would also wait for every other write. */
template <typename T> struct cluster_team {
    cluster_memory *memory;
    int blocks, lane, size;

    __device__ __forceinline__ cluster_team(cluster_memory *shared, int of_cluster)
        : memory(shared), blocks(of_cluster), lane((int)(ptx::cluster_rank() * blockDim.x + threadIdx.x)),
          size(of_cluster * (int)blockDim.x)
    {
        if (threadIdx.x == 0)
            ptx::mbarrier_init_cluster(ptx::shared_address(&memory->received), 1);
        ptx::cluster_arrive_relaxed(blocks);
    }
    __device__ __forceinline__ float max_of(float value) const
    {
        return max_of_block(value, memory->of_warps);
    }
    __device__ __forceinline__ float sum_of(float value) const
    {
        return sum_of_block(value, memory->of_warps);
    }
    __device__ __forceinline__ float scale_of(float most, float sum) const
    {
        const float2 of_block = exchange({most, sum}, {-INFINITY, 0});
        const float all_most = max_of_lanes(of_block.x, WARP);
        const float all = sum_of_lanes(of_block.y * rescale_terms<T>(of_block.x, all_most), WARP);
        return rescale_terms<T>(most, all_most) / all;
    }
    __device__ __forceinline__ float sum_of_blocks(float sum) const
    {
        return sum_of_lanes(exchange({sum, 0}, {0, 0}).x, WARP);
    }

  private:
    /* Gives every block the numbers of this one, and each lane of a warp those of a block, or `none`. */
    __device__ __forceinline__ float2 exchange(float2 numbers, float2 none) const
    {
        const uint32_t received = ptx::shared_address(&memory->received);
        const uint32_t own = ptx::shared_address(memory->of_blocks + ptx::cluster_rank());
        const int place = (int)threadIdx.x % WARP;
        if (threadIdx.x == 0)
            ptx::mbarrier_arrive_expect_tx(received, (uint32_t)(blocks * sizeof(float2)));
        ptx::cluster_wait(blocks); /* all blocks have begun, and so have their mbarriers */
        if ((int)threadIdx.x < blocks)
            ptx::st_async(own, received, threadIdx.x, numbers);
        ptx::mbarrier_wait_cluster(received, 0);
        return place < blocks ? memory->of_blocks[place] : none;
    }
};

template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(MOST_THREADS)
    softmax_cluster(const T *src, const T *saved, T *dst, int length, int blocks, GPU_PARAMETER act_strides rows)
{
    __shared__ cluster_memory memory;
    const act_offsets at = find_offsets(rows, blockIdx.x / (unsigned)blocks);
    const cluster_team<T> team(&memory, blocks);
    team_row<T, MANY<BACKWARD>, BACKWARD, int64_t> row(team, src + at.src, saved + at.saved, dst + at.dst, length);
    softmax_of_row(team, row);
}

template <typename T> using cluster_kernel = void(const T *, const T *, T *, int, int, act_strides);

template <typename T>
copes_status run_cluster(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    const cluster_tiling &tiling = tiling_of<cluster_tiling>(plan);
    return launch_ex(queue, {.cluster = tiling.blocks}, planned<cluster_kernel<T>>(plan), grid_of(plan), block_of(plan),
                     0, static_cast<const T *>(p.src.data), static_cast<const T *>(p.saved.data),
                     static_cast<T *>(p.dst.data), (int)p.shape[p.axis], tiling.blocks, tiling.rows);
}

template <typename T, bool BACKWARD> bool take_cluster(copes_plan *plan)
{
    return take<cluster_kernel<T>>(plan, name_of_cluster<T, BACKWARD>, run_cluster<T>, softmax_cluster<T, BACKWARD>);
}

#define INSTANTIATE(T)                                                                                                 \
    template bool take_cluster<T, false>(copes_plan *);                                                                \
    template bool take_cluster<T, true>(copes_plan *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
