/* The gradients of x and of theta together, so that both tensors are read once. Blocks share angles as in batch.h, and each
 * goes over several groups of rows. What a block's rows give to the gradient by each angle is kept in registers, or, where each
 * dimension has a theta, in shared memory, and left in the workspace at the end. A second kernel adds up the blocks' sums. All orders are fixed, so that the bits are
 * the same each time. */
#include "backends/gpu/lrpe/anywhere.h"
#include "backends/gpu/lrpe/batch.h"
#include "backends/gpu/lrpe/theta.h"

namespace COPES_GPU::lrpe
{

enum { GRADIENT_SHARES = 2 };                                 /* tokens of a thread */
enum { GRADIENT_THREADS = 128, MOST_GRADIENT_THREADS = 256 }; /* of a block: wanted, and where a row has more */
enum { BLOCKS_ON_EACH = 8 };                                  /* of a multiprocessor */

/* Threads of a multiprocessor: with more of them, registers spill, or float32 is slower. */
template <typename T, activation A>
inline constexpr int THREADS_ON_EACH = sizeof(T) == 2 && A == activation::none ? 640 : 512;

/* How blocks share the rows that count for one row of theta: block i has groups i, i + slots, .. of them. */
struct gradient_arguments {
    batch_arguments<anywhere_plan> batch;
    divider rows;  /* of theta */
    divider tiles; /* of a head's tokens */
    uint32_t groups, slots;
    int rows_here;   /* of a block's threads */
    uint32_t kept;   /* where a block's kept_sums begin in its shared memory */
    float *partials; /* the blocks' sums */
};

/* Bytes of a block's rotations and positions in shared memory and, at the end, of its threads' sums in their place. */
static int64_t shared_bytes(const anywhere_plan &plan, int threads, int v)
{
    const int64_t bytes = greater<int64_t>((int64_t)plan.bytes(), (int64_t)threads * v * (int64_t)sizeof(float));
    return divide_up(bytes, 16) * 16;
}

/* The sums of a thread's unit, for each of its angles; MIXED: in each dimension. */
template <encoding E, int V, bool MIXED> struct unit_sums {
    std::conditional_t<MIXED, kept_sums, held_sums<V>> own;
    uint32_t dimensions; /* two bits for each angle: the dimension that turns it */

    __device__ __forceinline__ unit_sums(const anywhere_plan &plan, char *memory, int unit)
        : own(memory, (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x), plan.grid_rank * V),
          dimensions(0)
    {
#pragma unroll 1
        for (int j = 0; j < (MIXED ? plan.grid_rank : 1); j++)
            own.template clear<V>(j * V);
        for (int i = 0; i < V && !MIXED; i++)
            dimensions |= (uint32_t)plan.first_dimension((int)angle_of<E, V>(plan.k, unit, i)) << 2 * i;
    }
    /* Adds the derivatives of a thread's tokens, each times its position in the dimension; in all dimensions. */
    template <int SHARES>
    __device__ __forceinline__ void add(const block_position *const (&positions)[SHARES], int grid_rank,
                                        const float (&derivative)[SHARES][V])
    {
        const auto add_all = [&](int first, const auto &dimension_of_angle) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                float term = 0; /* of few tokens, so that it needs no long_sum */
#pragma unroll
                for (int share = 0; share < SHARES; share++)
                    term = fmaf(positions[share][dimension_of_angle(i)].value, derivative[share][i], term);
                own.add(first + i, term);
            }
        };
        if constexpr (MIXED) {
#pragma unroll 1
            for (int j = 0; j < grid_rank; j++)
                add_all(j * V, [&](int) { return j; });
        } else if (grid_rank == 1) {
            add_all(0, [](int) { return 0; });
        } else {
            add_all(0, [&](int i) { return dimensions >> 2 * i & 3; });
        }
    }
};

