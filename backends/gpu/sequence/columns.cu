/* Softmax over the sequence, alone or before an encoding, on any GPU and of any length. A slab is all tokens of a
 * tile, a few neighbouring columns of a head. The blocks of a cluster share a slab; without clusters one block has
 * it. The block reads a slab twice, once for the sums and once to write it, so that no token is written before its
 * column has been read. Memory bounds the first reading. The second reading is bounded by the share of the slabs
 * that the caches still hold. Where a vendor's own kernel can keep a slab on chip, that kernel comes first. A sequence in
 * shares has one of the passes in a call, and no kernel but this one. */
#include "backends/gpu/names.h"
#include "backends/gpu/reduce.h"
#include "backends/gpu/sequence/methods.h"
#include "backends/gpu/sequence/tokens.h"

#include <type_traits>

namespace COPES_GPU::sequence
{

/* A term of a column may be e^SLACK. Larger exponents round more. */
constexpr float SLACK = 4;

/* A sum of many terms, a chunk of them at a time (Kahan): the next chunk begins with the rounding error of the last
 * join. */
struct chunk_sum {
    float chunk = 0, all = 0;

    __device__ __forceinline__ void join()
    {
        const float next = all + chunk;
        chunk -= next - all;
        all = next;
    }
    __device__ __forceinline__ void scale(float factor)
    {
        chunk *= factor;
        all *= factor;
    }
};

/* A thread's column while it reads. Terms are relative to a reference. A term that would be too large raises it. */
struct open_column {
    float reference;
    chunk_sum sum, dot;

    /* Raises the reference to x, if x is larger. */
    __device__ __forceinline__ void raise(float x)
    {
        const float higher = fmaxf(x, reference), shrink = softmax_term(reference, higher);
        reference = higher;
        sum.scale(shrink);
        dot.scale(shrink);
    }
};

/* Adds the tokens of a batch. */
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
        c.sum.chunk += e;
        if (R != role::forward)
            c.dot.chunk = fmaf(e, g[i / COLUMNS][i % COLUMNS / V][i % V], c.dot.chunk);
    }
}

/* Goes through a thread's tokens: calls `take` for each batch, and `close` at the end of each chunk. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, typename Take, typename Close>
DEVICE void for_tokens(const slab_thread<T, V, E, R, ANYWHERE> &s, Take take, Close close)
{
    token_walk<T, V, E, R, ANYWHERE> walk(s);
    while (walk.more()) {
        walk.open_chunk();
#pragma unroll 1
        for (int j = 0; j < CHUNK && walk.more(); j += walk.BATCH) {
            float values[walk.BATCH][2][V], gradients[walk.BATCH][2][V];
            walk.take(j, values, gradients);
            take(walk, j, values, gradients);
        }
        close();
    }
}

/* `apart`: of the first pass alone. Backward its lse is given, but no reference that columns are merged by, as it may be infinite. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void read_columns(bool apart, const slab_thread<T, V, E, R, ANYWHERE> &s, column (&columns)[COLUMNS])
{
    open_column open[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
        open[i].reference = s.kept && s.at.plain[i / V] >= 0 ? read_scalar(s.lse_of(i)) : -FLT_MAX;
    const auto add = [&](const auto &, int, const auto &values, const auto &gradients) {
        add_batch<R>(open, values, gradients, (apart && R == role::backward) || s.kept);
    };
    for_tokens(s, add, [&] {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            open[i].sum.join();
            open[i].dot.join();
        }
    });
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) { /* a given softmax has no reference */
        const float sum = open[i].sum.all, most = sum == 0 && !s.kept ? -INFINITY : open[i].reference;
        columns[i] = {R == role::given || (apart && s.kept) ? 0 : most, sum, open[i].dot.all};
    }
}

/* From a token, backward with the gradient of its softmax, to the result. */
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

template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void write_columns(const slab_thread<T, V, E, R, ANYWHERE> &s, const finished_column (&columns)[COLUMNS])
{
    constexpr bool BACKWARD = R != role::forward;
    strip<T, V, BACKWARD ? plain_vectors<E> : 2> result(s.problem.dst, s.place.b, s.place.h,
                                                        BACKWARD ? s.at.plain : s.at.encoded, s.place.first,
                                                        s.place.token_stride);
    const auto finish = [&](const auto &walk, int j, auto &values, const auto &gradients) {
#pragma unroll
        for (int t = 0; t < walk.BATCH; t++, result.next()) {
            finish_token<R>(columns, values[t], gradients[t]);
            if (!BACKWARD && s.rotated) {
                rotation rotations[V];
                walk.rotations_of(j + t, t - walk.BATCH, rotations);
                encode<arithmetic_of<E, V>>(values[t], rotations, true);
            }
            if (t - walk.BATCH < walk.left)
                result.write(values[t]);
        }
    };
    for_tokens(s, finish, [] {});
}

