/* lrpe where all heads of a token share its angles, with positions of any kind: as models call it for their queries and
 * keys. Bound by memory. A thread has one unit of a token. It makes the unit's rotations once, in registers, and
 * applies them to the heads, with loads of several heads under way at a time. A block makes the steps of theta's angles
 * once, in shared memory. */
#include "backends/gpu/lrpe/any_row.h"

#include <algorithm>

namespace COPES_GPU::lrpe
{

enum { HEADS_THREADS = 128, HEADS_AHEAD = 4, MOST_STEP_BYTES = 24 << 10 };

/* Where the rows of a tensor are, in elements. */
struct head_rows {
    void *data;
    int64_t b, n, h;

    head_rows() = default;
    explicit head_rows(const copes_view &view)
        : data(view.data), b(view.stride[0]), n(view.stride[1]), h(view.stride[2])
    {
    }
};

struct heads_tiling {
    copes_lrpe_problem problem;
    head_rows src, dst;
    row_shape shape;
    divider tokens;  /* of a batch entry */
    int heads;       /* of a thread */
    uint32_t groups; /* of so many heads */
};

/* How a token is turned: not at all, by positions of 32 bits, or by others. */
enum class turning { none, narrow, wide };

/* Finds how a token is turned and, for turning::narrow, its positions in all dimensions. */
DEVICE turning find_token(const copes_lrpe_problem &problem, int64_t b, int64_t token,
                          int32_t (&position)[COPES_MAX_GRID])
{
    int32_t along[COPES_MAX_GRID] = {0, 0, 0, 0};
    if (problem.counted && !find_positions(problem, token, along))
        return turning::none;
    bool narrow = true;
#pragma unroll
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        position[j] = along[j];
        if (j >= problem.grid_rank || problem.positions.data == nullptr)
            continue;
        const token_position at = read_position(problem, b, token, j);
        const bool small = fabsf(at.real) < 0x1p30f && at.whole == (int32_t)at.whole;
        const int32_t real = small ? (int32_t)at.real : 0;
        const uint64_t from = (uint64_t)(problem.counted ? along[j] : problem.offset[j]);
        const int64_t whole = (int64_t)(from + (uint64_t)at.whole + (uint64_t)(int64_t)real);
        narrow = narrow && small && (float)real == at.real && whole == (int32_t)whole;
        position[j] = (int32_t)whole;
    }
    return narrow ? turning::narrow : turning::wide;
}

/* The rotation by angle k at positions of 32 bits. `steps`: K of them, or K for each dimension if `mixed`. */
DEVICE rotation find_narrow_rotation(const copes_lrpe_problem &problem, const angle_step *steps, int k,
                                     const int32_t (&position)[COPES_MAX_GRID])
{
    uint32_t phase = 0;
    float poison = 0;
    if (!problem.mixed) {
        const int j = COPES_GPU::dimension_of(problem, k);
        phase = copes_phase_top(steps[k].high, steps[k].low, position_in(position, max(j, 0)));
        poison = steps[k].poison;
    } else {
#pragma unroll
        for (int j = 0; j < COPES_MAX_GRID; j++) {
            if (j >= problem.grid_rank)
                continue;
            const angle_step step = steps[j * (int)problem.k + k];
            phase += copes_phase_top(step.high, step.low, position[j]);
            poison += step.poison;
        }
    }
    const rotation turned = rotation_of<true>(ZERO_PHASE + phase, poison);
    return {problem.amplitude * turned.cosine, problem.amplitude * turned.sine};
}

/* Fills the block's steps, and waits for all threads. */
DEVICE void fill_steps(const copes_lrpe_problem &problem, angle_step *steps)
{
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    const int angles = (int)problem.k, count = angles * (problem.mixed ? problem.grid_rank : 1);
    for (int i = thread; i < count; i += threads)
        steps[i] =
            step_of(problem, 0, i % angles, problem.mixed ? i / angles : COPES_GPU::dimension_of(problem, i % angles));
    __syncthreads();
}

