/* tpa_decode by multiply-adds, for any ranks, sizes, strides and alignment. Multiply-adds bind it, and the reads of
 * shared memory that feed them: a key takes D Rk + E Rv multiply-adds a head. A block has 16 heads of one query
 * token, and reads a part of the cache in tiles of 32 keys. A thread has 2 heads x 2 keys of the scores and 4 heads
 * x 4 features of the output, so that a read of 16 bytes feeds 4 to 8 multiply-adds. It takes rank after rank of a
 * tile, and forms neither keys nor values.
 * Parts leave partial outputs in the workspace. The same blocks merge them once all are done or, where blocks cannot
 * wait for each other, a second kernel does. */
#include "launch.h"

#include "backends/gpu/names.h"
#include "backends/gpu/tpa/merge.h"
#include "backends/gpu/tpa/methods.h"

namespace COPES_GPU::tpa
{

enum {
    THREADS = 128,
    HEADS = 16,  /* of a block */
    KEYS = 32,   /* of a tile */
    WIDTH = 128, /* features of D and of E in shared memory */
    PITCH = WIDTH + 4,
    LEAST_PART = 256,  /* keys; with shorter parts partial outputs would not be few beside the cache */
    MOST_PART = 16384, /* keys; longer sums would have larger rounding errors */
    BLOCKS_WANTED = 6, /* blocks for each multiprocessor; fitted, see below */
    AT_ONCE = 3,       /* of them; registers allow no more */
    ROW_THREADS = THREADS / HEADS,
};

/* BLOCKS_WANTED changes the cut and no code. To refit it, run COPES_GPU_VARIANT=tpa_fma copes bench tpa_decode
 * --device cuda --replay with other values. */

/* The cut of a problem. A task is (query token, heads, chunk of E, part of the cache), the part innermost. */
struct tpa_cut {
    int64_t groups, chunks, tasks;
    cache_cut cache;
};

static tpa_cut cut_of(const gpu_device &device, const copes_tpa_problem &problem, bool with_parts)
{
    tpa_cut cut = {};
    cut.groups = divide_up(problem.h, HEADS);
    cut.chunks = problem.e < 1 ? 1 : divide_up(problem.e, WIDTH);
    const int64_t rows = problem.b * problem.n * cut.groups * cut.chunks;
    const int64_t wanted =
        !with_parts ? 1 : divide_up((int64_t)device.multiprocessors * BLOCKS_WANTED, rows < 1 ? 1 : rows);
    int64_t part = divide_up(problem.m, wanted);
    part = part < LEAST_PART ? (int64_t)LEAST_PART : part < MOST_PART || !with_parts ? part : (int64_t)MOST_PART;
    cut.cache.part = divide_up(part, KEYS) * KEYS;
    cut.cache.parts = problem.m < 1 ? 1 : divide_up(problem.m, cut.cache.part);
    cut.tasks = copes_multiply(rows, cut.cache.parts);
    return cut;
}

struct tpa_call {
    copes_tpa_problem problem;
    tpa_cut cut;
    partial_outputs partials;
};

struct tpa_task {
    int64_t b, n, part, e; /* e: its first feature */
    int64_t h;             /* its first head */
    int heads, width;      /* its heads and features */
    int64_t begin, end, visible;
};

DEVICE tpa_task task_of(const tpa_call &argument, int64_t index)
{
    const tpa_call &call = first_argument(argument);
    const copes_tpa_problem &problem = call.problem;
    const tpa_cut &cut = call.cut;
    tpa_task task = {};
    task.part = index % cut.cache.parts;
    index /= cut.cache.parts;
    task.e = index % cut.chunks * WIDTH;
    index /= cut.chunks;
    task.h = index % cut.groups * HEADS;
    index /= cut.groups;
    task.n = index % problem.n;
    task.b = index / problem.n;
    task.heads = (int)(problem.h - task.h < HEADS ? problem.h - task.h : (int64_t)HEADS);
    task.width = (int)(problem.e - task.e < WIDTH ? problem.e - task.e : (int64_t)WIDTH);
    task.visible = key_range(problem).visible(task.b, task.n);
    task.begin = task.part * cut.cache.part;
    task.end = task.begin + cut.cache.part < task.visible ? task.begin + cut.cache.part : task.visible;
    return task;
}

/* The shared memory of a block. */
struct tpa_tile {
    float query[HEADS][PITCH];
    float features[KEYS][PITCH];
    float score[KEYS][HEADS];  /* then 2^(score - largest) */
    float weight[KEYS][HEADS]; /* that times av */
    float shrink[HEADS];
    row_state row[HEADS];
};

/* Forms `width` features of the query from d on. */
template <typename T>
DEVICE void form_query(const tpa_call &argument, const tpa_task &task, int64_t d, int width, tpa_tile &tile)
{
    const copes_tpa_problem &problem = first_argument(argument).problem;
    const int64_t *as = problem.aq.stride, *bs = problem.bq.stride;
    const T *aq = static_cast<const T *>(problem.aq.data) + task.b * as[0] + task.n * as[1] + task.h * as[2];
    const T *bq = static_cast<const T *>(problem.bq.data) + task.b * bs[0] + task.n * bs[1] + d * bs[3];
    const score_scale scale(problem);
    const int j = threadIdx.x; /* a thread has one feature */
#pragma unroll 1
    for (int h = 0; h < HEADS; h++) {
        float sum = 0;
#pragma unroll 2
        for (int64_t r = 0; r < problem.rq && h < task.heads && j < width; r++)
            sum = fmaf(read_scalar(aq + h * as[2] + r * as[3]), read_scalar(bq + r * bs[2] + j * bs[3]), sum);
        const float scaled = scale.apply(sum);
        tile.query[h][j] = problem.score_exponent == 0 ? scaled : scaled_by(scaled, problem.score_exponent);
    }
}

/* Loads `count` rows of `width` features, `row_stride` apart, and zeros around them. */
template <typename T, int V>
DEVICE void load_features(const T *from, int64_t row_stride, int64_t stride, int count, int width, tpa_tile &tile)
{
    constexpr int columns = WIDTH / V;
#pragma unroll 2
    for (int i = threadIdx.x; i < KEYS * columns; i += THREADS) {
        const int row = i / columns, column = i % columns * V;
        float x[V] = {};
        if (row < count && column < width)
            raw<T, V>::read(from + row * row_stride + column * stride).unpack(x);
#pragma unroll
        for (int k = 0; k < V; k++)
            tile.features[row][column + k] = x[k];
    }
}

/* Adds the products of 2 heads and 2 keys. The second head is half of the heads after the first, and so is the
 * second key. A product has four sums, which keeps rounding errors few. */
DEVICE void multiply_features(const tpa_tile &tile, int width, float (&dot)[2][2])
{
    const int head = threadIdx.x / (KEYS / 2), key = threadIdx.x % (KEYS / 2);
    float4 sum[4] = {};
#pragma unroll 2
    for (int d = 0; d < width; d += 4) {
        float4 q[2], k[2];
        for (int i = 0; i < 2; i++) {
            q[i] = *reinterpret_cast<const float4 *>(&tile.query[head + i * (HEADS / 2)][d]);
            k[i] = *reinterpret_cast<const float4 *>(&tile.features[key + i * (KEYS / 2)][d]);
        }
        for (int i = 0; i < 4; i++) {
            const float4 &a = q[i / 2], &b = k[i % 2];
            sum[i].x = fmaf(a.x, b.x, sum[i].x);
            sum[i].y = fmaf(a.y, b.y, sum[i].y);
            sum[i].z = fmaf(a.z, b.z, sum[i].z);
            sum[i].w = fmaf(a.w, b.w, sum[i].w);
        }
    }
    for (int i = 0; i < 4; i++)
        dot[i / 2][i % 2] += (sum[i].x + sum[i].y) + (sum[i].z + sum[i].w);
}

/* Multiplies rank r of `count` keys from `first` on by the query. */
template <typename T, int V>
DEVICE void multiply_rank(const tpa_call &argument, const tpa_task &task, int64_t first, int count, int64_t r,
                          tpa_tile &tile, float (&dot)[2][2])
{
    for (int64_t d = 0; d < first_argument(argument).problem.d; d += WIDTH) {
        const copes_tpa_problem &problem = first_argument(argument).problem;
        const int64_t *stride = problem.bk.stride;
        const T *bk = static_cast<const T *>(problem.bk.data) + task.b * stride[0] + first * stride[1] + r * stride[2];
        const int width = (int)(problem.d - d < WIDTH ? problem.d - d : (int64_t)WIDTH);
        __syncthreads(); /* nobody reads the tile any more */
        load_features<T, V>(bk + d * stride[3], stride[1], stride[3], count, width, tile);
        if (problem.d > WIDTH)
            form_query<T>(argument, task, d, width, tile);
        __syncthreads();
        multiply_features(tile, width, dot);
    }
}

/* Stores the scores of `count` keys from `first` on in the tile; -infinity where there is no key. */
template <typename T, int V>
DEVICE void score_keys(const tpa_call &argument, const tpa_task &task, int64_t first, int count, tpa_tile &tile)
{
    float score[2][2] = {};
    for (int64_t r = 0; r < first_argument(argument).problem.rk; r++) {
        float dot[2][2] = {};
        multiply_rank<T, V>(argument, task, first, count, r, tile, dot);
        const copes_view &view = first_argument(argument).problem.ak;
        const int64_t *stride = view.stride;
        const T *ak = static_cast<const T *>(view.data) + task.b * stride[0] + first * stride[1] + task.h * stride[2];
        for (int i = 0; i < 4; i++) {
            const int h = threadIdx.x / (KEYS / 2) + i / 2 * (HEADS / 2),
                      key = threadIdx.x % (KEYS / 2) + i % 2 * (KEYS / 2);
            const float a =
                read_scalar(ak + min(key, count - 1) * stride[1] + min(h, task.heads - 1) * stride[2] + r * stride[3]);
            score[i / 2][i % 2] = fmaf(a, dot[i / 2][i % 2], score[i / 2][i % 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        const int h = threadIdx.x / (KEYS / 2) + i / 2 * (HEADS / 2),
                  key = threadIdx.x % (KEYS / 2) + i % 2 * (KEYS / 2);
        tile.score[key][h] = key < count ? score[i / 2][i % 2] : -INFINITY;
    }
}

/* Turns scores into powers of 2, and adds them to the states of rows. ROW_THREADS threads have a head. */
DEVICE void exponentiate(tpa_tile &tile)
{
    const int h = threadIdx.x / ROW_THREADS, thread = threadIdx.x % ROW_THREADS;
    const row_state before = tile.row[h];
    float most = before.most, sum = 0;
    for (int key = thread; key < KEYS; key += ROW_THREADS)
        most = fmaxf(most, tile.score[key][h]);
    for (int mask = ROW_THREADS / 2; mask > 0; mask /= 2)
        most = fmaxf(most, shuffle_xor(most, mask));
    for (int key = thread; key < KEYS; key += ROW_THREADS) {
        const float e = exp2_term(tile.score[key][h] - shift_of(most));
        tile.score[key][h] = e;
        sum += e;
    }
    for (int mask = ROW_THREADS / 2; mask > 0; mask /= 2)
        sum += shuffle_xor(sum, mask);
    synchronize_warp(); /* all lanes have read the row's state */
    if (thread == 0) {
        const float shrink = exp2_term(before.most - shift_of(most));
        tile.shrink[h] = shrink;
        tile.row[h] = {most, fmaf(before.sum, shrink, sum)};
    }
}

/* The outputs of a thread: heads from 4 (thread / 32) on, and features from 4 (thread % 32) on. */
struct tpa_outputs {
    float o[4][4];
    float carry[4][4]; /* rounding errors of the sums over tiles (Kahan): a cache may have thousands of tiles */
};

DEVICE void multiply_weights(const tpa_tile &tile, int count, float (&sum)[4][4])
{
    const int head = threadIdx.x / (WIDTH / 4) * 4, feature = threadIdx.x % (WIDTH / 4) * 4;
#pragma unroll 2
    for (int key = 0; key < count; key++) {
        const float4 w = *reinterpret_cast<const float4 *>(&tile.weight[key][head]);
        const float4 v = *reinterpret_cast<const float4 *>(&tile.features[key][feature]);
        const float weight[4] = {w.x, w.y, w.z, w.w};
        for (int i = 0; i < 4; i++) {
            sum[i][0] = fmaf(weight[i], v.x, sum[i][0]);
            sum[i][1] = fmaf(weight[i], v.y, sum[i][1]);
            sum[i][2] = fmaf(weight[i], v.z, sum[i][2]);
            sum[i][3] = fmaf(weight[i], v.w, sum[i][3]);
        }
    }
}

/* Adds a tile's values. Values of one rank have a sum of their own first, which keeps rounding errors few. */
template <typename T, int V>
DEVICE void add_values(const tpa_call &argument, const tpa_task &task, int64_t first, int count, tpa_tile &tile,
                       tpa_outputs &out)
{
    for (int64_t r = 0; r < first_argument(argument).problem.rv; r++) {
        const copes_tpa_problem &problem = first_argument(argument).problem;
        const int64_t *as = problem.av.stride, *bs = problem.bv.stride;
        const T *av = static_cast<const T *>(problem.av.data) + task.b * as[0] + first * as[1] + task.h * as[2];
        const T *bv = static_cast<const T *>(problem.bv.data) + task.b * bs[0] + first * bs[1] + task.e * bs[3];
        __syncthreads();
        load_features<T, V>(bv + r * bs[2], bs[1], bs[3], count, task.width, tile);
#pragma unroll 1
        for (int key = threadIdx.x / HEADS; key < KEYS; key += THREADS / HEADS) {
            const int h = threadIdx.x % HEADS;
            const bool used = h < task.heads && key < count;
            const float weight = tile.score[key][h] * problem.weight_scale;
            tile.weight[key][h] = used ? weight * read_scalar(av + key * as[1] + h * as[2] + r * as[3]) : 0;
        }
        __syncthreads();
        float sum[4][4] = {};
        multiply_weights(tile, count, sum);
        for (int i = 0; i < 16; i++) {
            const float shrink = r == 0 ? tile.shrink[threadIdx.x / (WIDTH / 4) * 4 + i / 4] : 1;
            float &o = out.o[i / 4][i % 4], &carry = out.carry[i / 4][i % 4];
            const float before = o * shrink, term = fmaf(carry, shrink, sum[i / 4][i % 4]);
            o = before + term;
            const float rest = term - (o - before);
            carry = rest == rest ? rest : 0; /* an infinity has no rounding error */
        }
    }
}

template <typename T>
DEVICE void write_outputs(const tpa_call &argument, const tpa_task &task, const tpa_tile &tile, const tpa_outputs &out)
{
    const tpa_call &call = first_argument(argument);
    const copes_tpa_problem &problem = call.problem;
    const int feature = threadIdx.x % (WIDTH / 4) * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int h = threadIdx.x / (WIDTH / 4) * 4 + i;
        if (h >= task.heads)
            break;
        const row_state row = tile.row[h];
        const bool first = task.e == 0 && feature == 0;
        if (call.partials.sums != nullptr) {
            const int64_t index = (task.b * problem.n + task.n) * problem.h + task.h + h;
            if (first)
                *call.partials.state_at(problem, index, task.part) = row;
            if (feature < task.width)
                *reinterpret_cast<float4 *>(call.partials.sums_at(problem, index, task.part) + task.e + feature) =
                    make_float4(out.o[i][0], out.o[i][1], out.o[i][2], out.o[i][3]);
            continue;
        }
        if (first)
            write_lse(problem, task.b, task.n, task.h + h, row);
        const output_scale scale(problem, row.sum);
        T *o = output_at<T>(problem, task.b, task.n, task.h + h) + task.e * problem.o.stride[3];
#pragma unroll
        for (int k = 0; k < 4 && feature + k < task.width; k++)
            write_scalar(o + (feature + k) * problem.o.stride[3], task.visible > 0 ? scale.apply(out.o[i][k]) : 0);
    }
}

template <typename T, int V> __global__ void LAUNCH_BOUNDS(THREADS, AT_ONCE) tpa_fma(GPU_PARAMETER tpa_call argument)
{
    __shared__ tpa_tile tile;
    for (int64_t index = blockIdx.x; index < first_argument(argument).cut.tasks; index += gridDim.x) {
        const tpa_task task = task_of(argument, index);
        const int64_t d = first_argument(argument).problem.d;
        __syncthreads();
        if (threadIdx.x % ROW_THREADS == 0)
            tile.row[threadIdx.x / ROW_THREADS] = {-INFINITY, 0};
        if (d <= WIDTH)
            form_query<T>(argument, task, 0, (int)d, tile);
        tpa_outputs out = {};
        for (int64_t key = task.begin; key < task.end; key += KEYS) {
            const int count = (int)(task.end - key < KEYS ? task.end - key : (int64_t)KEYS);
            score_keys<T, V>(argument, task, key, count, tile);
            __syncthreads();
            exponentiate(tile);
            add_values<T, V>(argument, task, key, count, tile, out);
        }
        __syncthreads();
        write_outputs<T>(argument, task, tile, out);
    }
    const tpa_call &call = first_argument(argument);
    merge_left<T>(call.problem, call.partials, false, THREADS);
}

/* The number of blocks that a device runs at a time for certain. */
static int64_t blocks_at_once(const gpu_device &device)
{
    enum { RESERVED = 1024 }; /* bytes of shared memory that the system takes for a block */
    return (int64_t)lesser((int)AT_ONCE, device.shared_memory / (int)(sizeof(tpa_tile) + RESERVED)) *
           device.multiprocessors;
}

/* Can features be read in whole, aligned vectors? */
template <typename T> static bool features_in_vectors(const copes_tpa_problem &problem)
{
    const int64_t keys[4] = {problem.b, problem.m, problem.rk, problem.d};
    const int64_t values[4] = {problem.b, problem.m, problem.rv, problem.e};
    return problem.d % vector_length<T> == 0 && problem.e % vector_length<T> == 0 &&
           in_vectors<T>(problem.bk, keys, 4) && in_vectors<T>(problem.bv, values, 4);
}

inline constexpr variant_word fma_name = "tpa_fma", access_names[] = {"scalar", "vector"};

template <typename T, int V, bool CUT>
inline constexpr const char *fma_variant =
    variant_name<fma_name, type_name<T>, access_names[V > 1], cut_names[CUT]>::text;

typedef void fma_kernel(tpa_call);

template <typename T>
static copes_status run_fma(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan,
                            void *workspace)
{
    const tpa_cut &cut = tiling_of<tpa_cut>(plan);
    const partial_outputs partials(plan.cooperative, problem.tpa, cut.cache, workspace);
    COPES_TRY(launch_ex(queue, {.cooperative = plan.cooperative}, planned<fma_kernel>(plan), grid_of(plan),
                        block_of(plan), 0, tpa_call{problem.tpa, cut, partials}));
    return merge_partials<T>(queue, problem.tpa, partials, false);
}

/* One kernel has two names. They tell whether its parts are merged, on AMD's GPUs by a launch of tpa_merge. */
template <typename T, int V> static void take_access(bool in_parts, copes_plan *plan)
{
    take<fma_kernel>(plan, in_parts ? fma_variant<T, V, true> : fma_variant<T, V, false>, run_fma<T>, tpa_fma<T, V>);
}

template <typename T>
void plan_fma(const gpu_device &device, const copes_tpa_problem &problem, bool in_parts, copes_plan *plan)
{
    const tpa_cut cut = cut_of(device, problem, in_parts && can_merge(problem));
    plan->cooperative = device.cooperative && cut.cache.parts > 1;
    const int64_t blocks = plan->cooperative ? lesser(cut.tasks, blocks_at_once(device)) : cut.tasks;
    set_launch(plan, blocks_of(blocks, THREADS), THREADS, 0);
    set_tiling(plan, cut);
    if (in_parts)
        plan->workspace = partials_bytes(problem, cut.cache);
    if (features_in_vectors<T>(problem))
        take_access<T, vector_length<T>>(cut.cache.parts > 1, plan);
    else
        take_access<T, 1>(cut.cache.parts > 1, plan);
}

template <typename T> void list_fma(variant_list *list)
{
    list->add(fma_variant<T, 1, false>);
    list->add(fma_variant<T, 1, true>);
    list->add(fma_variant<T, vector_length<T>, false>);
    list->add(fma_variant<T, vector_length<T>, true>);
}

#define INSTANTIATE(T)                                                                                                 \
    template void plan_fma<T>(const gpu_device &, const copes_tpa_problem &, bool, copes_plan *);                      \
    template void list_fma<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::tpa
