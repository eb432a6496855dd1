/* Which instance of the portable kernel takes a problem, and how many blocks share a slab. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H

#include "backends/gpu/plan.h"
#include "backends/gpu/sequence/columns.h"

namespace COPES_GPU::sequence
{

inline constexpr variant_word unit_names[] = {"scalar", "vector", "scalar anywhere", "vector anywhere"};
inline constexpr variant_word encoding_names[] = {"half", "interleaved", "cosine"};
inline constexpr variant_word role_names[3][3] = {{"forward", "backward", "given"},
                                                  {"lse", "delta", "delta_given"},
                                                  {"forward_of_lse", "backward_of_delta", "given_of_delta"}};

/* What a name says of its kernels: the method, and which passes a call has of it. */
struct columns_method {
    variant_word name;
    copes_passes passes;
};

template <columns_method M, typename T, int V, encoding E, role R, bool ANYWHERE>
inline constexpr const char *columns_variant =
    variant_name<M.name, type_name<T>, unit_names[2 * ANYWHERE + (V > 1)], encoding_names[(int)E],
                 role_names[(int)M.passes][(int)R]>::text;

/* A launch's share of a problem: blocks of it to a slab, as a cluster or as parts. */
struct columns_cut {
    int64_t units;
    uint32_t tiles, blocks, grid;
    bool clusters;
};

typedef copes_status columns_launch(const gpu_queue &queue, const copes_lrpe_problem &problem, const columns_cut &cut,
                                    column *parts);

struct columns_choice {
    const char *variant;
    columns_launch *launch;
    columns_cut cut;
};

template <typename T, int V, encoding E, role R, bool ANYWHERE, copes_passes P>
copes_status launch_columns(const gpu_queue &queue, const copes_lrpe_problem &problem, const columns_cut &cut,
                            column *parts)
{
    return launch_ex(queue, {.cluster = cut.clusters ? (int)cut.blocks : 1}, sequence_columns<T, V, E, R, ANYWHERE, P>,
                     cut.grid, THREADS, 0, problem, cut.units, cut.tiles, cut.blocks, parts);
}

/* anywhere.cu: the kernels of vectors whose tokens have positions, where a vendor's registers hold them. */
#if COPES_VECTORS_ANYWHERE
#define COPES_KERNEL_ANYWHERE(PREFIX, T, E, R, P)                                                                      \
    PREFIX template copes_status launch_columns<T, unit_angles<T>, E, R, true, P>(const gpu_queue &,                   \
                                                                                  const copes_lrpe_problem &,          \
                                                                                  const columns_cut &, column *);
#define COPES_PASSES_ANYWHERE(PREFIX, T, E)                                                                            \
    COPES_KERNEL_ANYWHERE(PREFIX, T, E, role::forward, COPES_BOTH_PASSES)                                              \
    COPES_KERNEL_ANYWHERE(PREFIX, T, E, role::backward, COPES_BOTH_PASSES)                                             \
    COPES_KERNEL_ANYWHERE(PREFIX, T, E, role::backward, COPES_FIRST_PASS)                                              \
    COPES_KERNEL_ANYWHERE(PREFIX, T, E, role::forward, COPES_SECOND_PASS)                                              \
    COPES_KERNEL_ANYWHERE(PREFIX, T, E, role::backward, COPES_SECOND_PASS)
#define COPES_ENCODINGS_ANYWHERE(PREFIX, T)                                                                            \
    COPES_PASSES_ANYWHERE(PREFIX, T, encoding::half)                                                                   \
    COPES_PASSES_ANYWHERE(PREFIX, T, encoding::interleaved)                                                            \
    COPES_PASSES_ANYWHERE(PREFIX, T, encoding::cosine)
COPES_ENCODINGS_ANYWHERE(extern, f32)
COPES_ENCODINGS_ANYWHERE(extern, f16)
COPES_ENCODINGS_ANYWHERE(extern, bf16)
#endif

/* Blocks of a cluster, such that the device has all slabs' tokens soonest: few, where more are hardly sooner. OVERHEAD: of a
 * block, in tokens of a row. Two blocks run on a multiprocessor. */
inline int blocks_of_cluster(const gpu_device &device, const copes_lrpe_problem &problem, double slabs, int rows)
{
    constexpr int ON_EACH = 2, OVERHEAD = 24;
    int best = 1;
    double least = INFINITY;
    for (int blocks = 1; blocks <= largest_cluster(device); blocks++) {
        const double at_once = ON_EACH * (blocks == 1 ? device.multiprocessors : device.clusters[blocks]);
        const double time = ceil(slabs / at_once) * (OVERHEAD + ceil((double)problem.n / (blocks * rows)));
        if (at_once > 0 && time < 0.95 * least) {
            best = blocks;
            least = time;
        }
    }
    return best;
}

/* act passes softmax alone, and the sums of a forward are taken, as rotate that turns nothing, whose pairs are neighbours. */
template <encoding E, bool ANYWHERE> inline constexpr bool is_alone = E == encoding::interleaved && !ANYWHERE;

