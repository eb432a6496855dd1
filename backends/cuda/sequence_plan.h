/* How the host cuts a problem into slabs, and by which of the kernels: a cluster or all of the device, and how wide. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PLAN_H

#include "backends/cuda/clusters.h"
#include "backends/cuda/sequence_totals.h"

#include <algorithm>

namespace COPES_GPU
{

enum { MOST_STEPS = 1 << 10, SKEW = 3 };

/* Shares slabs out among as many clusters as the device runs at once. */
inline void share_out(int64_t active, cluster_tiling *t)
{
    const int64_t slabs = (int64_t)t->pairs * t->batch;
    t->clusters = (int)(active < slabs ? active : slabs);
    t->whole = t->pairs / t->clusters * t->clusters;
    t->rounds = t->whole / t->clusters * t->batch;
}

/* Takes as many steps for the blocks to agree as there is room for, and are of use: few in a cluster; in all of the device
 * those of nearly three slabs, but one less where the copies of one and the writing of another then begin together, and
 * what begins takes arithmetic. False where there is no room at all. */
template <typename U> bool take_skew(const queue &to, cluster_tiling *t)
{
    constexpr bool TOGETHER = U::WHOLE && U::BACKWARD && U::TURNED;
    const int most = U::WHOLE ? 3 * t->steps - 1 : std::min<int>(SKEW, t->steps - 1);
    const auto fits = [&](int skew) {
        t->skew = skew;
        t->slots = t->steps + U::AHEAD + skew;
        return block_memory<U>::bytes(*t) <= (size_t)to.shared_memory;
    };
    int skew = most;
    while (skew >= 0 && !fits(skew))
        skew--;
    return skew >= 0 && fits(skew - (TOGETHER && skew > 1 && (U::AHEAD + skew) % t->steps == 1));
}

/* The pairs whose turns may be in use at once: of eight slabs, which are prepared, read, agreed on or written. */
template <typename U> int turn_sets(int64_t batch)
{
    return U::WHOLE ? (int)(1 + (6 + batch) / batch) : 4;
}

/* The cut of a problem into slabs for clusters of `ranks` blocks; false where it does not fit, or the device has no such
 * clusters. */
template <typename U> bool cut(const queue &to, const copes_lrpe_problem &problem, int ranks, cluster_tiling *t)
{
    const int64_t units = problem.d / U::N, step = (int64_t)U::BATCH * ranks * U::ROWS;
    const int64_t steps = (problem.n + step - 1) / step, pairs = problem.h * units / U::LANES;
    const int active = U::WHOLE ? ranks <= MOST_BLOCKS : active_clusters(to, ranks);
    if (active == 0 || problem.h * units % U::LANES != 0 || (U::C == coding::half && units % 2 != 0) ||
        pairs * problem.b > INT32_MAX / 2 || steps > MOST_STEPS)
        return false;
    const int64_t tokens = ranks * U::ROWS;   /* between a thread's */
    const int sets = turn_sets<U>(problem.b); /* as a call among designated initializers, nvcc 13 misplaces them all */
    *t = {.ranks = ranks,
          .steps = (int)steps,
          .units = (int)units,
          .pairs = (int)pairs,
          .batch = (int)problem.b,
          .sets = sets,
          .x_step = tokens * problem.x.stride[1],
          .g_step = tokens * problem.src.stride[1],
          .to_step = tokens * problem.dst.stride[1]};
    share_out(active, t);
    return pairs * problem.b <= (int64_t)block_memory<U>::MOST * t->clusters && take_skew<U>(to, t);
}

/* The time of a cut, in units of a thread: slabs that a cluster takes one after another, and a step more for what each
 * begins and ends with, or two where blocks have to agree. All of the device takes a slab in its share of the tokens, or
 * longer, where the skew is less than what agreeing takes. */
