/* What planners know of a device: plain values, so that a plan is made on any host, and for any device. */
#ifndef COPES_BACKENDS_GPU_DEVICE_H
#define COPES_BACKENDS_GPU_DEVICE_H

#include "vendor.h"

namespace COPES_GPU
{

enum { MOST_CLUSTER = 16 }; /* blocks of a cluster, as no device has more */

struct gpu_device {
    int capability;    /* for NVIDIA: major 10 + minor */
    int architecture;  /* for NVIDIA: that, or what the code was made for if it is less */
    int shared_memory; /* bytes that a block can ask for */
    bool cooperative;  /* can the blocks of a launch wait for each other? */
    int multiprocessors;
    /* Clusters of so many blocks that run at a time, where a multiprocessor has one block; 0 where there are none of that
     * size. Devices of one model differ, by which of their multiprocessors are left out. */
    int clusters[MOST_CLUSTER + 1];
    char forced[32]; /* the one variant that planners may take, where they can, up to its "<"; empty: any */
};

/* Blocks of the largest cluster that is a power of two: 1 where there are none. */
inline int largest_cluster(const gpu_device &device)
{
    int size = MOST_CLUSTER;
    while (size > 1 && device.clusters[size] == 0)
        size /= 2;
    return size;
}

} // namespace COPES_GPU

#endif
