/* A family of GPUs as a backend: a context is a device and a stream, and a call is the launch that the problem's
 * operator and type ask for. One source for CUDA and HIP. */
extern "C" {
#include "backends/backend.h"
}

#include "backends/gpu/kernels.h"
#include "current.h"

#include <stdio.h>
#include <stdlib.h>

namespace COPES_GPU
{

/* Makes a device the one that the thread's calls are for, and puts back what the caller had. */
class device_guard
{
    caller_state caller;

  public:
    const copes_status status;

    explicit device_guard(const gpu_queue &queue) : status(caller.enter(queue))
    {
    }
    device_guard(const device_guard &) = delete;
    device_guard &operator=(const device_guard &) = delete;
    ~device_guard()
    {
        if (caller.changed)
            caller.leave();
    }
};

/* An error that is told by other means than a status: not left for the caller's next look either. */
static GPU(Error_t) taken(GPU(Error_t) error)
{
    if (error != GPU(Success))
        (void)GPU(GetLastError)();
    return error;
}

static GPU(Error_t) count_devices(int *count)
{
    *count = 0;
    const GPU(Error_t) error = taken(GPU(GetDeviceCount)(count));
    if (error != GPU(Success))
        *count = 0;
    return error;
}

static int32_t device_count(void)
{
    int count;
    (void)count_devices(&count);
    return count;
}

static void summary(int32_t device, char *text, size_t size)
{
    int count;
    device_properties properties;
    GPU(Error_t) error = count_devices(&count);
    if (error == GPU(Success) && count > 0)
        error = taken(GPU(GetDeviceProperties)(&properties, device));
    if (error != GPU(Success))
        snprintf(text, size, "%s", GPU(GetErrorString)(error));
    else if (count == 0)
        snprintf(text, size, "%s finds none", COPES_GPU_TITLE);
    if (error != GPU(Success) || count == 0)
        return;
    char architecture[64];
    name_architecture(properties, architecture, sizeof architecture);
    snprintf(text, size, "%s, %s, %d multiprocessors, %.1f GiB", properties.name, architecture,
             properties.multiProcessorCount, (double)properties.totalGlobalMem / (1 << 30));
}

/* A context: a device as a whole, and what the stream has of it. */
struct gpu_state {
    gpu_queue whole, part;
};

static copes_status read_device(int32_t device, gpu_queue *queue)
{
    device_properties properties;
    int code = 0;
    queue->id = device;
    COPES_TRY(find_home(device, &queue->home));
    const device_guard guard(*queue);
    COPES_TRY(guard.status);
    COPES_TRY(status_of(GPU(GetDeviceProperties)(&properties, device), "context"));
    COPES_TRY(status_of(find_code(&code), "context"));
    queue->capability = properties.major * 10 + properties.minor;
    queue->architecture = std::min(queue->capability, code);
    queue->shared_memory = most_shared_memory(properties);
    queue->cooperative = BLOCKS_MEET && properties.cooperativeLaunch != 0;
    queue->multiprocessors = properties.multiProcessorCount;
    count_clusters(queue);
    return COPES_OK;
}

static copes_status set_stream(void *state, void *stream)
{
    gpu_state &of = *static_cast<gpu_state *>(state);
    const device_guard guard(of.whole);
    COPES_TRY(guard.status);
    gpu_queue queue = of.whole;
    queue.stream = static_cast<GPU(Stream_t)>(stream);
    COPES_TRY(find_part(of.part, &queue));
    of.part = queue;
    return COPES_OK;
}

static copes_status open_state(int32_t device, const copes_context_options *options, void **state)
{
    gpu_state *made = static_cast<gpu_state *>(calloc(1, sizeof *made));
    if (made == nullptr)
        return copes_fail(COPES_ERROR_MEMORY, "context: %zu bytes could not be allocated", sizeof *made);
    copes_status status = read_device(device, &made->whole);
    if (status == COPES_OK)
        status = set_stream(made, options->stream);
    if (status == COPES_OK)
        *state = made;
    else
        free(made);
    return status;
}

static void close_state(void *state)
{
    free(state);
}

template <typename T> static int64_t workspace_of(const gpu_queue &queue, const copes_problem &problem)
{
    switch (problem.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return act_workspace<T>(queue, problem.act);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return lrpe_workspace<T>(queue, problem.lrpe);
    case COPES_TPA_DECODE: break;
    }
    return tpa_workspace<T>(queue, problem.tpa);
}

template <typename T> static copes_status run_of(const gpu_queue &queue, const copes_problem &problem, void *workspace)
{
    switch (problem.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return run_act<T>(queue, problem.act, workspace);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return run_lrpe<T>(queue, problem.lrpe, workspace);
    case COPES_TPA_DECODE: break;
    }
    return run_tpa<T>(queue, problem.tpa, workspace);
}

static int64_t workspace_size(const void *state, const copes_problem *problem)
{
    const gpu_queue &queue = static_cast<const gpu_state *>(state)->part;
    switch (copes_problem_dtype(problem)) {
    case COPES_F16: return workspace_of<f16>(queue, *problem);
    case COPES_BF16: return workspace_of<bf16>(queue, *problem);
    default: return workspace_of<f32>(queue, *problem);
    }
}

static copes_status run_on(const gpu_queue &queue, const copes_problem &problem, void *workspace)
{
    switch (copes_problem_dtype(&problem)) {
    case COPES_F16: return run_of<f16>(queue, problem, workspace);
    case COPES_BF16: return run_of<bf16>(queue, problem, workspace);
    default: return run_of<f32>(queue, problem, workspace);
    }
}

/* A call whose blocks were to meet and are refused has launched nothing, and goes by kernels whose blocks do not: of softmax
 * over the sequence these take no workspace, and of tpa_decode the same, so that what was given is enough. What a stream
 * captures is not lost by a launch that was not taken. It is not remembered: the next call must not go another way than it
 * would have gone before this one. */
static copes_status run(void *state, const copes_problem *problem, void *workspace)
{
    const gpu_queue &queue = static_cast<const gpu_state *>(state)->part;
    const device_guard guard(queue);
    COPES_TRY(guard.status);
    queue.refused = false;
    const copes_status status = run_on(queue, *problem, workspace);
    if (!queue.refused)
        return status;
    gpu_queue apart = queue;
    apart.cooperative = false;
    return run_on(apart, *problem, workspace);
}

} // namespace COPES_GPU

extern "C" const copes_backend COPES_GPU_BACKEND = {
    .info = {COPES_GPU_NAME, COPES_GPU_DEVICE_TYPE},
    .dtypes = 1u << COPES_F32 | 1u << COPES_F16 | 1u << COPES_BF16,
    .device_count = COPES_GPU::device_count,
    .summary = COPES_GPU::summary,
    .open = COPES_GPU::open_state,
    .close = COPES_GPU::close_state,
    .set_stream = COPES_GPU::set_stream,
    .workspace_size = COPES_GPU::workspace_size,
    .run = COPES_GPU::run,
};