/* Adds up the sums of a block's threads, which have `rows` rows, and writes a number for each angle; MIXED: in each dimension. */
template <encoding E, int V, bool MIXED>
DEVICE void write_sums(const unit_sums<E, V, MIXED> &sums, const anywhere_plan &plan, int rows, const row_shape &shape,
                       float *memory, float *to)
{
    const int row = (int)(threadIdx.z * blockDim.y + threadIdx.y), thread = row * shape.lanes + (int)threadIdx.x;
    const int threads = rows * shape.lanes, angles = shape.units * V;
#pragma unroll 1
    for (int j = 0; j < (MIXED ? plan.grid_rank : 1); j++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < V; i++)
            if ((int)threadIdx.x < shape.units)
                memory[row * angles + angle_of<E, V>(plan.k, threadIdx.x, i)] = sums.own.sum_of(MIXED ? j * V + i : i);
        __syncthreads();
        for (int k = thread; k < plan.k; k += threads) {
            long_sum total;
#pragma unroll 8 /* so that numbers are read before the first is added */
            for (int i = 0; i < rows; i++)
                total.add(memory[i * angles + k]);
            to[j * plan.k + k] = plan.theta_sign * total.sum;
        }
    }
}

/* The rows of a thread in a group: their place, with an entry that may be past the last one, and the number of the
 * block's last token. */
struct group_place {
    block_place place;
    int left;

    __device__ __forceinline__ group_place(const gradient_arguments &all, uint32_t row, uint32_t group)
    {
        if (all.rows.divisor == 1) {
            place = find_block(all.batch.order, group);
        } else {
            uint32_t tile;
            const uint32_t of_entries = divide(group, all.tiles, &tile);
            place = {(int)row, (int)tile, (int)of_entries};
        }
        place.token *= all.batch.source.tokens;
        place.entry = (int)((uint32_t)place.entry * all.batch.next_group + threadIdx.z * all.batch.next_entry);
        left = min(all.batch.source.tokens, all.batch.shape.n - place.token) - 1;
    }
    __device__ __forceinline__ bool exists(const row_shape &shape) const
    {
        return (uint32_t)place.entry < (uint32_t)shape.b;
    }
    /* The thread's token `share`, which may be past the last one. */
    __device__ __forceinline__ int token_of(int share) const
    {
        return (int)threadIdx.y + share * (int)blockDim.y;
    }
    /* A place that can be read. */
    __device__ __forceinline__ block_place inside(const row_shape &shape) const
    {
        return {place.head, place.token, exists(shape) ? place.entry : 0};
    }
};

template <encoding E, int V> DEVICE unit_places find_unit_of(const batch_arguments<anywhere_plan> &all)
{
    return find_unit<E, V>(all.shape.d, all.source.k, all.source.begin(), all.shape.units, (int)threadIdx.x);
}

/* What a thread reads of a group's rows. */
template <typename T, encoding E, activation A> struct gradient_rows {
    static constexpr int V = vector_length<T>, SHARES = GRADIENT_SHARES;
    row_words<T, E, A, true, true> words[SHARES];

    __device__ __forceinline__ void read(const batch_arguments<anywhere_plan> &all, const group_place &group)
    {
        const unit_places at = find_unit_of<E, V>(all);
        const block_place place = group.inside(all.shape);
        const T *const src_row = first_row<const T>(all.src, place), *const x_row = first_row<const T>(all.x, place);
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            const int token = min(group.token_of(i), group.left);
            words[i].src.read(src_row, token * all.src.n, at.encoded);
            words[i].x.read(x_row, token * all.x.n, at.plain);
        }
    }
    /* Writes the gradients of x, and adds to those of theta. */
    template <bool MIXED>
    __device__ __forceinline__ void turn(const batch_arguments<anywhere_plan> &all, const group_place &group,
                                         const block_rotations<E, V> &made, unit_sums<E, V, MIXED> &sums) const
    {
        const unit_places at = find_unit_of<E, V>(all);
        const bool live = at.there && group.exists(all.shape);
        T *const dst_row = first_row<T>(all.dst, group.inside(all.shape));
        const block_position *own[SHARES];
        float derivative[SHARES][V];
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            const int token = min(group.token_of(i), group.left);
            const bool inside = live && group.token_of(i) <= group.left;
            rotation rotations[V];
            float g[2][V];
            made.read((unsigned)token, at.there ? threadIdx.x : 0, rotations);
            decode_row<T, E, A, true>(all.act, words[i], at, true, rotations, all.shape.lanes, g, derivative[i]);
            if (inside)
                write_row<E, true>(at, g, dst_row, token * all.dst.n);
            own[i] = all.source.positions_after(made.rotations) + token * all.source.grid_rank;
            if (!inside || !at.rotated || !all.source.contains(group.place.token + token))
#pragma unroll
                for (float &of_angle : derivative[i])
                    of_angle = 0;
        }
        sums.add(own, all.source.grid_rank, derivative);
    }
};