/* Does the pass have kernels of a role? */
template <role R, encoding E, bool ANYWHERE, copes_passes P>
inline constexpr bool has_role =
    R == role::backward || is_alone<E, ANYWHERE> || (R == role::forward && P != COPES_FIRST_PASS);

/* `parts`: how many of a slab; 0: its blocks are a cluster. */
template <columns_method M, typename T, copes_passes P> struct columns_chooser {
    const gpu_device &device;
    const copes_lrpe_problem &problem;
    const bool given;
    const int parts;
    columns_choice *chosen;

    template <int V, encoding E, bool ANYWHERE, role R> void take_role()
    {
        if constexpr (has_role<R, E, ANYWHERE, P>) {
            chosen->variant = columns_variant<M, T, V, E, R, ANYWHERE>;
            chosen->launch = launch_columns<T, V, E, R, ANYWHERE, P>;
        }
    }
    template <int V, encoding E, bool ANYWHERE> copes_status take_unit()
    {
        const int64_t units = units_of<E>(problem.d, problem.k, (int64_t)V);
        const int64_t tiles = (units + tile_units_of<T, V> - 1) / tile_units_of<T, V>;
        const double slabs = (double)problem.b * (double)problem.h * (double)tiles;
        const int blocks = parts > 0 ? parts : blocks_of_cluster(device, problem, slabs, rows_of<T, V>);
        if (slabs * blocks > INT32_MAX)
            return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %.3g slabs; a device takes 2^31 - 1",
                              slabs);
        if (problem.n / ((int64_t)blocks * rows_of<T, V>) >= INT32_MAX)
            return copes_fail(COPES_ERROR_SIZE,
                              "softmax over the sequence: %lld tokens; a device takes 2^31 - 1 a thread",
                              (long long)problem.n);
        chosen->cut = {units, (uint32_t)tiles, (uint32_t)blocks, (uint32_t)(slabs * blocks), parts == 0};
        if (!problem.backward)
            take_role<V, E, ANYWHERE, role::forward>();
        else if (given)
            take_role<V, E, ANYWHERE, role::given>();
        else
            take_role<V, E, ANYWHERE, role::backward>();
        return COPES_OK;
    }
    template <encoding E> copes_status take_encoding()
    {
        constexpr int V = unit_angles<T>;
        const int64_t d = problem.d, encoded = E == encoding::cosine ? 2 * d : d;
        const int64_t plain[] = {problem.b, problem.n, problem.h, d},
                      wide[] = {problem.b, problem.n, problem.h, encoded};
        const int joined = is_joined<T, E, V> ? 2 * V : V;
        const bool vectors = d % vector_length<T> == 0 && problem.k % V == 0 && problem.begin % joined == 0 &&
                             in_vectors<T>(problem.src, problem.backward ? wide : plain, 4) &&
                             in_vectors<T>(problem.x, plain, 4) &&
                             in_vectors<T>(problem.dst, problem.backward ? plain : wide, 4);
        const bool anywhere = is_anywhere(problem) && !has_offsets(problem);
        if constexpr (COPES_VECTORS_ANYWHERE)
            if (anywhere && vectors && may_be_in_line(problem))
                return take_unit<V, E, true>();
        if (anywhere)
            return take_unit<1, E, true>();
        return vectors ? take_unit<V, E, false>() : take_unit<1, E, false>();
    }
    copes_status choose()
    {
        if (problem.variant == COPES_LRPE_COSINE)
            return take_encoding<encoding::cosine>();
        return problem.pairing == COPES_LRPE_HALF && problem.k > 0 ? take_encoding<encoding::half>()
                                                                   : take_encoding<encoding::interleaved>();
    }
};

template <columns_method M, typename T, copes_passes P = M.passes>
copes_status choose_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, int parts,
                            columns_choice *chosen)
{
    return columns_chooser<M, T, P>{device, problem, given, parts, chosen}.choose();
}

template <columns_method M, typename T, int V, encoding E, bool ANYWHERE, copes_passes P, role... R>
void list_roles(variant_list *list)
{
    const auto add = [list](auto role_of) {
        constexpr role ONE = decltype(role_of)::value;
        if constexpr (has_role<ONE, E, ANYWHERE, P>)
            list->add(columns_variant<M, T, V, E, ONE, ANYWHERE>);
    };
    (add(std::integral_constant<role, R>()), ...);
}

template <columns_method M, typename T, copes_passes P, encoding... E> void list_units(variant_list *list)
{
    constexpr role F = role::forward, B = role::backward, G = role::given;
    (list_roles<M, T, 1, E, false, P, F, B, G>(list), ...);
    (list_roles<M, T, unit_angles<T>, E, false, P, F, B, G>(list), ...);
    (list_roles<M, T, 1, E, true, P, F, B, G>(list), ...);
    if constexpr (COPES_VECTORS_ANYWHERE)
        (list_roles<M, T, unit_angles<T>, E, true, P, F, B, G>(list), ...);
}

/* columns.cu */
void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan);

template <columns_method M, typename T, copes_passes P = M.passes> void list_method(variant_list *list)
{
    list_units<M, T, P, encoding::half, encoding::interleaved, encoding::cosine>(list);
}

} // namespace COPES_GPU::sequence

#endif
