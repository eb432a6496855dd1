/* relu with its mask of one bit an element, and its gradient from that. Memory bounds both, as it does without a mask: a thread takes
 * a vector. One of 16-bit elements has a byte of the mask; those of two neighbouring lanes share one of float32. Strided
 * tensors, and rows that are no whole bytes, go by bytes of the mask, each of which one thread has. */
#include "backends/gpu/act/methods.h"
#include "backends/gpu/act/strides.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/names.h"

namespace COPES_GPU::act
{
namespace mask /* elementwise.cu has functions of the same names */
{

enum { THREADS = 256, BITS = 8 };

/* V elements: relu, or the gradient where a bit is 1. Returns the bits. */
template <typename T, int V> DEVICE uint32_t mask_unit(bool backward, uint32_t bits, const T *src, T *dst)
{
    float x[V];
    uint32_t passing = 0;
    raw<T, V>::read(src).unpack(x);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const bool passes = backward ? (bits >> i & 1) != 0 : x[i] > 0;
        passing |= (uint32_t)passes << i;
        x[i] = !backward ? activate(COPES_ACT_RELU, x[i]) : passes ? x[i] : 0;
    }
    raw<T, V>::write(dst, x);
    return passing;
}

/* Every tensor is contiguous, and the elements are whole bytes of the mask. */
template <typename T, bool BACKWARD> __global__ void act_mask_line(const T *src, uint8_t *mask, T *dst, int64_t count)
{
    constexpr int V = vector_length<T>;
    const int64_t begin = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const int place = (int)(begin % BITS);
    const bool live = begin < count;
    uint32_t bits = BACKWARD && live ? (uint32_t)mask[begin / BITS] >> place : 0;
    if (live)
        bits = mask_unit<T, V>(BACKWARD, bits, src + begin, dst + begin) << place;
    if constexpr (!BACKWARD && V < BITS)
        bits |= shuffle_xor(bits, 1);
    if (!BACKWARD && live && place == 0)
        mask[begin / BITS] = (uint8_t)bits;
}

/* Bytes of the mask, and the elements of one along the mask's axis. */
struct mask_bytes {
    act_strides units; /* `sums` has the mask's strides */
    int64_t elements;  /* along the axis */
    int64_t bytes;     /* of them */
    int64_t below;     /* units from one byte of them to the next */
    int64_t src_step, dst_step;
};

/* Any strides; with V above 1, of elements that lie in whole vectors. Indices have 64 bits: what they cost is little beside 8 elements. */
template <typename T, int V>
__global__ void act_mask_strided(bool backward, const T *src, uint8_t *mask, T *dst, GPU_PARAMETER mask_bytes all)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t unit = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; unit < all.units.count; unit += step) {
        const act_offsets at = find_offsets(all.units, unit);
        const int64_t before = unit / all.below % all.bytes * BITS;
        const int count = V > 1 ? BITS : (int)min(all.elements - before, (int64_t)BITS);
        const uint32_t given = backward ? mask[at.sums] : 0;
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < BITS; i += V)
            if (i < count)
                bits |= mask_unit<T, V>(backward, given >> i, src + at.src + i * all.src_step,
                                        dst + at.dst + i * all.dst_step)
                        << i;
        if (!backward)
            mask[at.sums] = (uint8_t)bits;
    }
}

inline constexpr variant_word line_name = "act_mask_line", strided_name = "act_mask_strided";
inline constexpr variant_word unit_names[] = {"scalar", "vector"};

template <typename T, bool BACKWARD>
inline constexpr const char *name_of_line = variant_name<line_name, type_name<T>, direction_names[BACKWARD]>::text;
template <typename T, int V>
inline constexpr const char *name_of_strided = variant_name<strided_name, type_name<T>, unit_names[V > 1]>::text;

template <typename T> using line_kernel = void(const T *, uint8_t *, T *, int64_t);

