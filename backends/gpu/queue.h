/* Where calls are enqueued: a stream, and its device or the part of the device that it has. */
#ifndef COPES_BACKENDS_GPU_QUEUE_H
#define COPES_BACKENDS_GPU_QUEUE_H

#include "backends/gpu/device.h"
#include "backends/gpu/extremes.h"

extern "C" {
#include "common/status.h"
}

namespace COPES_GPU
{

/* The gpu_device describes the part of the device that the stream has. */
struct gpu_queue : gpu_device {
    GPU(Stream_t) stream;
    int id;                        /* the device's number */
    void *primary_context;         /* the device's; made current where the caller has no context of the device */
    const void *green_context;     /* the stream's, which has some of the device's multiprocessors; nullptr: none */
    unsigned long long context_id; /* of the context that was current when a default stream was set; 0 for others */
    mutable bool refused;          /* did the driver refuse a cooperative launch? */
};

inline copes_status fail_of(GPU(Error_t) error, const char *what)
{
    return copes_fail(COPES_ERROR_BACKEND, "%s: %s says: %s", what, COPES_GPU_TITLE, GPU(GetErrorString)(error));
}

/* The status of a call of the runtime. The runtime keeps the last error for GetLastError, so this clears ours. */
inline copes_status status_of(GPU(Error_t) error, const char *what)
{
    if (error == GPU(Success))
        return COPES_OK;
    (void)GPU(GetLastError)();
    return fail_of(error, what);
}

/* How many of the wanted blocks a grid can have: for a kernel whose blocks loop over the rest. */
inline unsigned blocks_of(int64_t wanted, unsigned threads)
{
    const uint64_t most = lesser(MOST_GRID_THREADS / threads, (uint64_t)INT32_MAX);
    return (unsigned)lesser((uint64_t)wanted, most);
}

/* Are a grid's threads as many as a launch takes? */
inline copes_status check_grid(dim3 blocks, dim3 threads)
{
    if ((uint64_t)blocks.x * threads.x <= MOST_GRID_THREADS)
        return COPES_OK;
    return copes_fail(COPES_ERROR_SIZE, "%u blocks of %u threads are more than a launch takes", blocks.x, threads.x);
}

/* Enqueues a kernel. `shared`: bytes of dynamic shared memory, up to 48 KiB, which any kernel may have. */
template <typename... Parameters>
inline copes_status launch(const gpu_queue &queue, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                           size_t shared, std::type_identity_t<Parameters>... arguments)
{
    COPES_TRY(check_grid(blocks, threads));
    return status_of(enqueue(kernel, blocks, threads, shared, queue.stream, arguments...), "launch");
}

/* The same for a kernel that calls await_launch_before. */
template <typename... Parameters>
inline copes_status launch_overlapped(const gpu_queue &queue, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                                      size_t shared, std::type_identity_t<Parameters>... arguments)
{
    COPES_TRY(check_grid(blocks, threads));
    return status_of(enqueue_overlapped(queue.architecture, kernel, blocks, threads, shared, queue.stream,
                                        arguments...),
                     "launch");
}

} // namespace COPES_GPU

#endif