/* Merges the columns of a block's rows into row 0: each round, the upper half of the rows hands its columns to the
 * lower. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_rows(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int UNITS = tile_units_of<T, V>;
    for (int rows = rows_of<T, V> / 2; rows > 0; rows /= 2) {
        if (place.row >= rows && place.row < 2 * rows)
            for (int i = 0; i < COLUMNS; i++)
                memory.half[place.row - rows][i * UNITS + place.tile_unit] = columns[i];
        __syncthreads();
        if (place.row < rows)
            for (int i = 0; i < COLUMNS; i++)
                columns[i] = merge(columns[i], memory.half[place.row][i * UNITS + place.tile_unit]);
        __syncthreads();
    }
}

/* Merges the columns of all blocks of the cluster. Thread i merges column i; then every thread reads the columns of
 * its unit. The first cluster_sync follows the writing of each block's columns. The second keeps a block from
 * overwriting its columns, or ending, before every other has read them. All threads pass both. */
template <typename T, int V, int COLUMNS>
DEVICE void merge_blocks(slab_memory<T, V> &memory, const slab_place &place, column (&columns)[COLUMNS])
{
    constexpr int UNITS = tile_units_of<T, V>;
    const int mine = (int)threadIdx.x;
    static_assert(COLUMNS * UNITS <= THREADS, "a column a thread");
    if (place.row == 0)
        for (int i = 0; i < COLUMNS; i++)
            memory.half[0][i * UNITS + place.tile_unit] = columns[i];
    cluster_sync();
    if (place.blocks > 1) {
        column all = {-INFINITY, 0, 0};
        for (uint32_t rank = 0; rank < place.blocks && mine < COLUMNS * UNITS; rank++)
            all = merge(all, *map_to_rank(&memory.half[0][mine], rank));
        cluster_sync();
        if (mine < COLUMNS * UNITS)
            memory.half[0][mine] = all;
        __syncthreads();
    }
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = memory.half[0][i * UNITS + place.tile_unit];
}

/* Of the first pass alone: what the caller gets of a column. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void give_sums(const slab_thread<T, V, E, R, ANYWHERE> &s, const column (&columns)[COLUMNS],
                      const finished_column (&finished)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        if (s.place.first != 0 || s.at.plain[i / V] < 0)
            continue;
        if (R == role::forward)
            write_scalar(s.lse_of(i), columns[i].most + logf(columns[i].sum));
        else
            write_scalar(s.delta_of(i), finished[i].dot);
    }
}

/* Of the second pass alone: what the caller gives. A column that does not exist has nothing. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, int COLUMNS>
DEVICE void take_sums(const slab_thread<T, V, E, R, ANYWHERE> &s, finished_column (&finished)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        const bool exists = s.at.plain[i / V] >= 0;
        finished[i] = {exists && R != role::given ? read_scalar(s.lse_of(i)) : 0, 1,
                       exists && R != role::forward ? read_scalar(s.delta_of(i)) : 0};
    }
}

/* ANYWHERE needs more registers, and is rare. */
template <typename T, int V, encoding E, role R, bool ANYWHERE, copes_passes P>
__global__ void LAUNCH_BOUNDS(THREADS, ANYWHERE ? 1 : 2)
    sequence_columns(GPU_PARAMETER copes_lrpe_problem argument, int64_t units, uint32_t tiles, uint32_t blocks)
{
    const copes_lrpe_problem &problem = first_argument(argument);
    constexpr int COLUMNS = plain_vectors<E> * V;
    __shared__ slab_memory<T, V> memory;
    const slab_place place = find_place<T, V>(problem, tiles, blocks);
    find_angle_steps<T, V>(memory, problem, place);
    const places_of<int64_t> at =
        find_places<E, V>(problem.d, problem.k, problem.begin, place.unit, place.unit < units);
    const slab_thread<T, V, E, R, ANYWHERE> s(problem, memory, place, at);

    column columns[COLUMNS];
    finished_column finished[COLUMNS];
    if constexpr (P == COPES_SECOND_PASS) {
        take_sums(s, finished);
    } else {
        read_columns(P == COPES_FIRST_PASS, s, columns);
        merge_rows<T, V>(memory, place, columns);
        merge_blocks<T, V>(memory, place, columns);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            finished[i] = finish<R>(columns[i], s.kept);
            if (P == COPES_BOTH_PASSES && R == role::forward && problem.lse.data != nullptr && place.first == 0 &&
                at.plain[i / V] >= 0)
                write_scalar(s.lse_of(i), columns[i].most + logf(columns[i].sum));
        }
    }
    if constexpr (P == COPES_FIRST_PASS)
        give_sums(s, columns, finished);
    else
        write_columns(s, finished);
}