template <typename T>
copes_status run_line(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    return launch_plan<line_kernel<T>>(queue, plan, static_cast<const T *>(p.src.data),
                                       static_cast<uint8_t *>(p.mask.data), static_cast<T *>(p.dst.data), p.shape[0]);
}

/* Can both tensors be read and written in whole vectors, of which the mask has whole bytes? */
template <typename T> bool in_bytes(const copes_act_problem &problem)
{
    return problem.mask_axis == problem.rank - 1 && problem.shape[problem.mask_axis] % BITS == 0 &&
           in_vectors<T>(problem.src, problem.shape, problem.rank) &&
           in_vectors<T>(problem.dst, problem.shape, problem.rank);
}

template <typename T> bool plan_line(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    if (!is_allowed(device, line_name, plan))
        return false;
    if (problem.rank > 1)
        return refuse(plan, line_name, "the tensors' strides do not merge into one dimension");
    if (!in_bytes<T>(problem))
        return refuse(plan, line_name,
                      "a tensor is not contiguous, or not aligned to 16 bytes, or no whole bytes of mask");
    if (problem.mask.stride[0] != 1 && problem.shape[0] > BITS)
        return refuse(plan, line_name, "the mask is not contiguous");
    const int64_t threads = problem.shape[0] / vector_length<T>;
    set_launch(plan, dim3((unsigned)((threads + THREADS - 1) / THREADS)), THREADS, 0);
    return problem.backward ? take<line_kernel<T>>(plan, name_of_line<T, true>, run_line<T>, act_mask_line<T, true>)
                            : take<line_kernel<T>>(plan, name_of_line<T, false>, run_line<T>, act_mask_line<T, false>);
}

template <typename T> using strided_kernel = void(bool, const T *, uint8_t *, T *, mask_bytes);

template <typename T>
copes_status run_strided(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *)
{
    const copes_act_problem &p = problem.act;
    return launch_plan<strided_kernel<T>>(queue, plan, p.backward != 0, static_cast<const T *>(p.src.data),
                                          static_cast<uint8_t *>(p.mask.data), static_cast<T *>(p.dst.data),
                                          tiling_of<mask_bytes>(plan));
}

template <typename T, int V> void take_strided(const copes_act_problem &problem, copes_plan *plan)
{
    const int axis = problem.mask_axis;
    mask_bytes all;
    all.elements = problem.shape[axis];
    all.bytes = all.elements / BITS + (all.elements % BITS != 0);
    all.below = 1;
    all.src_step = problem.src.stride[axis];
    all.dst_step = problem.dst.stride[axis];
    copes_act_problem whole = problem;
    whole.shape[axis] = all.bytes * BITS;
    whole.sums = problem.mask;
    for (int i = 0; i < problem.rank; i++) {
        all.units.add(whole, i, i == axis ? BITS : 1);
        all.below *= i > axis ? problem.shape[i] : 1;
    }
    set_launch(plan, blocks_of((all.units.count + THREADS - 1) / THREADS, THREADS), THREADS, 0);
    set_tiling(plan, all);
    take<strided_kernel<T>>(plan, name_of_strided<T, V>, run_strided<T>, act_mask_strided<T, V>);
}

} // namespace mask

template <typename T>
copes_status plan_mask(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan)
{
    if (mask::plan_line<T>(device, problem, plan))
        return COPES_OK;
    if (mask::in_bytes<T>(problem))
        mask::take_strided<T, vector_length<T>>(problem, plan);
    else
        mask::take_strided<T, 1>(problem, plan);
    return COPES_OK;
}

template <typename T> void list_mask(variant_list *list)
{
    list->add(mask::name_of_line<T, false>);
    list->add(mask::name_of_line<T, true>);
    list->add(mask::name_of_strided<T, 1>);
    list->add(mask::name_of_strided<T, vector_length<T>>);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_mask<T>(const gpu_device &, const copes_act_problem &, copes_plan *);                   \
    template void list_mask<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::act
