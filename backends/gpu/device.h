/* What planners know of a device: plain values, so that a plan is made on any host, and for any device. */
#ifndef COPES_BACKENDS_GPU_DEVICE_H
#define COPES_BACKENDS_GPU_DEVICE_H

#include "vendor.h"

namespace COPES_GPU
{

enum { MOST_CLUSTER = 16 }; /* blocks of a cluster; no device has more */

struct gpu_device {
    int capability;    /* for NVIDIA: major 10 + minor */
    int architecture;  /* for NVIDIA: capability, or less if the code was made for less or COPES_GPU_ARCH says so */
    int shared_memory; /* bytes that a block can ask for */
    bool cooperative;  /* can the blocks of a launch wait for each other? */
    int multiprocessors;
    /* clusters[n]: clusters of n blocks that run at a time, with one block on each multiprocessor; 0: the device has
     * none of that size. Devices of one model differ, as different multiprocessors are disabled. */
    int clusters[MOST_CLUSTER + 1];
    char asked[64]; /* the value of COPES_GPU_VARIANT, for is_allowed; empty: planners may take any variant */
};

/* Blocks of the largest cluster whose size is a power of two; 1 where there are no clusters. */
inline int largest_cluster(const gpu_device &device)
{
    int size = MOST_CLUSTER;
    while (size > 1 && device.clusters[size] == 0)
        size /= 2;
    return size;
}

} // namespace COPES_GPU

#endif
