/* Softmax over rows that a cluster of blocks holds in its registers each, and reads once. Blocks exchange a number for each reduction. */
#include "backends/cuda/act/methods.h"
#include "backends/cuda/launch.h"
#include "backends/gpu/act/team.h"

namespace COPES_GPU::act
{

struct cluster_memory {
    float of_warps[MOST_THREADS / WARP];
    float2 of_blocks[MOST_CLUSTER];
};

/* As block_team is (backends/gpu/act/team.h). A row exchanges numbers once. */
struct cluster_team {
    static constexpr bool HAS_BLOCKS = true;
    cluster_memory *memory;
    int blocks, lane, size;

    __device__ __forceinline__ cluster_team(cluster_memory *shared, int of_cluster)
        : memory(shared), blocks(of_cluster), lane((int)(ptx::cluster_rank() * blockDim.x + threadIdx.x)),
          size(of_cluster * (int)blockDim.x)
    {
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
        float all_most = -INFINITY, all = 0;
        exchange({most, sum});
        for (int block = 0; block < blocks; block++)
            all_most = fmaxf(all_most, memory->of_blocks[block].x);
        for (int block = 0; block < blocks; block++)
            all += memory->of_blocks[block].y * softmax_term(memory->of_blocks[block].x, all_most);
        return softmax_term(most, all_most) / all;
    }
    __device__ __forceinline__ float sum_of_blocks(float sum) const
    {
        float all = 0;
        exchange({sum, 0});
        for (int block = 0; block < blocks; block++)
            all += memory->of_blocks[block].x;
        return all;
    }

  private:
    /* Gives every block the numbers of this one. */
    __device__ __forceinline__ void exchange(float2 numbers) const
    {
        ptx::cluster_wait(blocks); /* all blocks have begun, and so have their memory */
        if ((int)threadIdx.x < blocks)
            *ptx::map_to_rank(memory->of_blocks + ptx::cluster_rank(), threadIdx.x) = numbers;
        cluster_sync();
    }
};

template <typename T, bool BACKWARD>
__global__ void __launch_bounds__(MOST_THREADS)
    softmax_cluster(const T *src, const T *saved, T *dst, int length, int blocks, GPU_PARAMETER act_strides rows)
{
    __shared__ cluster_memory memory;
    const act_offsets at = find_offsets(rows, blockIdx.x / (unsigned)blocks);
    const cluster_team team(&memory, blocks);
    team_row<T, MANY<BACKWARD>, BACKWARD> row(team, src + at.src, saved + at.saved, dst + at.dst, length);
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
