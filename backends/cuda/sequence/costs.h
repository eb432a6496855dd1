/* The cost of a cut, by numbers that were fitted to measurements on an H200. The planner compares cuts by them
 * (plan.h); no result depends on them. To refit, time the rows of
 *
 *     copes bench act lrpe_rotate lrpe_cosine --act softmax --device cuda
 *
 * once for each method alone (COPES_GPU_VARIANT=sequence_block, sequence_cluster, sequence_group_256,
 * sequence_group_128, sequence_group_64), and choose numbers by which the planner takes the fastest method of each
 * row. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_COSTS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_COSTS_H

#include "backends/cuda/sequence/numbers.h"

namespace COPES_GPU::sequence
{

/* In steps. */
enum { CLUSTER_SKEW = 3 };                   /* more steps of skew are of no use to a cluster */
inline constexpr double CLUSTER_AGREES = 1;  /* for the agreement on a slab in a cluster of several blocks */
inline constexpr double SLAB_BEGINS = 1;     /* for the beginning and the end of a slab */
inline constexpr double NEW_ROTATIONS = 2;   /* for the rotations of another tile */
inline constexpr double LAUNCH_BEGINS = 6.5; /* for the start of a cooperative launch */

/* The steps in which a cooperative launch's group agrees. Steps that take less time are more. */
struct agreement_cost {
    double group, block; /* for the group, and for each block of it */
};
inline constexpr agreement_cost AGREES_PLAIN = {4.6, 0.045}, AGREES_FORWARD = {3, 0.018},
                                AGREES_BACKWARD = {2.7, 0.015};

/* The time of a token's bytes, relative to slabs of the best width. */
inline constexpr double PART_OF_LINES = 1.8; /* groups together have no whole number of lines of 128 bytes */
inline constexpr double UNDER_64_BYTES = 3;  /* groups together have less than half of a line */
inline constexpr double UNDER_64_EACH = 1.8; /* a slab has less than half of a line in one place */
/* Two places of 64 bytes; `ungrouped`: more for the fewer groups that share lines; `odd`: more for an odd number of
 * groups. */
struct halves_cost {
    double base, ungrouped, odd;
};
inline constexpr halves_cost HALVES_FORWARD = {1, 0.15, 0.2}, HALVES_BACKWARD = {0.97, 0.35, 0.2};
/* 64 bytes; `odd` as above. */
struct narrow_cost {
    double base, odd;
};
inline constexpr narrow_cost NARROW_FORWARD = {1.25, 1.5}, NARROW_BACKWARD = {1.06, 1.5};
/* 128 and 256 bytes. */
struct wide_cost {
    double bytes_128, bytes_256;
};
inline constexpr wide_cost WIDE_FORWARD = {1.15, 1}, WIDE_BACKWARD = {1, 1.5}, WIDE_BACKWARD_ROTATED = {1, 1.03};

/* Bytes of a token that a slab has in one place, and that the slabs of all groups have there, side by side. */
inline int contiguous_bytes(const resident_kernel &k)
{
    return k.units * (k.after_softmax == coding::half ? 8 : 16);
}
inline int bytes_together(const resident_kernel &k, const slab_tiling &t)
{
    return contiguous_bytes(k) * t.groups;
}

/* Does a group take a new tile with each slab that is not of a whole tile? Else all of these slabs are of one tile. */
inline bool changes_tiles(const slab_tiling &t)
{
    return t.whole_tiles < t.tiles && t.groups % (t.tiles - t.whole_tiles) != 0;
}

inline double agreement_of(const resident_kernel &k, int blocks)
{
    const agreement_cost cost = !k.rotated() ? AGREES_PLAIN : k.backward ? AGREES_BACKWARD : AGREES_FORWARD;
    return cost.group + cost.block * blocks;
}

/* The cost of a slab's width. Groups side by side share lines of memory if they come to them at about the same time.
 * They do, so the bytes of each slab hardly matter. But if the groups together have no whole number of lines, a line
 * comes a second time, with the next slabs. With an odd number of groups, two groups that share a line are not
 * neighbours on the device. */
inline double width_cost(const resident_kernel &k, const slab_tiling &t)
{
    const int contiguous = contiguous_bytes(k), together = bytes_together(k, t);
    const double lines = together < 64 ? UNDER_64_BYTES : together % 128 != 0 ? PART_OF_LINES : 1, odd = t.groups % 2;
    if (k.after_softmax == coding::half && contiguous == 64) {
        const halves_cost cost = k.backward ? HALVES_BACKWARD : HALVES_FORWARD;
        return lines * (cost.base + cost.ungrouped / t.groups + cost.odd * odd);
    }
    if (contiguous < 64)
        return lines * UNDER_64_EACH;
    if (k.units < 8) {
        const narrow_cost cost = k.backward ? NARROW_BACKWARD : NARROW_FORWARD;
        return lines * (cost.base + cost.odd * odd);
    }
    const wide_cost cost = !k.backward ? WIDE_FORWARD : k.rotated() ? WIDE_BACKWARD_ROTATED : WIDE_BACKWARD;
    return lines * (k.units > 8 ? cost.bytes_256 : cost.bytes_128);
}

/* The time of a cut, in tokens of a thread times threads: the slabs that a group takes one after another, each with
 * its steps, its beginning and end, and the agreement as far as the skew does not cover it. */
inline double cost_of(const resident_kernel &k, const slab_tiling &t)
{
    const int64_t all = (int64_t)t.tiles * t.batch, slabs = (all + t.groups - 1) / t.groups;
    const double agreeing = k.cooperative  ? greater(0.0, agreement_of(k, t.blocks) - t.skew)
                            : t.blocks > 1 ? CLUSTER_AGREES
                                           : 0;
    const double rotations = k.rotated() && changes_tiles(t) ? NEW_ROTATIONS * (double)(slabs - t.whole_slabs) : 0;
    const double steps = (double)slabs * (t.steps + SLAB_BEGINS + agreeing) + rotations;
    return (steps * width_cost(k, t) + (k.cooperative ? LAUNCH_BEGINS : 0)) * k.batch * k.threads;
}

/* From what cost on the portable kernels, which read slabs twice, are faster; relative to a cut with no more than its bytes to
 * move. For long sequences costs grow faster than times do. Fitted to one sequence of 65536 to 262144 tokens and 2 to 48 heads
 * in all, with COPES_GPU_VARIANT=sequence_passes as well. */
inline constexpr double TWO_READINGS_FORWARD = 4, TWO_READINGS_BACKWARD = 6;

inline double cost_of_two_readings(const resident_kernel &k, const gpu_device &device,
                                   const copes_lrpe_problem &problem)
{
    const double units = (double)problem.b * (double)problem.n * (double)problem.h * (double)(problem.d / k.vector);
    return (k.backward ? TWO_READINGS_BACKWARD : TWO_READINGS_FORWARD) * units / device.multiprocessors;
}

} // namespace COPES_GPU::sequence

#endif
