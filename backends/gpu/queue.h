/* Where work goes: a device's stream, and what the host must know of the device to cut work for it. */
#ifndef COPES_BACKENDS_GPU_QUEUE_H
#define COPES_BACKENDS_GPU_QUEUE_H

#include "vendor.h"

#include <algorithm>

extern "C" {
#include "common/status.h"
}

namespace COPES_GPU
{

enum { MOST_CLUSTER = 16 }; /* blocks of a cluster, as no device has more */

struct queue {
    GPU(Stream_t) stream;
    int device;
    int capability;             /* for NVIDIA: major 10 + minor */
    int architecture;           /* for NVIDIA: that, or what the code was made for if it is less */
    int shared_memory;          /* bytes that a block can ask for */
    bool meets;                 /* can the blocks of a launch wait for each other? */
    mutable bool refused;       /* has a launch whose blocks were to do so been refused for it? */
    void *home;                 /* what is made current where the caller has nothing of the device (current.h) */
    const void *part;           /* of the device, which is what the stream has; nullptr: all of it */
    unsigned long long context; /* by whose number it was found, for a default stream; 0 for others */
    int multiprocessors;
    /* Clusters of so many blocks that run at a time, where a multiprocessor has one block; 0 where there are none of that size.
     * Devices of one model differ, by which of their multiprocessors are left out. */
    int clusters[MOST_CLUSTER + 1];
};

/* Blocks of the largest cluster that is a power of two: 1 where there are none. */
inline int largest_cluster(const queue &to)
{
    int size = MOST_CLUSTER;
    while (size > 1 && to.clusters[size] == 0)
        size /= 2;
    return size;
}

inline copes_status fail_of(GPU(Error_t) error, const char *what)
{
    return copes_fail(COPES_ERROR_BACKEND, "%s: %s says: %s", what, COPES_GPU_TITLE, GPU(GetErrorString)(error));
}

/* Of a call of the runtime, which keeps an error for whoever asks it next: one of ours is told here, and not left. */
inline copes_status status_of(GPU(Error_t) error, const char *what)
{
    if (error == GPU(Success))
        return COPES_OK;
    (void)GPU(GetLastError)();
    return fail_of(error, what);
}

/* How many of the blocks wanted a grid takes: for a kernel whose blocks go on to what is left. */
inline unsigned blocks_of(int64_t wanted, unsigned threads)
{
    const uint64_t most = std::min(MOST_GRID_THREADS / threads, (uint64_t)INT32_MAX);
    return (unsigned)std::min((uint64_t)wanted, most);
}

/* Enqueues a kernel. `shared`: bytes of dynamic shared memory, up to 48 KiB, which any kernel may have. */
template <typename... Parameters>
inline copes_status launch(const queue &to, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared,
                           std::type_identity_t<Parameters>... arguments)
{
    if ((uint64_t)blocks.x * threads.x > MOST_GRID_THREADS)
        return copes_fail(COPES_ERROR_SIZE, "%u blocks of %u threads are more than a launch takes", blocks.x,
                          threads.x);
    return status_of(enqueue(kernel, blocks, threads, shared, to.stream, arguments...), "launch");
}

} // namespace COPES_GPU

#endif