/* Blocks of a cluster: enough to fill the device, with several tokens for each thread. */
template <typename T, int V>
int blocks_of_slab(const gpu_device &device, const copes_lrpe_problem &problem, double slabs)
{
    const int rows = 4 * rows_of<T, V>, resident = 2048 / THREADS;
    const double wanted = (double)resident * device.multiprocessors, most = (double)problem.n / rows;
    int blocks = largest_cluster(device);
    while (blocks > 1 && (slabs * blocks / 2 >= wanted || blocks > most))
        blocks /= 2;
    return blocks;
}

inline constexpr variant_word columns_name = "sequence_columns";
inline constexpr variant_word unit_names[] = {"scalar", "vector", "anywhere"};
inline constexpr variant_word encoding_names[] = {"half", "interleaved", "cosine"};
inline constexpr variant_word role_names[3][3] = {{"forward", "backward", "given"},
                                                  {"lse", "delta", "delta_given"},
                                                  {"forward_of_lse", "backward_of_delta", "given_of_delta"}};

template <typename T, int V, encoding E, role R, bool ANYWHERE, copes_passes P>
inline constexpr const char *columns_variant =
    variant_name<columns_name, type_name<T>, unit_names[ANYWHERE ? 2 : V > 1], encoding_names[(int)E],
                 role_names[(int)P][(int)R]>::text;

/* The kernel's arguments. */
struct columns_arguments {
    copes_lrpe_problem problem;
    int64_t units;
    uint32_t tiles, blocks;
};

template <typename T, int V, encoding E, role R, bool ANYWHERE, copes_passes P>
static copes_status run_columns(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    const columns_arguments &all = tiling_of<columns_arguments>(plan);
    return launch_ex(queue, {.cluster = plan.cluster}, sequence_columns<T, V, E, R, ANYWHERE, P>, grid_of(plan),
                     block_of(plan), 0, all.problem, all.units, all.tiles, all.blocks);
}

/* act passes softmax alone, and the sums of a forward are taken, as rotate with pairing half that turns nothing. */
template <encoding E, bool ANYWHERE> constexpr bool is_alone = E == encoding::half && !ANYWHERE;

template <typename T, int V, encoding E, bool ANYWHERE, copes_passes P>
static void take_role(const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    const auto take_as = [plan](auto role_of) {
        constexpr role R = decltype(role_of)::value;
        take(plan, columns_variant<T, V, E, R, ANYWHERE, P>, run_columns<T, V, E, R, ANYWHERE, P>);
    };
    if (problem.backward && !given)
        take_as(std::integral_constant<role, role::backward>());
    if constexpr (is_alone<E, ANYWHERE> || P != COPES_FIRST_PASS)
        if (!problem.backward)
            take_as(std::integral_constant<role, role::forward>());
    if constexpr (is_alone<E, ANYWHERE>)
        if (problem.backward && given)
            take_as(std::integral_constant<role, role::given>());
}

