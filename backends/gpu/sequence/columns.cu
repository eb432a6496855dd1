/* Softmax over the sequence, alone or before an encoding, on any GPU and of any length. A slab, all tokens of a few
 * neighbouring columns of a head, is shared out among the blocks of a cluster, or has one block where there are no
 * clusters. It is read twice, once for the statistics and once to write, so that no token is written before its column
 * has been read. Bound by memory and, for the second reading, by how much of the slabs under way the caches hold; a
 * vendor's own kernel that keeps a slab on chip comes first where it fits. */
#include "backends/gpu/names.h"
#include "backends/gpu/reduce.h"
#include "backends/gpu/sequence/methods.h"
#include "backends/gpu/sequence/tokens.h"

namespace COPES_GPU::sequence
{

/* What a term of a column may exceed 1 by, as a power of e: exponents round the more the larger they are. */
constexpr float SLACK = 4;

/* A sum of many terms, a group of them at a time: what a group's sum loses when it joins the others, the next group
 * begins with (Kahan). */
struct group_sum {
    float group = 0, all = 0;

    __device__ __forceinline__ void join()
    {
        const float next = all + group;
        group -= next - all;
        all = next;
    }
    __device__ __forceinline__ void scale(float factor)
    {
        group *= factor;
        all *= factor;
    }
};

/* A thread's column while it reads: terms relative to a reference, which is raised where a term would be too large. */
struct open_column {
    float reference;
    group_sum sum, dot;

    /* Makes x a term of 1 at most. */
    __device__ __forceinline__ void raise(float x)
    {
        const float higher = fmaxf(x, reference), shrink = softmax_term(reference, higher);
        reference = higher;
        sum.scale(shrink);
        dot.scale(shrink);
    }
};

/* Takes the tokens of a batch. */
template <role R, int BATCH, int COLUMNS, int V>
DEVICE void add_batch(open_column (&columns)[COLUMNS], const float (&x)[BATCH][2][V], const float (&g)[BATCH][2][V],
                      bool kept)
{
    bool beyond = false;
#pragma unroll
    for (int i = 0; i < BATCH * COLUMNS && R != role::given; i++)
        beyond |= x[i / COLUMNS][i % COLUMNS / V][i % V] - columns[i % COLUMNS].reference > SLACK;
    if (beyond && !kept) {
#pragma unroll
        for (int i = 0; i < BATCH * COLUMNS; i++)
            columns[i % COLUMNS].raise(x[i / COLUMNS][i % COLUMNS / V][i % V]);
    }
#pragma unroll
    for (int i = 0; i < BATCH * COLUMNS; i++) {
        open_column &c = columns[i % COLUMNS];
        const float value = x[i / COLUMNS][i % COLUMNS / V][i % V];
        const float e = R == role::given ? value : softmax_term(value, c.reference);
        c.sum.group += e;
        if (R != role::forward)
            c.dot.group = fmaf(e, g[i / COLUMNS][i % COLUMNS / V][i % V], c.dot.group);
    }
}

/* Takes a thread's tokens, as many at a time as are read at once, and closes each group of them. */
template <typename T, int V, encoding E, role R, typename Take, typename Close>
DEVICE void for_tokens(const slab<T, V, E, R> &s, Take take, Close close)
{
    token_walk<T, V, E, R> walk(s);
    while (walk.more()) {
        walk.open_group();
#pragma unroll 1
        for (int j = 0; j < GROUP && walk.more(); j += walk.BATCH) {
            float values[walk.BATCH][2][V], gradients[walk.BATCH][2][V];
            walk.take(j, values, gradients);
            take(walk, j, values, gradients);
        }
        close();
    }
}

template <typename T, int V, encoding E, role R, int COLUMNS>
DEVICE void read_columns(const slab<T, V, E, R> &s, column (&columns)[COLUMNS])
{
    open_column open[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        open[i].reference = s.kept && s.at.plain[i / V] >= 0 ? read_scalar(s.lse_of(i)) : -FLT_MAX;
    const auto add = [&](const auto &, int, const auto &values, const auto &gradients) {
        add_batch<R>(open, values, gradients, s.kept);
    };
    for_tokens(s, add, [&] {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            open[i].sum.join();
            open[i].dot.join();
        }
    });
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) { /* sums of a given softmax are relative to 1 */
        const float sum = open[i].sum.all, most = sum == 0 && !s.kept ? -INFINITY : open[i].reference;
        columns[i] = {R == role::given ? 0 : most, sum, open[i].dot.all};
    }
}

