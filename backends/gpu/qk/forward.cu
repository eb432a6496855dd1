/* qk_norm_rope in whole vectors: one pass, bound by memory or, of few tokens, by latency. A row's norm needs its sum of squares,
 * which the lanes of a row shuffle; where a row is wider than a warp, or the mean is over all heads, sums meet in shared
 * memory, and a thread reads its heads a second time, from the caches. Values pass to the paged cache beside the keys. */
#include "backends/gpu/qk/plan_rows.h"

namespace COPES_GPU::qk
{

typedef read_ahead<2, 4> reader; /* a row is a unit of a head */

/* A thread's unit in its heads of a slot of the cache. It goes from head to head. */
template <typename T> struct cached_units {
    static constexpr int V = vector_length<T>;
    char *head; /* the next one; nullptr: there is no slot */
    int64_t step;

    __device__ __forceinline__ cached_units(const row_arguments &all, const head_group &group, int slot) : head(nullptr)
    {
        const cache_rows cache = choose_cache(group.which == VALUES, all.side[KEYS].cache, all.side[VALUES].cache);
        const int64_t size = all.cache.float8 ? 1 : (int)sizeof(T);
        step = group.step * cache.head * size;
        if (slot >= 0 && group.which != QUERIES && cache.data != nullptr)
            head = static_cast<char *>(cache.data) +
                   (find_cached(all.cache, cache, slot) + group.place.head * cache.head) * size;
    }
    /* Writes the unit in the thread's head i. */
    __device__ __forceinline__ void write(const row_arguments &all, const head_group &group,
                                          const lrpe::unit_places &at, int i, const float (&y)[2][V]) const
    {
        const float scale = find_scale(all, group, i);
        write_cached<T>(all.cache, head, at.plain[0], scale, y[0]);
        if (at.second)
            write_cached<T>(all.cache, head, at.plain[1], scale, y[1]);
    }
    __device__ __forceinline__ void move()
    {
        head += step;
    }

  private:
    DEVICE float find_scale(const row_arguments &all, const head_group &group, int i)
    {
        const cache_rows &cache = group.which == KEYS ? all.side[KEYS].cache : all.side[VALUES].cache;
        return !all.cache.float8 || cache.scale == nullptr
                   ? 1
                   : cache.scale[(group.place.head + i * group.step) * cache.scale_step];
    }
};

/* A thread, on its way over its heads. */
template <typename T, encoding E, norm NORM> struct forward_heads {
    static constexpr int V = vector_length<T>;
    head_group group;
    lrpe::unit_places at;
    head_units<const T> src;
    unit_weights<T> weights;
    reader ahead;

    __device__ __forceinline__ forward_heads(const row_arguments &all, const tile_place &tile, char *memory)
        : group(all, tile), at(find_unit<E, V>(all, group)), src(choose_rows(all, group.which, &side_rows::src), group),
          weights(all, group, at, memory), ahead(memory + all.ahead)
    {
    }
    __device__ __forceinline__ void start(const row_arguments &all, int i)
    {
        if (i < group.count) {
            src.start(at, i, 0, NORM == norm::none && all.split_sectors, &ahead);
            src.move();
        }
        ahead.end_row();
    }
    /* The sum of the squares of all heads, which a norm is over. */
    __device__ __forceinline__ float sum_heads(const row_arguments &all, const group_sums<1> &sums,
                                               head_units<const T> from) const
    {
        float sum[1] = {0};
        for (int i = 0; i < group.count; i++, from.move()) {
            float x[2][V];
            from.read(at, x);
            sum[0] += sum_of_unit(at, x, x);
        }
        sums.meet_heads(all, group, sum);
        return sum[0];
    }
    /* Norms and turns head i, whose squares or those behind its norm have the sum `squares`. */
    __device__ __forceinline__ void transform(const row_arguments &all, int i, float squares,
                                              unit_turn<T, E, NORM> *turn, float (&y)[2][V]) const
    {
        const float factor = NORM == norm::none ? 1 : norm_factor(all.eps, inverse_length(all, group), squares);
        if (NORM != norm::none && turn->weighted) {
            scale(factor, y); /* first: what is subnormal becomes normal */
            turn->weigh_and_turn(y);
            return;
        }
        if (NORM != norm::none && weights.any) {
            weights.renew(all, group, at, i, turn);
            scale(factor, y);
            turn->weigh(y);
            if (all.round_between)
                round_unit<T>(y);
        }
        encode<E>(y, turn->of[0], at.rotated);
    }

  private:
    DEVICE void scale(float factor, float (&y)[2][V])
    {
#pragma unroll
        for (int j = 0; j < 2 * V; j++)
            y[j / V][j % V] *= factor;
    }
};

template <typename T, encoding E, norm NORM, bool ON_LINE>
__global__ void LAUNCH_BOUNDS(MOST_THREADS, NORM == norm::block ? 1 : 2)
    qk_forward(GPU_PARAMETER row_arguments argument)
{
    constexpr int V = vector_length<T>;
    const row_arguments &all = first_argument(argument);
    const tile_place tile(all, blockIdx.x);
    char *const memory = dynamic_shared();
    const lrpe::block_rotations<E, V> made(all.source, memory);
    const group_sums<1> sums(all, memory);
    forward_heads<T, E, NORM> heads(all, tile, memory);
    const head_group &group = heads.group;
    const lrpe::unit_places &at = heads.at;
    const head_units<const T> first = heads.src;
    const int slot = find_slot(read_again(all).cache, group.place);
#pragma unroll
    for (int i = 0; i < reader::DEPTH; i++)
        heads.start(all, i);
    if (NORM != norm::none)
        read_shared_weights<T>(read_again(all), memory);
    make_rotations<ON_LINE, sizeof(T) == 4>(read_again(all), made, tile);
    float squares[1];
    const bool known = NORM == norm::block && read_again(all).over_heads;
    if (known)
        squares[0] = heads.sum_heads(read_again(all), sums, first);
    const bool may_weigh = NORM != norm::none && !read_again(all).round_between && heads.weights.are_normal(at);
    unit_turn<T, E, NORM> turn(read_again(all), made, group, at, heads.weights, may_weigh);
    head_units<T> dst(choose_rows(read_again(all), group.which, &side_rows::dst), group);
    cached_units<T> cached(read_again(all), group, slot);
#pragma unroll 1
    for (int i = 0; i < read_again(all).heads; i++) {
        float y[2][V];
        heads.ahead.wait();
        take_unit<T>(heads.ahead, i, 0, y);
        heads.start(read_again(all), i + reader::DEPTH);
        if (NORM != norm::none && !known) {
            squares[0] = sum_of_unit(at, y, y);
            sum_head<NORM>(sums, i, squares);
        }
        if (i >= group.count || !at.there)
            continue;
        heads.transform(read_again(all), i, squares[0], &turn, y);
        if (dst.head != nullptr) {
            dst.write(at, y);
            dst.move();
        }
        if (cached.head != nullptr) {
            cached.write(read_again(all), group, at, i, y);
            cached.move();
        }
    }
}

inline constexpr variant_word forward_name = "qk_forward";

template <typename T, encoding E, norm NORM, bool ON_LINE>
inline constexpr const char *forward_variant = variant_name<forward_name, type_name<T>, lrpe::encoding_names[(int)E],
                                                            norm_names[(int)NORM], place_names[ON_LINE]>::text;

typedef void forward_kernel(row_arguments);

static copes_status run(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    return launch_plan<forward_kernel>(queue, plan, tiling_of<row_arguments>(plan));
}

template <typename T, encoding E, norm NORM, bool ON_LINE> static bool take_one(copes_plan *plan)
{
    return take<forward_kernel>(plan, forward_variant<T, E, NORM, ON_LINE>, run, qk_forward<T, E, NORM, ON_LINE>);
}

template <typename T, encoding E, bool ON_LINE> static bool take_forward(const row_cut &cut, copes_plan *plan)
{
    if constexpr (!is_narrow<T>) {
        if (cut.sum == norm::warp)
            return take_one<T, E, norm::warp, ON_LINE>(plan);
        if (cut.sum == norm::block)
            return take_one<T, E, norm::block, ON_LINE>(plan);
    }
    return take_one<T, E, norm::none, ON_LINE>(plan);
}

template <typename T, encoding E>
bool plan_forward(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan)
{
    row_arguments all = {};
    row_cut cut = {.multiprocessors = device.multiprocessors,
                   .split = MOST_SPLIT,
                   .fewest = problem.slots.data != nullptr ? MANY_HEADS : FEW_HEADS,
                   .over_all = MOST_HEADS,
                   .running = most_at_once<T>,
                   .at_once = most_at_once<T>,
                   .usual = usual_threads<T>};
    if (!is_allowed(device, forward_name, plan))
        return false;
    if (const char *why = cut_rows<T, E>(problem, &all, &cut))
        return refuse(plan, forward_name, why);
    if (all.side[VALUES].heads > 0 && cut.sum != norm::block)
        all.tokens_here = divider(all.source.tokens); /* so that v, which does less, has warps of its own */
    all.ahead = all.rotation_bytes + (uint32_t)norm_bytes(cut, all.d, all.e, 1);
    const int threads = (int)(cut.threads.x * cut.threads.y);
    const int64_t shared = (int64_t)all.ahead + threads * reader::BYTES;
    if (shared > MOST_BYTES)
        return refuse(plan, forward_name, "what a block keeps does not fit its shared memory");
    set_launch(plan, all.blocks, cut.threads, shared_of<T>(device, cut, all.blocks, reader::BYTES, shared));
    set_tiling(plan, all);
    return is_on_line(problem.side[0].rotate) ? take_forward<T, E, true>(cut, plan)
                                              : take_forward<T, E, false>(cut, plan);
}

#define QK_INSTANTIATE(T, E)                                                                                           \
    template bool plan_forward<T, encoding::E>(const gpu_device &, const copes_qk_problem &, copes_plan *);
#include "backends/gpu/qk/instantiate.inc"
#include "backends/gpu/qk/instantiate_narrow.inc"
#undef QK_INSTANTIATE

template <typename T, encoding E, bool ON_LINE> static void list_kernels(variant_list *list)
{
    list->add(forward_variant<T, E, norm::none, ON_LINE>);
    if constexpr (!is_narrow<T>) {
        list->add(forward_variant<T, E, norm::warp, ON_LINE>);
        list->add(forward_variant<T, E, norm::block, ON_LINE>);
    }
}

void list_forward(variant_list *list)
{
#define QK_INSTANTIATE(T, E)                                                                                           \
    list_kernels<T, encoding::E, false>(list);                                                                         \
    list_kernels<T, encoding::E, true>(list);
#include "backends/gpu/qk/instantiate.inc"
#include "backends/gpu/qk/instantiate_narrow.inc"
}

} // namespace COPES_GPU::qk
