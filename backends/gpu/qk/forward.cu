/* qk_norm_rope in whole vectors: one pass, bound by memory or, of few tokens, by latency. A row's norm needs its sum of squares,
 * which the lanes of a row shuffle; where a row is wider than a warp, or the mean is over all heads, sums meet in shared
 * memory. Values pass to the cache beside it. */
#include "backends/gpu/qk/plan_rows.h"

namespace COPES_GPU::qk
{

/* What a thread has of its rows while they are on their way. */
template <typename T, int SHARES> struct forward_rows {
    lrpe::raw_vectors<T, 2> words[SHARES];
    int slot[SHARES];

    __device__ __forceinline__ void read(const row_arguments &all, const tile_place &tile, const lrpe::unit_places &at)
    {
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            if (!has_share(all, tile, i))
                continue;
            const row_place row(all, tile, i);
            words[i].read(lrpe::first_row<const T>(side_of(all, row.keys).src, row.place), 0, at.plain);
        }
    }
    __device__ __forceinline__ void read_slots(const row_arguments &all, const tile_place &tile)
    {
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            slot[i] = -1;
            if (all.cache.keys.data == nullptr || !has_share(all, tile, i))
                continue;
            const row_place row(all, tile, i);
            if (row.keys && row.live)
                slot[i] = find_slot(all.cache, row.place);
        }
    }
};

/* The sum of squares behind each of a thread's rows. Every thread of the block must call this. */
template <norm NORM, typename T, int SHARES>
DEVICE void sum_squares(const row_arguments &all, const tile_place &tile, const lrpe::unit_places &at,
                        const forward_rows<T, SHARES> &rows, const row_sums<1> &sums, float (&squares)[SHARES][1])
{
#pragma unroll
    for (int i = 0; i < SHARES; i++) {
        float x[2][vector_length<T>];
        if (!has_share(read_again(all), tile, i))
            continue;
        rows.words[i].unpack(x);
        squares[i][0] = sum_of_unit(at, x, x);
        sum_lanes<NORM>(sums, i, squares[i]);
    }
    if (NORM != norm::block)
        return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SHARES; i++)
        if (has_share(read_again(all), tile, i))
            sums.get(read_again(all), row_place(read_again(all), tile, i), i, squares[i]);
}

/* Norms a unit. */
template <typename T, int V>
DEVICE void normalize(const row_arguments &all, const row_place &row, const lrpe::unit_places &at, float squares,
                      const float *weights, float (&y)[2][V])
{
    const float factor = norm_factor(all, side_of(all, row.keys), squares);
    float w[2][V];
    find_weights<T>(all, row, at, weights, w);
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < V; j++)
            y[i][j] = y[i][j] * factor * w[i][j];
        if (all.round_between)
            raw<T, V>::pack(y[i]).unpack(y[i]);
    }
}

/* A thread's vectors of v. The first is on its way while rotations are made. */
template <typename T> struct value_copy {
    uint32_t index;
    cached_vector<T> first;

    __device__ __forceinline__ value_copy(const row_arguments &all, const tile_place &tile)
        : index((blockIdx.x % all.splits.divisor * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x)
    {
        first.slot = -1;
        if (all.cache.values.data != nullptr)
            first = cached_vector<T>::read(all.cache, tile.place, tile.left, index);
    }
    __device__ __forceinline__ void write(const row_arguments &all, const tile_place &tile)
    {
        if (all.cache.values.data == nullptr)
            return;
        first.write(all.cache);
        const uint32_t step = blockDim.x * blockDim.y * all.splits.divisor;
        const uint32_t end = (uint32_t)(tile.left + 1) * all.cache.heads.divisor * all.cache.vectors.divisor;
        for (uint32_t next = index + step; next < end; next += step)
            cached_vector<T>::read(all.cache, tile.place, tile.left, next).write(all.cache);
    }
};

/* Norms and turns a row, and writes it wherever it is wanted. */
template <typename T, encoding E, norm NORM>
DEVICE void turn_row(const row_arguments &all, const row_place &row, const lrpe::unit_places &at,
                     const lrpe::raw_vectors<T, 2> &words, float squares, const float *weights,
                     const lrpe::block_rotations<vector_length<T>> &made, int slot)
{
    constexpr int V = vector_length<T>;
    const side_rows side = side_of(all, row.keys);
    float y[2][V];
    rotation rotations[V];
    words.unpack(y);
    if (NORM != norm::none && side.weights.data != nullptr)
        normalize<T>(all, row, at, squares, weights, y);
    made.read((unsigned)row.token, at.there ? threadIdx.x : 0, rotations);
    encode<E>(y, rotations, at.rotated);
    if (!row.live || !at.there)
        return;
    if (side.dst.data != nullptr)
        lrpe::write_row<E, false>(at, y, lrpe::first_row<T>(side.dst, row.place), 0);
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (slot >= 0 && (i == 0 || at.second))
            write_cached<T>(all.cache, all.cache.keys, slot, row.place.head, at.plain[i], y[i]);
}

template <typename T, encoding E, norm NORM, bool ON_LINE>
__global__ void LAUNCH_BOUNDS(MOST_THREADS, 1) qk_forward(GPU_PARAMETER row_arguments argument)
{
    constexpr int V = vector_length<T>, SHARES = shares<NORM>;
    const row_arguments &all = first_argument(argument);
    const tile_place tile(all, blockIdx.x);
    const lrpe::unit_places at =
        lrpe::find_unit<E, V>(all.d, all.source.k, all.source.begin(), all.units, (int)threadIdx.x);
    const lrpe::block_rotations<V> made(all.source, dynamic_shared());
    float *const weights = reinterpret_cast<float *>(dynamic_shared() + all.rotation_bytes);
    const row_sums<1> sums = {weights + 2 * all.d, ((int)blockDim.x + 31) / 32};
    forward_rows<T, SHARES> rows;
    float squares[SHARES][1];
    rows.read_slots(all, tile);
    if (NORM != norm::none)
        read_shared_weights<T>(all, weights);
    value_copy<T> values(all, tile);
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile, [&] { rows.read(read_again(all), tile, at); });
    values.write(read_again(all), tile);
    if (NORM != norm::none)
        sum_squares<NORM>(read_again(all), tile, at, rows, sums, squares);
#pragma unroll
    for (int i = 0; i < SHARES; i++)
        if (has_share(read_again(all), tile, i))
            turn_row<T, E, NORM>(read_again(all), row_place(read_again(all), tile, i), at, rows.words[i], squares[i][0],
                                 weights, made, rows.slot[i]);
}