/* Parts of the argument are read again and again, as AMD's scalar registers do not hold all of it through the loop. */
template <typename T, encoding E, activation A, bool MIXED>
__global__ void LAUNCH_BOUNDS((THREADS_ON_EACH<T, A> / 2), 2) lrpe_gradients(GPU_PARAMETER gradient_arguments argument)
{
    constexpr int V = vector_length<T>;
    constexpr bool exactly = sizeof(T) == 4;
    begin_launch_after(); /* lrpe_theta_sums is launched meanwhile, and waits for this kernel's end */
    const gradient_arguments &all = first_argument(argument);
    const anywhere_plan &plan = all.batch.source;
    const block_rotations<E, V> made(read_again(plan), dynamic_shared());
    unit_sums<E, V, MIXED> sums(read_again(plan), dynamic_shared() + read_again(all).kept, (int)threadIdx.x);
    uint32_t row;
    const uint32_t slot = divide(blockIdx.x, all.rows, &row);
    const rotation_share share(read_again(plan));
    const first_angle ready = find_first_angle(read_again(plan), made, share, (int)row);
#pragma unroll 1
    for (uint32_t i = slot; i < read_again(all).groups; i += read_again(all).slots) {
        const batch_arguments<anywhere_plan> &batch = read_again(all.batch);
        const group_place group(read_again(all), row, i);
        gradient_rows<T, E, A> rows;
        rows.read(batch, group);
        const bool narrow = write_positions<true>(batch.source, group.inside(batch.shape), group.left,
                                                  batch.source.positions_after(made.rotations));
        if (!make_rotations_at<exactly>(batch.source, made, share, ready, narrow, group.place, group.left)) {
            make_any_rotations(batch.source, made, group.place, group.left);
            rows.read(batch, group);
        }
        rows.turn(read_again(batch), group, made, sums);
        __syncthreads();
    }
    const gradient_arguments &end = read_again(all);
    const int sets = MIXED ? end.batch.source.grid_rank : 1;
    write_sums(sums, end.batch.source, end.rows_here, end.batch.shape, reinterpret_cast<float *>(made.rotations),
               end.partials + (int64_t)blockIdx.x * sets * end.batch.source.k);
}

/* Columns and threads of a block of the second kernel: few columns, so that all that a thread adds up is on its way at once, and
 * few threads, for which there is room as soon as a block of the first one ends. */
inline constexpr int SUM_LANES = 4, SUM_THREADS = 256;