template <typename U> double cost_of(const copes_lrpe_problem &problem, const cluster_tiling &t)
{
    const int64_t slabs = (int64_t)t.pairs * t.batch, rounds = (slabs + t.clusters - 1) / t.clusters;
    if constexpr (U::WHOLE) {
        constexpr double AGREEMENT = 6000.0 / U::KEPT;
        const double slab = (double)problem.n * U::LANES / t.ranks, skew = slab * t.skew / t.steps;
        return (double)slabs * slab * std::max(1.0, (slab + AGREEMENT) / (slab + skew));
    }
    return (double)rounds * (t.steps + (t.ranks > 1 ? 2 : 1)) * U::BATCH * U::THREADS;
}

enum class cut_kind { none, wide, narrow, whole, whole_narrow };

struct sequence_plan {
    cut_kind kind = cut_kind::none;
    cluster_tiling tiling = {};
    double cost = INFINITY;
    size_t workspace = 0;
};

/* Takes the cheapest cut over all sizes of clusters, if it is cheaper than the plan's. */
template <typename U>
void consider(const queue &to, const copes_lrpe_problem &problem, cut_kind kind, double factor, sequence_plan *plan)
{
    const int least = U::WHOLE ? to.multiprocessors : 1, most = U::WHOLE ? least : U::MOST_RANKS;
    for (int ranks = least; ranks <= most; ranks++) {
        cluster_tiling t;
        if (!cut<U>(to, problem, ranks, &t) || cost_of<U>(problem, t) * factor >= plan->cost)
            continue;
        *plan = {kind, t, cost_of<U>(problem, t) * factor};
        if constexpr (U::WHOLE)
            plan->workspace = device_totals<U>::bytes(t);
    }
}

/* What a slab of 64 bytes costs beside one of 128, a line of the caches, as measured: more, most where it is in halves
 * of 32 and no arithmetic hides that; less where the second vector of a gradient takes the room of more tokens. */
template <typename T, coding C, role R>
inline constexpr double NARROW_COST = C == coding::half && sizeof(T) == 4 ? 2
                                      : R == role::backward               ? 0.85
                                                                          : 1.15;

/* And what one of 128 bytes costs all of the device beside one of 256: most in halves of 64. */
template <coding C, role R>
inline constexpr double WHOLE_NARROW_COST = R == role::given     ? 1
                                            : C != coding::half  ? 1.12
                                            : R == role::forward ? 1.4
                                                                 : 1.2;

/* The kernels of an encoding and direction: slabs of 128 and of 64 bytes in a cluster, and of 256 and 128 in all of
 * the device. */
template <typename T, coding C, role R> struct instances {
    typedef unit_of<T, C, R, 8> wide;
    typedef unit_of<T, C, R, 4> narrow;
    typedef unit_of<T, C, R, 16, scope::device> whole;
    typedef unit_of<T, C, R, 8, scope::device> whole_narrow;
    /* Is a slab of 64 bytes in a cluster faster than any in all of the device? Only where three vectors of each token
     * leave little room to agree. */
    static constexpr bool NARROW_FIRST = R == role::backward && C == coding::cosine;
};

/* As measured: 128 bytes in a cluster if they fit, or 64 if those are faster; else all of the device. */
template <typename T, coding C, role R> sequence_plan plan_of(const queue &to, const copes_lrpe_problem &problem)
{
    typedef instances<T, C, R> all;
    sequence_plan plan;
    consider<typename all::wide>(to, problem, cut_kind::wide, 1, &plan);
    if (plan.kind != cut_kind::none || all::NARROW_FIRST)
        consider<typename all::narrow>(to, problem, cut_kind::narrow, NARROW_COST<T, C, R>, &plan);
    if (plan.kind != cut_kind::none)
        return plan;
    consider<typename all::whole>(to, problem, cut_kind::whole, 1, &plan);
    consider<typename all::whole_narrow>(to, problem, cut_kind::whole_narrow, WHOLE_NARROW_COST<C, R>, &plan);
    if (plan.kind == cut_kind::none)
        consider<typename all::narrow>(to, problem, cut_kind::narrow, NARROW_COST<T, C, R>, &plan);
    return plan;
}

} // namespace COPES_GPU

#endif