inline constexpr variant_word forward_name = "qk_forward";

template <typename T, encoding E, norm NORM, bool ON_LINE>
inline constexpr const char *forward_variant = variant_name<forward_name, type_name<T>, lrpe::encoding_names[(int)E],
                                                            norm_names[(int)NORM], place_names[ON_LINE]>::text;

template <typename T, encoding E, norm NORM, bool ON_LINE>
static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch(queue, qk_forward<T, E, NORM, ON_LINE>, grid_of(plan), block_of(plan), (size_t)plan.shared,
                  tiling_of<row_arguments>(plan));
}

template <typename T, encoding E, bool ON_LINE> static bool take_forward(const row_cut &cut, copes_plan *plan)
{
    switch (cut.sum) {
    case norm::none: return take(plan, forward_variant<T, E, norm::none, ON_LINE>, run<T, E, norm::none, ON_LINE>);
    case norm::warp: return take(plan, forward_variant<T, E, norm::warp, ON_LINE>, run<T, E, norm::warp, ON_LINE>);
    default: return take(plan, forward_variant<T, E, norm::block, ON_LINE>, run<T, E, norm::block, ON_LINE>);
    }
}

template <typename T, encoding E>
bool plan_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    row_arguments all = {};
    row_cut cut = {false, ENOUGH_BLOCKS * device.multiprocessors, 0, norm::none, {}, 0};
    if (!is_allowed(device, forward_name, plan))
        return false;
    if (const char *why = cut_rows<T, E>(problem, &all, &cut))
        return refuse(plan, forward_name, why);
    const int64_t floats = cut.sum == norm::none ? 0 : 2 * (int64_t)all.d + cut.sums;
    const int64_t shared = (int64_t)all.rotation_bytes + floats * (int64_t)sizeof(float);
    if (shared > MOST_BYTES)
        return refuse(plan, forward_name, "the rotations and weights of a block do not fit its shared memory");
    set_launch(plan, all.blocks, cut.threads, shared);
    set_tiling(plan, all);
    return is_on_line(problem.side[0].rotate) ? take_forward<T, E, true>(cut, plan)
                                              : take_forward<T, E, false>(cut, plan);
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_forward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#undef QK_INSTANTIATE

void list_forward(variant_list *list)
{
#define QK_INSTANTIATE(T, E)                                                                                           \
    list->add(forward_variant<T, encoding::E, norm::none, false>);                                                     \
    list->add(forward_variant<T, encoding::E, norm::warp, false>);                                                     \
    list->add(forward_variant<T, encoding::E, norm::block, false>);                                                    \
    list->add(forward_variant<T, encoding::E, norm::none, true>);                                                      \
    list->add(forward_variant<T, encoding::E, norm::warp, true>);                                                      \
    list->add(forward_variant<T, encoding::E, norm::block, true>);
#include "backends/gpu/qk/instantiate.inc"
}

} // namespace COPES_GPU::qk
