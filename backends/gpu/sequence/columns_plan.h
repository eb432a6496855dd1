/* The instances of the portable kernel, as a table for each method and storage type, and what a planner chooses of it. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H

#include "backends/gpu/plan.h"
#include "backends/gpu/sequence/columns.h"

namespace COPES_GPU::sequence
{

inline constexpr variant_word unit_names[] = {"vector", "vector anywhere"};
inline constexpr variant_word encoding_names[] = {"half", "interleaved", "cosine"},
                              single_names[] = {"pairs", "cosine"};
inline constexpr variant_word role_names[3][3] = {{"forward", "backward", "given"},
                                                  {"lse", "delta", "delta_given"},
                                                  {"forward_of_lse", "backward_of_delta", "given_of_delta"}};

/* What a name says of its kernels: the method, and which passes a call has of it. */
struct columns_method {
    variant_word name;
    copes_passes passes;
};

/* Kernels of single elements have a type, a pairing and positions that are known at run time: there are few of them. */
template <typename T> inline constexpr bool is_single = std::is_same_v<T, any_type>;

template <columns_method M, typename T, encoding E, role R, bool ANYWHERE>
inline constexpr const char *columns_variant =
    variant_name<M.name, type_name<T>, unit_names[ANYWHERE], encoding_names[(int)E],
                 role_names[(int)M.passes][(int)R]>::text;
template <columns_method M, encoding E, role R>
inline constexpr const char *columns_variant<M, any_type, E, R, true> =
    variant_name<M.name, type_name<any_type>, single_names[E == encoding::cosine],
                 role_names[(int)M.passes][(int)R]>::text;

/* A launch's share of a problem: blocks of it to a slab, as a cluster or as parts. */
struct columns_cut {
    int64_t units;
    uint32_t tiles, blocks, grid;
    bool clusters;
};

/* Any instance of the kernel. */
typedef void columns_kernel(copes_lrpe_problem, int64_t units, uint32_t tiles, uint32_t blocks, column *parts);

struct columns_choice {
    const char *variant;
    columns_kernel *kernel;
    columns_cut cut;

    copes_status launch(const gpu_queue &queue, const copes_lrpe_problem &problem, column *parts) const
    {
        return launch_ex(queue, {.cluster = cut.clusters ? (int)cut.blocks : 1}, kernel, cut.grid, THREADS, 0, problem,
                         cut.units, cut.tiles, cut.blocks, parts);
    }
};

/* act passes softmax alone, and the sums of a forward are taken, as rotate that turns nothing: its pairs are neighbours, and single
 * elements. */
template <typename T, encoding E, bool ANYWHERE>
inline constexpr bool is_alone = is_single<T> ? E == encoding::half : E == encoding::interleaved && !ANYWHERE;

/* Does the pass have kernels of a role? */
template <typename T, encoding E, role R, bool ANYWHERE, copes_passes P>
inline constexpr bool has_role =
    R == role::backward || is_alone<T, E, ANYWHERE> || (R == role::forward && P != COPES_FIRST_PASS);

/* Is there a kernel? */
template <typename T, encoding E, role R, bool ANYWHERE, copes_passes P>
inline constexpr bool has_instance =
    has_role<T, E, R, ANYWHERE, P> &&
    (is_single<T> ? ANYWHERE && E != encoding::interleaved : !ANYWHERE || COPES_VECTORS_ANYWHERE);

/* A kernel and its name; nullptr both where there is none. */
struct columns_instance {
    const char *variant;
    columns_kernel *kernel; /* nullptr of a name: anywhere.cu has it */
};

/* The kernels of a method for a storage type. */
struct columns_instances {
    int vector, unit; /* elements of a vector of 16 bytes; angles of a unit of such vectors */
    columns_kernel *(*anywhere)(encoding, role);
    const columns_instances *single; /* those of single elements; nullptr of themselves */
    columns_instance of[3][2][3];    /* encoding; anywhere; role */
};

/* anywhere.cu: the kernels of single elements, and those of vectors whose tokens have positions, where a vendor's registers hold
 * them. */
template <typename T, copes_passes P> columns_kernel *kernels_anywhere(encoding e, role r);

template <columns_method M, typename T, copes_passes P, encoding E, role R, bool ANYWHERE>
constexpr void fill_instance(columns_instance (&of)[3])
{
    if constexpr (has_instance<T, E, R, ANYWHERE, P>)
        of[(int)R].variant = columns_variant<M, T, E, R, ANYWHERE>;
    if constexpr (has_instance<T, E, R, ANYWHERE, P> && !ANYWHERE)
        of[(int)R].kernel = sequence_columns<T, unit_angles<T>, E, R, false, P>;
}

template <columns_method M, typename T, copes_passes P, encoding E, bool ANYWHERE>
constexpr void fill_roles(columns_instance (&of)[2][3])
{
    fill_instance<M, T, P, E, role::forward, ANYWHERE>(of[ANYWHERE]);
    fill_instance<M, T, P, E, role::backward, ANYWHERE>(of[ANYWHERE]);
    fill_instance<M, T, P, E, role::given, ANYWHERE>(of[ANYWHERE]);
}

template <columns_method M, typename T, copes_passes P> constexpr const columns_instances *single_of();

template <columns_method M, typename T, copes_passes P, encoding... E> constexpr columns_instances make_instances()
{
    columns_instances all = {vector_length<T>, unit_angles<T>, kernels_anywhere<T, P>, single_of<M, T, P>(), {}};
    (fill_roles<M, T, P, E, false>(all.of[(int)E]), ...);
    (fill_roles<M, T, P, E, true>(all.of[(int)E]), ...);
    return all;
}

template <columns_method M, typename T, copes_passes P = M.passes>
inline constexpr columns_instances columns_of =
    make_instances<M, T, P, encoding::half, encoding::interleaved, encoding::cosine>();

template <columns_method M, typename T, copes_passes P> constexpr const columns_instances *single_of()
{
    if constexpr (is_single<T>)
        return nullptr;
    else
        return &columns_of<M, any_type, P>;
}

/* columns.cu: chooses among instances for a storage type and pass. `parts`: how many of a slab; 0: its blocks are a cluster. */
copes_status choose_columns(const columns_instances &vectors, const gpu_device &device,
                            const copes_lrpe_problem &problem, bool given, int parts, columns_choice *chosen);
void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan);
void list_instances(const columns_instances &all, variant_list *list);

} // namespace COPES_GPU::sequence

#endif
