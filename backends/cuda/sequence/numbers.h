/* What the planner knows of the kernels that keep a slab on chip, so that it is one function for all of them. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_NUMBERS_H
#define COPES_BACKENDS_CUDA_SEQUENCE_NUMBERS_H

#include "backends/cuda/sequence/tiling.h"

namespace COPES_GPU::sequence
{

/* Slabs of 128 bytes in a cluster, and of 256, 128 and 64 in a cooperative launch. */
enum resident_width { CLUSTER_128, GROUP_256, GROUP_128, GROUP_64, RESIDENT_WIDTHS };

typedef void resident_function(copes_lrpe_problem, slab_tiling);

/* See kernel_row and kernel_of for the numbers. */
struct resident_kernel {
    const char *variant, *alone; /* its name; its name where a block has a slab alone */
    resident_function *kernel;
    coding after_softmax;
    bool backward, cooperative;
    int element, vector; /* bytes of an element; elements of a unit */
    int units, batch, ahead, rows, threads, block;
    int sets; /* slabs whose references may be in use at once */
    memory_needs memory;
    int columns, totals; /* of a slab: its columns, and the words of their totals */

    bool rotated() const
    {
        return after_softmax != coding::none;
    }
};

} // namespace COPES_GPU::sequence

#endif
