/* What the host asks of a device before it cuts work for clusters. */
#ifndef COPES_BACKENDS_CUDA_CLUSTERS_H
#define COPES_BACKENDS_CUDA_CLUSTERS_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

enum { MOST_CLUSTER = 16 }; /* blocks of a cluster, as no device has more */

/* Clusters of `size` blocks that run at a time, where a multiprocessor has one block; 0 where the device has none of
 * that size. Devices of one model differ, by which of their multiprocessors are left out. */
int active_clusters(const queue &to, int size);

} // namespace COPES_GPU

#endif