/* Adds up what lrpe_gradients' blocks have left for one row of theta. It is launched while those still run, and waits for them. */
__global__ void LAUNCH_BOUNDS(SUM_THREADS, 1)
    lrpe_theta_sums(GPU_PARAMETER theta_tiling<SUM_LANES> argument, const float *partials, uint32_t slots)
{
    constexpr uint32_t GROUPS = SUM_THREADS / SUM_LANES;
    __shared__ uint64_t memory[SUM_THREADS];
    const theta_tiling<SUM_LANES> &tiling = first_argument(argument);
    const copes_lrpe_problem &problem = tiling.problem;
    const theta_place place = tiling.place();
    const int lane = (int)threadIdx.x % SUM_LANES;
    const int64_t of_slot = (int64_t)tiling.rows * tiling.sets * problem.k;
    const float *from = partials + (place.row * tiling.sets + place.j) * problem.k;
    await_launch_before(memory + threadIdx.x, from);
    long_sum sum;
    for_each_angle(tiling, place, lane, [&](int64_t k, int) {
        sum.add(sum_of_slots(from + k, of_slot, threadIdx.x / SUM_LANES, GROUPS, slots).sum);
    });
    write_theta<SUM_LANES, SUM_THREADS>(tiling, place, lane, sum.sum);
}

inline constexpr variant_word gradients_name = "lrpe_gradients";
inline constexpr variant_word theta_names[] = {"one theta", "mixed"};

template <typename T, encoding E, activation A, bool MIXED>
inline constexpr const char *gradients_variant = variant_name<gradients_name, type_name<T>, encoding_names[(int)E],
                                                              activation_names[(int)A], theta_names[MIXED]>::text;

static copes_status add_up(const gpu_queue &queue, const copes_lrpe_problem &problem, const gradient_arguments &all)
{
    const theta_tiling<SUM_LANES> tiling(problem);
    return launch_overlapped(queue, lrpe_theta_sums, (unsigned)tiling.blocks(), SUM_THREADS, 0, tiling,
                             static_cast<const float *>(all.partials), all.slots);
}

typedef void gradients_kernel(gradient_arguments);

static copes_status run(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan, void *workspace)
{
    gradient_arguments all = tiling_of<gradient_arguments>(plan);
    all.partials = static_cast<float *>(workspace);
    COPES_TRY(launch_plan<gradients_kernel>(queue, plan, all));
    return add_up(queue, problem.lrpe, all);
}

/* The blocks of one row of theta: no more than run at a time, as others would wait for their end, or as there are groups of rows. */
static uint32_t count_slots(const gpu_device &device, const batch_cut &cut, double groups, int rows, int most)
{
    const int threads = (int)(cut.threads.x * cut.threads.y * cut.threads.z);
    const int on_each = lesser(greater(most / threads, 1), (int)BLOCKS_ON_EACH);
    return (uint32_t)lesser((double)greater(on_each * device.multiprocessors / rows, 1), groups);
}

/* Plans all but the kernel, for vectors of v elements. `most`: threads of a multiprocessor. */
static bool cut_gradients(const gpu_device &device, const copes_lrpe_problem &problem, const row_shape &shape,
                          bool batch_as_heads, int wanted, int most, int v, copes_plan *plan)
{
    const batch_cut cut(problem, shape, v,
                        {GRADIENT_SHARES, wanted, GRADIENT_THREADS, MOST_GRADIENT_THREADS, device.multiprocessors});
    gradient_arguments all = {};
    all.batch.shape = shape;
    const anywhere_plan source(problem, batch_as_heads, shape.units, v);
    if (const char *why = cut_batch(problem, cut, source, &all.batch))
        return refuse(plan, gradients_name, why);
    const int rows = problem.grad_theta.stride[0] == 0 ? 1 : (int)problem.h,
              sets = problem.mixed ? problem.grid_rank : 1;
    all.rows = divider(rows);
    all.tiles = divider(cut.tiles);
    all.groups = (uint32_t)(cut.blocks / rows);
    all.slots = count_slots(device, cut, cut.blocks / rows, rows, most);
    const int threads = (int)(cut.threads.x * cut.threads.y * cut.threads.z);
    all.rows_here = (int)(cut.threads.y * cut.threads.z);
    all.kept = (uint32_t)shared_bytes(all.batch.source, threads, v);
    const int64_t shared = all.kept + (problem.mixed ? kept_sums::bytes(threads, sets * v) : 0);
    const int64_t blocks = (int64_t)all.slots * rows;
    if (shared > MOST_BYTES)
        return refuse(plan, gradients_name, "the rotations and the sums of a block do not fit its shared memory");
    if (blocks > INT32_MAX)
        return refuse(plan, gradients_name, "there are more blocks than a launch takes");
    plan->workspace = blocks * sets * problem.k * (int64_t)sizeof(float);
    set_launch(plan, (unsigned)blocks, cut.threads, shared);
    set_tiling(plan, all);
    return true;
}