/* From a token, and the gradient of its softmax, to what is written. */
template <role R, int COLUMNS, int V>
DEVICE void finish_token(const finished_column (&columns)[COLUMNS], float (&values)[2][V],
                         const float (&gradients)[2][V])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        float &value = values[i / V][i % V];
        value = R == role::given ? value : columns[i].softmax(value);
        if (R != role::forward)
            value *= gradients[i / V][i % V] - columns[i].dot;
    }
}

template <typename T, int V, encoding E, role R, int COLUMNS>
DEVICE void write_columns(const slab<T, V, E, R> &s, const finished_column (&columns)[COLUMNS])
{
    constexpr bool BACKWARD = R != role::forward;
    strip<T, V, BACKWARD ? plain_vectors<E> : 2> to(s.problem.dst, s.place.b, s.place.h,
                                                    BACKWARD ? s.at.plain : s.at.encoded, s.place.first, s.place.apart);
    const auto finish = [&](const auto &walk, int j, auto &values, const auto &gradients) {
#pragma unroll
        for (int t = 0; t < walk.BATCH; t++, to.next()) {
            finish_token<R>(columns, values[t], gradients[t]);
            if (!BACKWARD && s.rotated) {
                rotation rotations[V];
                walk.rotations_of(j + t, t - walk.BATCH, rotations);
                encode<arithmetic_of<E, V>>(values[t], rotations, true);
            }
            if (t - walk.BATCH < walk.left)
                to.write(values[t]);
        }
    };
    for_tokens(s, finish, [] {});
}

/* Merges the columns of a block's rows into those of row 0. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_rows(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int LANES = lanes_of<T, V>;
    for (int rows = rows_of<T, V> / 2; rows > 0; rows /= 2) {
        if (place.row >= rows && place.row < 2 * rows)
            for (int i = 0; i < COLUMNS; i++)
                memory.half[place.row - rows][i * LANES + place.lane] = columns[i];
        __syncthreads();
        if (place.row < rows)
            for (int i = 0; i < COLUMNS; i++)
                columns[i] = merge(columns[i], memory.half[place.row][i * LANES + place.lane]);
        __syncthreads();
    }
}

/* Merges those of all blocks of the cluster, a column a thread; every thread gets those of its unit. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_ranks(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int LANES = lanes_of<T, V>;
    const int mine = (int)threadIdx.x;
    static_assert(COLUMNS * LANES <= THREADS, "a column a thread");
    if (place.row == 0)
        for (int i = 0; i < COLUMNS; i++)
            memory.half[0][i * LANES + place.lane] = columns[i];
    cluster_sync();
    if (place.ranks > 1) {
        column all = {-INFINITY, 0, 0};
        for (uint32_t rank = 0; rank < place.ranks && mine < COLUMNS * LANES; rank++)
            all = merge(all, *map_to_rank(&memory.half[0][mine], rank));
        cluster_sync(); /* every block has read every other's */
        if (mine < COLUMNS * LANES)
            memory.half[0][mine] = all;
        __syncthreads();
    }
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = memory.half[0][i * LANES + place.lane];
}

template <typename T, int V, encoding E, role R>
__global__ void LAUNCH_BOUNDS(THREADS, 2)
    sequence_columns(GPU_PARAMETER copes_lrpe_problem argument, int64_t units, uint32_t tiles, uint32_t ranks)
{
    const copes_lrpe_problem &problem = first_argument(argument);
    constexpr int COLUMNS = plain_vectors<E> * V;
    __shared__ slab_memory<T, V> memory;
    const slab_place place = find_place<T, V>(problem, tiles, ranks);
    find_steps<T, V>(memory, problem, place);
    const places_of<int64_t> at = find_places<E, V>(problem.d, problem.k, place.unit, place.unit < units);
    const slab<T, V, E, R> s(problem, memory, place, at);

    column columns[COLUMNS];
    finished_column finished[COLUMNS];
    read_columns(s, columns);
    merge_rows<T, V>(memory, place, columns);
    merge_ranks<T, V>(memory, place, columns);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        finished[i] = finish<R>(columns[i], s.kept);
        if (R == role::forward && problem.lse.data != nullptr && place.first == 0 && at.plain[i / V] >= 0)
            write_scalar(s.lse_of(i), columns[i].most + logf(columns[i].sum));
    }
    write_columns(s, finished);
}