template <int V>
DEVICE void find_rotations(const copes_lrpe_problem &problem, const angle_step *steps, int64_t b, int64_t token,
                           int unit, rotation (&rotations)[V])
{
    int32_t position[COPES_MAX_GRID];
    const turning how = find_token(problem, b, token, position);
#pragma unroll
    for (int i = 0; i < V; i++) {
        rotations[i] = {problem.amplitude, 0};
        if (how == turning::narrow)
            rotations[i] = find_narrow_rotation(problem, steps, unit * V + i, position);
    }
    if (how == turning::wide)
#pragma unroll /* an index that is known only at run time would put the rotations into memory */
        for (int i = 0; i < V; i++)
            rotations[i] = find_any_rotation(problem, b, token, 0, unit * V + i);
}

template <typename T, encoding E, bool BACKWARD>
__global__ void LAUNCH_BOUNDS(HEADS_THREADS, 4) lrpe_heads(GPU_PARAMETER heads_tiling argument)
{
    constexpr int V = vector_length<T>;
    const heads_tiling &tiling = first_argument(argument);
    const copes_lrpe_problem &problem = tiling.problem;
    angle_step *const steps = reinterpret_cast<angle_step *>(dynamic_shared());
    fill_steps(problem, steps);
    const uint32_t tile = blockIdx.x / tiling.groups, group = blockIdx.x - tile * tiling.groups;
    const uint32_t wanted = tile * blockDim.y + threadIdx.y, all = (uint32_t)tiling.shape.b * (uint32_t)tiling.shape.n;
    uint32_t token;
    const uint32_t b = divide(min(wanted, all - 1), tiling.tokens, &token);
    const int first = (int)group * tiling.heads, end = min(first + tiling.heads, (int)problem.h);
    const unit_places at =
        find_unit<E, V>(tiling.shape.d, tiling.shape.k, (int)problem.begin, tiling.shape.units, (int)threadIdx.x);
    const bool live = at.there && wanted < all;
    const T *src =
        static_cast<const T *>(tiling.src.data) + b * tiling.src.b + token * tiling.src.n + first * tiling.src.h;
    T *dst = static_cast<T *>(tiling.dst.data) + b * tiling.dst.b + token * tiling.dst.n + first * tiling.dst.h;
    rotation rotations[V];
    find_rotations(problem, steps, b, token, at.rotated ? (int)threadIdx.x : 0, rotations);
    for (int h = first; h < end; h += HEADS_AHEAD) {
        row_words<T, E, activation::none, BACKWARD> words[HEADS_AHEAD];
#pragma unroll
        for (int i = 0; i < HEADS_AHEAD; i++)
            words[i].src.read(src + min(i, end - 1 - h) * tiling.src.h, 0, BACKWARD ? at.encoded : at.plain);
#pragma unroll
        for (int i = 0; i < HEADS_AHEAD; i++)
            transform_row(COPES_ACT_NONE, words[i], at, true, live && h + i < end, rotations, tiling.shape.lanes,
                          dst + i * tiling.dst.h, 0);
        src += HEADS_AHEAD * tiling.src.h;
        dst += HEADS_AHEAD * tiling.dst.h;
    }
}

inline constexpr variant_word heads_name = "lrpe_heads";

template <typename T, encoding E, bool BACKWARD>
inline constexpr const char *heads_variant =
    variant_name<heads_name, type_name<T>, encoding_names[(int)E], direction_names[BACKWARD]>::text;

template <typename T, encoding E, bool BACKWARD>
static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch(queue, lrpe_heads<T, E, BACKWARD>, grid_of(plan), block_of(plan), (size_t)plan.shared,
                  tiling_of<heads_tiling>(plan));
}

