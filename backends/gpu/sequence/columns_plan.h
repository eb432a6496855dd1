/* The instances of the portable kernel, as a table for each method and storage type, and what a planner chooses of it. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H
#define COPES_BACKENDS_GPU_SEQUENCE_COLUMNS_PLAN_H

#include "backends/gpu/plan.h"
#include "backends/gpu/sequence/apply.h"
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
    slab_cut slabs;
    uint32_t grid;
    bool clusters;
    size_t shared = 0;
};

/* Any instance of the kernel. */
typedef void columns_kernel(copes_lrpe_problem, slab_cut, column *parts);

struct columns_choice {
    const char *variant;
    columns_kernel *kernel;
    columns_cut cut;

    copes_status launch(const gpu_queue &queue, const copes_lrpe_problem &problem, column *parts) const
    {
        return launch_ex(queue, {.cluster = cut.clusters ? (int)cut.slabs.blocks.divisor : 1}, kernel, cut.grid,
                         THREADS, cut.shared, problem, cut.slabs, parts);
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

/* Does sequence_apply finish tokens whose sums are known? Neighbouring features of softmax alone lie best in the units that
 * sequence_columns has. */
template <typename T, encoding E, copes_passes P>
inline constexpr bool is_applied = P == COPES_SECOND_PASS && E != encoding::interleaved && !is_single<T>;

/* Angles of a thread's unit. */
template <typename T, encoding E, copes_passes P>
inline constexpr int unit_of = is_applied<T, E, P> ? vector_length<T> : unit_angles<T>;

/* Are there kernels of vectors whose tokens may be anywhere for a role and a pass? Not for both passes forward, as two launches always take their place.
 * Backward one launch takes a call without lse, or with theta's gradient. */
template <role R, copes_passes P>
inline constexpr bool has_vectors_anywhere = COPES_VECTORS_ANYWHERE && !(R == role::forward && P == COPES_BOTH_PASSES);

/* Is there a kernel? sequence_apply takes vectors of 8 bytes, too: of heads of 72 features, say, and of all tokens that have positions,
 * as these bind it. */
template <typename T, encoding E, role R, bool ANYWHERE, copes_passes P>
inline constexpr bool has_instance =
    has_role<T, E, R, ANYWHERE, P> &&
    (is_applied<T, E, P> && sizeof(T) == 2 ? is_narrow<T> || !ANYWHERE : !is_narrow<T>) &&
    (is_single<T> ? ANYWHERE && E != encoding::interleaved : !ANYWHERE || has_vectors_anywhere<R, P>);

/* A kernel and its name; nullptr both where there is none. */
struct columns_instance {
    const char *variant;
    columns_kernel *kernel; /* nullptr of a name: anywhere.cu has it */
    int on_each;            /* blocks of a multiprocessor */
    size_t shared;          /* bytes of a block */
};

/* The kernels of a method for a storage type. */
struct columns_instances {
    int vector;  /* elements of a vector */
    int unit[3]; /* angles of a unit, of each encoding */
    columns_kernel *(*anywhere)(encoding, role);
    const columns_instances *others; /* those that take what these do not; nullptr of single elements, which take all */
    columns_instance of[3][2][3];    /* encoding; anywhere; role */
};

/* anywhere.cu: the kernels of single elements, and those of vectors whose tokens have positions, where a vendor's registers hold
 * them. */
template <typename T, copes_passes P> columns_kernel *kernels_anywhere(encoding e, role r);

template <typename T, encoding E, role R, bool ANYWHERE, copes_passes P> constexpr columns_kernel *kernel_of_pass()
{
    if constexpr (is_applied<T, E, P>)
        return sequence_apply<T, E, R, ANYWHERE>;
    else
        return sequence_columns<T, unit_angles<T>, E, R, ANYWHERE, P>;
}

template <columns_method M, typename T, copes_passes P, encoding E, role R, bool ANYWHERE>
constexpr void fill_instance(columns_instance (&of)[3])
{
    constexpr int on_each = columns_on_each<R, P, vectors_anywhere<unit_angles<T>, ANYWHERE>>;
    if constexpr (has_instance<T, E, R, ANYWHERE, P>)
        of[(int)R] = {columns_variant<M, T, E, R, ANYWHERE>, nullptr, on_each, 0};
    if constexpr (has_instance<T, E, R, ANYWHERE, P> && is_applied<T, E, P>)
        of[(int)R].shared = apply_bytes<T, E, R>;
    if constexpr (has_instance<T, E, R, ANYWHERE, P> && !ANYWHERE)
        of[(int)R].kernel = kernel_of_pass<T, E, R, false, P>();
}

template <columns_method M, typename T, copes_passes P, encoding E, bool ANYWHERE>
constexpr void fill_roles(columns_instance (&of)[2][3])
{
    fill_instance<M, T, P, E, role::forward, ANYWHERE>(of[ANYWHERE]);
    fill_instance<M, T, P, E, role::backward, ANYWHERE>(of[ANYWHERE]);
    fill_instance<M, T, P, E, role::given, ANYWHERE>(of[ANYWHERE]);
}

template <columns_method M, typename T, copes_passes P> constexpr const columns_instances *others_of();

template <columns_method M, typename T, copes_passes P, encoding... E> constexpr columns_instances make_instances()
{
    columns_instances all = {vector_length<T>, {unit_of<T, E, P>...}, kernels_anywhere<T, P>, others_of<M, T, P>(), {}};
    (fill_roles<M, T, P, E, false>(all.of[(int)E]), ...);
    (fill_roles<M, T, P, E, true>(all.of[(int)E]), ...);
    return all;
}

template <columns_method M, typename T, copes_passes P = M.passes>
inline constexpr columns_instances columns_of =
    make_instances<M, T, P, encoding::half, encoding::interleaved, encoding::cosine>();

template <columns_method M, typename T, copes_passes P> constexpr const columns_instances *others_of()
{
    if constexpr (is_single<T>)
        return nullptr;
    else if constexpr (P == COPES_SECOND_PASS && sizeof(T) == 2 && !is_narrow<T>)
        return &columns_of<M, narrow<T>, P>;
    else
        return &columns_of<M, any_type, P>;
}

/* columns.cu: the encoding of a problem; of softmax alone, of neighbours. */
encoding encoding_of(const copes_lrpe_problem &problem);

/* columns.cu: chooses among instances for a storage type and pass. `parts`: how many of a slab; 0: its blocks are a cluster. */
copes_status choose_columns(const columns_instances &vectors, const gpu_device &device,
                            const copes_lrpe_problem &problem, bool given, int parts, columns_choice *chosen);
void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan);
void list_instances(const columns_instances &all, variant_list *list);

} // namespace COPES_GPU::sequence

#endif
