/* Softmax over the sequence in one launch, alone or before an encoding, on any GPU and of any length. The blocks of a cluster
 * share a slab; without clusters one block has it. The block reads a slab twice. Memory bounds the first reading. The second
 * reading is bounded by the share of the slabs that the caches still hold. Where a vendor's own kernel can keep a slab on chip,
 * that kernel comes first. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

inline constexpr columns_method whole = {columns_name, COPES_BOTH_PASSES};

/* Blocks of a cluster, such that the device has all slabs' tokens soonest: few, where more are hardly sooner. OVERHEAD: of a
 * block, in tokens of a row. `on_each` blocks run on a multiprocessor. */
static int blocks_of_cluster(const gpu_device &device, const copes_lrpe_problem &problem, double slabs, int rows,
                             int on_each)
{
    constexpr int OVERHEAD = 24;
    int best = 1;
    double least = INFINITY;
    for (int blocks = 1; blocks <= largest_cluster(device); blocks++) {
        const double at_once = on_each * (blocks == 1 ? device.multiprocessors : device.clusters[blocks]);
        const double time = ceil(slabs / at_once) * (OVERHEAD + ceil((double)problem.n / (blocks * rows)));
        if (at_once > 0 && time < 0.95 * least) {
            best = blocks;
            least = time;
        }
    }
    return best;
}

static copes_status cut_columns(const gpu_device &device, const copes_lrpe_problem &problem,
                                const columns_instance &one, int64_t units, int tile_units, int parts, columns_cut *cut)
{
    const int rows = THREADS / tile_units;
    const int64_t tiles = (units + tile_units - 1) / tile_units;
    const double slabs = (double)problem.b * (double)problem.h * (double)tiles;
    const int blocks = parts > 0 ? parts : blocks_of_cluster(device, problem, slabs, rows, one.on_each);
    if (slabs * blocks > INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %.3g slabs; a device takes 2^31 - 1", slabs);
    const int64_t of_rows = (int64_t)blocks * rows, tokens = (problem.n + of_rows - 1) / of_rows;
    if (tokens >= INT32_MAX)
        return copes_fail(COPES_ERROR_SIZE, "softmax over the sequence: %lld tokens; a device takes 2^31 - 1 a thread",
                          (long long)problem.n);
    *cut = {{units, divider(tiles), divider(blocks), (int)tokens, divider(problem.h), grid_lengths(problem)},
            (uint32_t)(slabs * blocks),
            parts == 0,
            one.shared};
    return COPES_OK;
}

encoding encoding_of(const copes_lrpe_problem &problem)
{
    if (problem.variant == COPES_LRPE_COSINE)
        return encoding::cosine;
    return problem.pairing == COPES_LRPE_HALF && problem.k > 0 ? encoding::half : encoding::interleaved;
}

/* Do instances take a problem: are its rows whole units of their vectors? */
static bool take_units(const columns_instances &all, const copes_lrpe_problem &problem, encoding e, role r,
                       bool anywhere)
{
    const int unit = all.unit[(int)e], joined = e == encoding::interleaved ? all.vector : unit;
    if (all.others == nullptr)
        return true;
    return all.of[(int)e][anywhere][(int)r].variant != nullptr && problem.d % all.vector == 0 &&
           problem.k % unit == 0 && problem.begin % joined == 0 && is_in_vectors(problem, all.vector) &&
           (!anywhere || (COPES_VECTORS_ANYWHERE && may_be_in_line(problem)));
}

copes_status choose_columns(const columns_instances &vectors, const gpu_device &device,
                            const copes_lrpe_problem &problem, bool given, int parts, columns_choice *chosen)
{
    const encoding asked = encoding_of(problem);
    const role r = !problem.backward ? role::forward : given ? role::given : role::backward;
    const bool anywhere = is_scattered(problem);
    const columns_instances *all = &vectors;
    while (!take_units(*all, problem, asked, r, anywhere))
        all = all->others;
    const bool single = all->others == nullptr;
    const encoding e = single && asked == encoding::interleaved ? encoding::half : asked;
    const int64_t unit = all->unit[(int)e];
    const int64_t units = e == encoding::cosine ? units_of<encoding::cosine>(problem.d, problem.k, unit)
                                                : units_of<encoding::half>(problem.d, problem.k, unit);
    const columns_instance &one = all->of[(int)e][single || anywhere][(int)r];
    COPES_TRY(cut_columns(device, problem, one, units, tile_units((int)unit, vectors.vector), parts, &chosen->cut));
    chosen->variant = one.variant;
    chosen->kernel = one.kernel == nullptr ? all->anywhere(e, r) : one.kernel;
    return COPES_OK;
}

void list_instances(const columns_instances &all, variant_list *list)
{
    for (int anywhere = 0; anywhere < 2; anywhere++)
        for (const auto &of : all.of)
            for (const columns_instance &one : of[anywhere])
                if (one.variant != nullptr)
                    list->add(one.variant);
}

/* The kernel's arguments. */
struct columns_arguments {
    copes_lrpe_problem problem;
    columns_choice chosen;
};

static copes_status run_columns(const gpu_queue &queue, const copes_problem &, const copes_plan &plan, void *)
{
    const columns_arguments &all = tiling_of<columns_arguments>(plan);
    return all.chosen.launch(queue, all.problem, nullptr);
}

void take_columns(const copes_lrpe_problem &problem, const columns_choice &chosen, copes_plan *plan)
{
    set_launch(plan, chosen.cut.grid, THREADS, (int64_t)chosen.cut.shared);
    plan->cluster = chosen.cut.clusters ? (int)chosen.cut.slabs.blocks.divisor : 1;
    set_tiling(plan, columns_arguments{problem, chosen});
    take(plan, chosen.variant, run_columns);
}

template <typename T>
copes_status plan_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan)
{
    columns_choice chosen = {};
    COPES_TRY(choose_columns(columns_of<whole, T>, device, problem, given, 0, &chosen));
    take_columns(problem, chosen, plan);
    return COPES_OK;
}

template <typename T> void list_columns(variant_list *list)
{
    list_instances(columns_of<whole, T>, list);
}

#define INSTANTIATE(T)                                                                                                 \
    template copes_status plan_columns<T>(const gpu_device &, const copes_lrpe_problem &, bool, copes_plan *);         \
    template void list_columns<T>(variant_list *);
INSTANTIATE(f32)
INSTANTIATE(f16)
INSTANTIATE(bf16)
template void list_columns<any_type>(variant_list *);

} // namespace COPES_GPU::sequence