template <typename T, int V, encoding E, bool ANYWHERE>
static copes_status take_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given,
                                 copes_plan *plan)
{
    const int64_t units = units_of<E>(problem.d, problem.k, (int64_t)V);
    const int64_t tiles = (units + tile_units_of<T, V> - 1) / tile_units_of<T, V>;
    const double slabs = (double)problem.b * (double)problem.h * (double)tiles;
    const int blocks = blocks_of_slab<T, V>(device, problem, slabs);
    if (slabs * blocks > INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %.3g slabs; a device takes 2^31 - 1", slabs);
    set_launch(plan, (unsigned)(slabs * blocks), THREADS, 0);
    plan->cluster = blocks;
    set_tiling(plan, columns_arguments{problem, units, (uint32_t)tiles, (uint32_t)blocks});
    if (problem.passes == COPES_FIRST_PASS)
        take_role<T, V, E, ANYWHERE, COPES_FIRST_PASS>(problem, given, plan);
    else if (problem.passes == COPES_SECOND_PASS)
        take_role<T, V, E, ANYWHERE, COPES_SECOND_PASS>(problem, given, plan);
    else
        take_role<T, V, E, ANYWHERE, COPES_BOTH_PASSES>(problem, given, plan);
    return COPES_OK;
}

template <typename T, encoding E>
static copes_status plan_encoding(const gpu_device &device, const copes_lrpe_problem &problem, bool given,
                                  copes_plan *plan)
{
    constexpr int V = unit_angles<T>;
    const int64_t d = problem.d, encoded = E == encoding::cosine ? 2 * d : d;
    const int64_t plain[] = {problem.b, problem.n, problem.h, d}, wide[] = {problem.b, problem.n, problem.h, encoded};
    const bool vectors = d % vector_length<T> == 0 && problem.k % V == 0 && problem.begin % V == 0 &&
                         in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) &&
                         in_vectors<T>(problem.x, plain, 4) &&
                         in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
    if (is_anywhere(problem))
        return take_columns<T, 1, E, true>(device, problem, given, plan);
    return vectors ? take_columns<T, V, E, false>(device, problem, given, plan)
                   : take_columns<T, 1, E, false>(device, problem, given, plan);
}

/* The problem of softmax alone, for which tokens have no positions. */
static copes_lrpe_problem without_encoding(copes_lrpe_problem problem)
{
    problem.variant = COPES_LRPE_ROTATE;
    problem.pairing = COPES_LRPE_HALF;
    problem.k = problem.begin = problem.prefix = 0;
    problem.amplitude = 1;
    problem.theta_sign = 1;
    problem.counted = true;
    problem.mixed = false;
    problem.positions = {};
    problem.grid_rank = 1;
    problem.length = problem.grid[0] = problem.n;
    return problem;
}

template <typename T>
copes_status plan_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    if (problem.passes == COPES_FIRST_PASS && !problem.backward)
        return plan_encoding<T, encoding::half>(device, without_encoding(problem), given, plan);
    if (problem.variant == COPES_LRPE_COSINE)
        return plan_encoding<T, encoding::cosine>(device, problem, given, plan);
    return problem.pairing == COPES_LRPE_HALF ? plan_encoding<T, encoding::half>(device, problem, given, plan)
                                              : plan_encoding<T, encoding::interleaved>(device, problem, given, plan);
}

template <typename T, int V, encoding E, bool ANYWHERE, copes_passes P> static void list_roles(variant_list *list)
{
    if constexpr (is_alone<E, ANYWHERE> || P != COPES_FIRST_PASS)
        list->add(columns_variant<T, V, E, role::forward, ANYWHERE, P>);
    list->add(columns_variant<T, V, E, role::backward, ANYWHERE, P>);
    if constexpr (is_alone<E, ANYWHERE>)
        list->add(columns_variant<T, V, E, role::given, false, P>);
}

template <typename T, int V, encoding E, bool ANYWHERE> static void list_passes(variant_list *list)
{
    list_roles<T, V, E, ANYWHERE, COPES_BOTH_PASSES>(list);
    list_roles<T, V, E, ANYWHERE, COPES_FIRST_PASS>(list);
    list_roles<T, V, E, ANYWHERE, COPES_SECOND_PASS>(list);
}

template <typename T, int V, bool ANYWHERE> static void list_encodings(variant_list *list)
{
    list_passes<T, V, encoding::half, ANYWHERE>(list);
    list_passes<T, V, encoding::interleaved, ANYWHERE>(list);
    list_passes<T, V, encoding::cosine, ANYWHERE>(list);
}

template <typename T> void list_columns(variant_list *list)
{
    list_encodings<T, 1, false>(list);
    list_encodings<T, unit_angles<T>, false>(list);
    list_encodings<T, 1, true>(list);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_columns<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);         \
    template void list_columns<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)

} // namespace COPES_GPU::sequence