/* Heads of a thread: all, unless the device has room for more threads. */
static int choose_heads(const gpu_device &device, const copes_lrpe_problem &problem, int64_t threads)
{
    const int64_t wanted = 2 * 2048 * (int64_t)device.multiprocessors;
    int heads = (int)problem.h;
    while (heads > HEADS_AHEAD && threads * times((int)problem.h, heads) < wanted)
        heads = std::max((heads + 1) / 2, (int)HEADS_AHEAD);
    return heads;
}

/* Why a problem has no tiling; nullptr: it has one. */
static const char *refuse_heads(const copes_lrpe_problem &problem, int v, const row_shape &shape)
{
    const int64_t thetas = problem.mixed ? problem.grid_rank : 1;
    if (problem.theta.stride[0] != 0 && problem.h > 1)
        return "heads have thetas of their own";
    if (problem.begin % v != 0)
        return "rotary_begin is not a whole number of vectors of 16 bytes";
    if (thetas * problem.k * (int64_t)sizeof(angle_step) > MOST_STEP_BYTES)
        return "theta does not fit a block's shared memory";
    if ((double)problem.b * (double)problem.n * shape.lanes > INT32_MAX || shape.lanes > HEADS_THREADS)
        return "there are more tokens, or vectors of a row, than its blocks take";
    return nullptr;
}

template <typename T, encoding E>
bool plan_heads(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan)
{
    constexpr int V = vector_length<T>;
    heads_tiling tiling = {problem, head_rows(problem.src), head_rows(problem.dst), {}, {}, 0, 0};
    if (!is_allowed(device, heads_name, plan))
        return false;
    if (refuse_anywhere(problem) == nullptr)
        return refuse(plan, heads_name,
                      "it is for positions, thetas for each dimension, an amplitude, inverse or rotary_begin");
    if (problem.act != COPES_ACT_NONE)
        return refuse(plan, heads_name, "there is an activation");
    if (const char *why = refuse_shape<T, E>(problem, false, &tiling.shape))
        return refuse(plan, heads_name, why);
    if (const char *why = refuse_heads(problem, V, tiling.shape))
        return refuse(plan, heads_name, why);
    const int64_t tokens = problem.b * problem.n, lanes = tiling.shape.lanes, together = HEADS_THREADS / lanes;
    tiling.tokens = divider(problem.n);
    tiling.heads = choose_heads(device, problem, tokens * lanes);
    tiling.groups = (uint32_t)times((int)problem.h, tiling.heads);
    const int64_t blocks = (tokens + together - 1) / together * tiling.groups;
    if (blocks > INT32_MAX)
        return refuse(plan, heads_name, "there are more blocks than a launch takes");
    set_launch(plan, (unsigned)blocks, dim3((unsigned)lanes, (unsigned)together),
               (problem.mixed ? problem.grid_rank : 1) * problem.k * (int64_t)sizeof(angle_step));
    set_tiling(plan, tiling);
    return problem.backward ? take(plan, heads_variant<T, E, true>, run<T, E, true>)
                            : take(plan, heads_variant<T, E, false>, run<T, E, false>);
}

#define HEADS_INSTANTIATE(T, E)                                                                                        \
    template bool plan_heads<T, encoding::E>(const gpu_device &, const copes_lrpe_problem &, copes_plan *);
#define HEADS_ENCODINGS(T)                                                                                             \
    HEADS_INSTANTIATE(T, half)                                                                                         \
    HEADS_INSTANTIATE(T, interleaved)                                                                                  \
    HEADS_INSTANTIATE(T, cosine)
HEADS_ENCODINGS(f32)
HEADS_ENCODINGS(f16)
HEADS_ENCODINGS(bf16)
#undef HEADS_INSTANTIATE

void list_heads(variant_list *list)
{
#define HEADS_INSTANTIATE(T, E)                                                                                        \
    list->add(heads_variant<T, encoding::E, false>);                                                                   \
    list->add(heads_variant<T, encoding::E, true>);
    HEADS_ENCODINGS(f32)
    HEADS_ENCODINGS(f16)
    HEADS_ENCODINGS(bf16)
}

} // namespace COPES_GPU::lrpe