template <typename T, encoding E, activation A>
bool plan_gradients(const gpu_device &device, const copes_lrpe_problem &problem, bool batch_as_heads, copes_plan *plan)
{
    row_shape shape;
    copes_lrpe_problem strides = problem;
    for (copes_view *view : {&strides.src, &strides.x, &strides.dst})
        *view = aligned(*view);
    if (!is_allowed(device, gradients_name, plan))
        return false;
    if (const char *why = refuse_shape<T, E>(strides, A == activation::softmax, &shape))
        return refuse(plan, gradients_name, why);
    if (problem.begin % vector_length<T> != 0)
        return refuse(plan, gradients_name, "rotary_begin is not a whole number of vectors of 16 bytes");
    if (const char *why = theta_source::refuse(problem))
        return refuse(plan, gradients_name, why);
    const bool alone = !batch_as_heads && problem.positions.data != nullptr && problem.positions.stride[1] != 0;
    const int wanted = alone ? 1 : MANY_ENTRIES;
    if (!cut_gradients(device, problem, shape, batch_as_heads, wanted, THREADS_ON_EACH<T, A>, vector_length<T>, plan))
        return false;
    if (problem.mixed)
        take<gradients_kernel>(plan, gradients_variant<T, E, A, true>, run, lrpe_gradients<T, E, A, true>);
    else
        take<gradients_kernel>(plan, gradients_variant<T, E, A, false>, run, lrpe_gradients<T, E, A, false>);
    const bool fits = refuse_shape<T, E>(problem, A == activation::softmax, &shape) == nullptr;
    return fits || refuse_addresses(plan, gradients_name);
}

#define GRADIENTS_INSTANTIATE(T, E, A)                                                                                 \
    template bool plan_gradients<T, encoding::E, activation::A>(const gpu_device &, const copes_lrpe_problem &, bool,  \
                                                                copes_plan *);
#define GRADIENTS_ENCODINGS(T, A)                                                                                      \
    GRADIENTS_INSTANTIATE(T, half, A)                                                                                  \
    GRADIENTS_INSTANTIATE(T, interleaved, A)                                                                           \
    GRADIENTS_INSTANTIATE(T, cosine, A)
#define GRADIENTS_ACTIVATIONS(T)                                                                                       \
    GRADIENTS_ENCODINGS(T, none)                                                                                       \
    GRADIENTS_ENCODINGS(T, elementwise)                                                                                \
    GRADIENTS_ENCODINGS(T, softmax)
GRADIENTS_ACTIVATIONS(f32)
GRADIENTS_ACTIVATIONS(f16)
GRADIENTS_ACTIVATIONS(bf16)
#undef GRADIENTS_INSTANTIATE

void list_gradients(variant_list *list)
{
#define GRADIENTS_INSTANTIATE(T, E, A)                                                                                 \
    list->add(gradients_variant<T, encoding::E, activation::A, false>);                                                \
    list->add(gradients_variant<T, encoding::E, activation::A, true>);
    GRADIENTS_ACTIVATIONS(f32)
    GRADIENTS_ACTIVATIONS(f16)
    GRADIENTS_ACTIVATIONS(bf16)
}

} // namespace COPES_GPU::lrpe
