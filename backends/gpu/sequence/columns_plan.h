/* The instances of the portable kernel, as a table for each method and storage type, and what a planner chooses of it. */
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

/* act passes softmax alone, and the sums of a forward are taken, as rotate that turns nothing, whose pairs are neighbours. */
template <encoding E, bool ANYWHERE> inline constexpr bool is_alone = E == encoding::interleaved && !ANYWHERE;

/* Does the pass have kernels of a role? */
template <role R, encoding E, bool ANYWHERE, copes_passes P>
inline constexpr bool has_role =
    R == role::backward || is_alone<E, ANYWHERE> || (R == role::forward && P != COPES_FIRST_PASS);

/* A kernel and its name; nullptr both where there is none. */
struct columns_instance {
    const char *variant;
    columns_kernel *kernel; /* nullptr of a name: anywhere.cu has it */
};

/* The kernels of a method for a storage type. */
struct columns_instances {
    int vector, unit; /* elements of a vector of 16 bytes; angles of a unit of such vectors */
    columns_kernel *(*anywhere)(encoding, role);
    columns_instance of[3][4][3]; /* encoding; place in unit_names; role */
};

/* anywhere.cu: the kernels of vectors whose tokens have positions, where a vendor's registers hold them. */
template <typename T, copes_passes P> columns_kernel *vectors_anywhere(encoding e, role r);

template <columns_method M, typename T, copes_passes P, int UNIT, encoding E, role R>
constexpr columns_instance instance_of()
{
    constexpr bool ANYWHERE = UNIT / 2 == 1;
    constexpr int V = UNIT % 2 == 1 ? unit_angles<T> : 1;
    constexpr bool apart = ANYWHERE && V > 1;
    if constexpr (!has_role<R, E, ANYWHERE, P> || (apart && !COPES_VECTORS_ANYWHERE))
        return {};
    else if constexpr (apart)
        return {columns_variant<M, T, V, E, R, ANYWHERE>, nullptr};
    else
        return {columns_variant<M, T, V, E, R, ANYWHERE>, sequence_columns<T, V, E, R, ANYWHERE, P>};
}

template <columns_method M, typename T, copes_passes P, int UNIT, encoding E>
constexpr void fill_roles(columns_instance (&of)[3])
{
    of[(int)role::forward] = instance_of<M, T, P, UNIT, E, role::forward>();
    of[(int)role::backward] = instance_of<M, T, P, UNIT, E, role::backward>();
    of[(int)role::given] = instance_of<M, T, P, UNIT, E, role::given>();
}

template <columns_method M, typename T, copes_passes P, encoding... E> constexpr columns_instances make_instances()
{
    columns_instances all = {vector_length<T>, unit_angles<T>, vectors_anywhere<T, P>, {}};
    (fill_roles<M, T, P, 0, E>(all.of[(int)E][0]), ...);
    (fill_roles<M, T, P, 1, E>(all.of[(int)E][1]), ...);
    (fill_roles<M, T, P, 2, E>(all.of[(int)E][2]), ...);
    (fill_roles<M, T, P, 3, E>(all.of[(int)E][3]), ...);
    return all;
}

template <columns_method M, typename T, copes_passes P = M.passes>
inline constexpr columns_instances columns_of =
    make_instances<M, T, P, encoding::half, encoding::interleaved, encoding::cosine>();

/* columns.cu: chooses among instances for a storage type and pass. `parts`: how many of a slab; 0: its blocks are a cluster. */
copes_status choose_columns(const columns_instances &all, const gpu_device &device, const copes_lrpe_problem &problem,
                            bool given, int parts, columns_choice *chosen);
void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan);
void list_instances(const columns_instances &all, variant_list *list);

} // namespace COPES_GPU::sequence

#endif