/* As many as fill the device and have several tokens a thread. */
template <typename T, int V>
int blocks_of_slab(const gpu_device &device, const copes_lrpe_problem &problem, double slabs)
{
    const int rows = 4 * rows_of<T, V>, blocks = 2048 / THREADS;
    const double wanted = (double)blocks * device.multiprocessors, most = (double)problem.n / rows;
    int ranks = largest_cluster(device);
    while (ranks > 1 && (slabs * ranks / 2 >= wanted || ranks > most))
        ranks /= 2;
    return ranks;
}

inline constexpr variant_word columns_name = "sequence_columns";
inline constexpr variant_word unit_names[] = {"scalar", "vector"};
inline constexpr variant_word encoding_names[] = {"half", "interleaved", "cosine"};
inline constexpr variant_word role_names[] = {"forward", "backward", "given"};

template <typename T, int V, encoding E, role R>
inline constexpr const char *columns_variant =
    variant_name<columns_name, type_name<T>, unit_names[V > 1], encoding_names[(int)E], role_names[(int)R]>::text;

/* The kernel's arguments. */
struct columns_arguments {
    copes_lrpe_problem problem;
    int64_t units;
    uint32_t tiles, ranks;
};

template <typename T, int V, encoding E, role R>
static copes_status run_columns(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    const columns_arguments &all = tiling_of<columns_arguments>(plan);
    return launch_ex(queue, {.cluster = plan.cluster}, sequence_columns<T, V, E, R>, grid_of(plan), block_of(plan), 0,
                     all.problem, all.units, all.tiles, all.ranks);
}

template <typename T, int V, encoding E>
static copes_status take_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given,
                                 copes_plan *plan)
{
    const int64_t units = units_of<E>(problem.d, problem.k, (int64_t)V);
    const int64_t tiles = (units + lanes_of<T, V> - 1) / lanes_of<T, V>;
    const double slabs = (double)problem.b * (double)problem.h * (double)tiles;
    const int ranks = blocks_of_slab<T, V>(device, problem, slabs);
    if (slabs * ranks > INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %.3g slabs; a device takes 2^31 - 1", slabs);
    set_launch(plan, (unsigned)(slabs * ranks), THREADS, 0);
    plan->cluster = ranks;
    set_tiling(plan, columns_arguments{problem, units, (uint32_t)tiles, (uint32_t)ranks});
    if (!problem.backward)
        take(plan, columns_variant<T, V, E, role::forward>, run_columns<T, V, E, role::forward>);
    else if (!given)
        take(plan, columns_variant<T, V, E, role::backward>, run_columns<T, V, E, role::backward>);
    else if constexpr (E == encoding::half) /* act hands over softmax alone as rotate with pairing half */
        take(plan, columns_variant<T, V, E, role::given>, run_columns<T, V, E, role::given>);
    return COPES_OK;
}

template <typename T, encoding E>
static copes_status plan_encoding(const gpu_device &device, const copes_lrpe_problem &problem, bool given,
                                  copes_plan *plan)
{
    constexpr int V = unit_angles<T>;
    const int64_t d = problem.d, encoded = E == encoding::cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    const bool vectors = d % vector_length<T> == 0 && problem.k % V == 0 &&
                         in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) &&
                         in_vectors<T>(problem.x, plain, 4) &&
                         in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
    return vectors ? take_columns<T, V, E>(device, problem, given, plan)
                   : take_columns<T, 1, E>(device, problem, given, plan);
}

template <typename T>
copes_status plan_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (problem.variant == COPES_LRPE_COSINE)
        return plan_encoding<T, encoding::cosine>(device, problem, given, plan);
    return problem.pairing == COPES_LRPE_HALF ? plan_encoding<T, encoding::half>(device, problem, given, plan)
                                              : plan_encoding<T, encoding::interleaved>(device, problem, given, plan);
}

template <typename T, int V, encoding E> static void list_roles(variant_list *list)
{
    list->add(columns_variant<T, V, E, role::forward>);
    list->add(columns_variant<T, V, E, role::backward>);
    if constexpr (E == encoding::half)
        list->add(columns_variant<T, V, E, role::given>);
}

template <typename T, int V> static void list_encodings(variant_list *list)
{
    list_roles<T, V, encoding::half>(list);
    list_roles<T, V, encoding::interleaved>(list);
    list_roles<T, V, encoding::cosine>(list);
}

template <typename T> void list_columns(variant_list *list)
{
    list_encodings<T, 1>(list);
    list_encodings<T, unit_angles<T>>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_columns<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);         \
    template void list_columns<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::sequence
