/* The backend of a family of GPUs: devices, contexts, and the planner for each problem. One source for CUDA and HIP. */
#include "backends/gpu/environment.h"
#include "backends/gpu/families.h"
#include "current.h"

#include <stdio.h>
#include <stdlib.h>

namespace COPES_GPU
{

/* Makes a device current in the calling thread for as long as the guard lives. */
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

/* Clears an error in the runtime, so that it is not left for the caller's next cudaGetLastError. */
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
    if (is_modelled())
        return 1;
    (void)count_devices(&count);
    return count;
}

static void summary(int32_t device, char *text, size_t size)
{
    int count;
    device_properties properties;
    if (is_modelled()) {
        snprintf(text, size, "a model that plans and does not run, by COPES_GPU_MODEL: %s", getenv("COPES_GPU_MODEL"));
        return;
    }
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

/* A context: `whole` is the device, `queue` the part of it that the stream has. */
struct gpu_state {
    gpu_queue whole, queue;
    bool modelled; /* there is no device */
};

void list_variants(variant_list *list)
{
    act::list_variants(list);
    lrpe::list_variants(list);
    sequence::list_variants(list);
    tpa::list_variants(list);
    qk::list_variants(list);
    merge::list_variants(list);
}

static size_t variants(const char **names, size_t capacity)
{
    variant_list list = {names, capacity, 0, nullptr, 0, false};
    list_variants(&list);
    return list.count;
}

static copes_status read_device(int32_t device, gpu_queue *queue)
{
    device_properties properties;
    int code = 0;
    queue->id = device;
    COPES_TRY(find_primary_context(device, &queue->primary_context));
    const device_guard guard(*queue);
    COPES_TRY(guard.status);
    COPES_TRY(status_of(GPU(GetDeviceProperties)(&properties, device), "context"));
    COPES_TRY(status_of(find_code(&code), "context"));
    queue->capability = properties.major * 10 + properties.minor;
    queue->architecture = lesser(queue->capability, code);
    queue->shared_memory = most_shared_memory(properties);
    queue->cooperative = BLOCKS_MEET && properties.cooperativeLaunch != 0;
    queue->multiprocessors = properties.multiProcessorCount;
    COPES_TRY(read_choice(queue));
    count_clusters(queue);
    return COPES_OK;
}

static copes_status set_stream(void *state, void *stream)
{
    gpu_state &of = *static_cast<gpu_state *>(state);
    if (of.modelled)
        return COPES_OK;
    const device_guard guard(of.whole);
    COPES_TRY(guard.status);
    gpu_queue queue = of.whole;
    queue.stream = static_cast<GPU(Stream_t)>(stream);
    COPES_TRY(find_stream_resources(of.queue, &queue));
    of.queue = queue;
    return COPES_OK;
}

static copes_status open_state(int32_t device, const copes_context_options *options, void **state)
{
    gpu_state *made = static_cast<gpu_state *>(calloc(1, sizeof *made));
    if (made == nullptr)
        return copes_fail(COPES_ERROR_MEMORY, "context: %zu bytes could not be allocated", sizeof *made);
    made->modelled = is_modelled();
    copes_status status = made->modelled ? read_model(&made->queue) : read_device(device, &made->whole);
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

template <typename T>
static copes_status plan_of(const gpu_device &device, const copes_problem &problem, copes_plan *plan)
{
    switch (problem.kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return act::plan<T>(device, problem.act, plan);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return lrpe::plan<T>(device, problem.lrpe, plan);
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return qk::plan<T>(device, problem.qk, plan);
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: return merge::plan<T>(device, problem.merge, plan);
    case COPES_TPA_DECODE: break;
    }
    return tpa::plan<T>(device, problem.tpa, plan);
}

static copes_status plan_for(const gpu_device &device, const copes_problem &problem, copes_plan *plan)
{
    *plan = {};
    switch (copes_problem_dtype(&problem)) {
    case COPES_F16: return plan_of<f16>(device, problem, plan);
    case COPES_BF16: return plan_of<bf16>(device, problem, plan);
    default: return plan_of<f32>(device, problem, plan);
    }
}

static copes_status plan(const void *state, const copes_problem *problem, copes_plan *plan)
{
    return plan_for(static_cast<const gpu_state *>(state)->queue, *problem, plan);
}

static copes_status enqueue_plan(const gpu_queue &queue, const copes_problem &problem, const copes_plan &plan,
                                 void *workspace)
{
    if (plan.run_first != nullptr)
        COPES_TRY(reinterpret_cast<plan_run>(plan.run_first)(queue, problem, plan, workspace));
    return reinterpret_cast<plan_run>(plan.run)(queue, problem, plan, workspace);
}

/* If the driver refuses the cooperative launch of a call, that kernel has not run. The call then goes to kernels whose
 * blocks do not wait for each other. The given workspace is enough: for softmax over the sequence its size allows for
 * these kernels, and for tpa_decode they need the same. A kernel that runs first runs again, with the same result. A
 * refused launch does not break the capture of a stream. It is not remembered, since a call must not change the way of
 * the next. */
static copes_status run(void *state, const copes_problem *problem, const copes_plan *plan, void *workspace)
{
    const gpu_queue &queue = static_cast<const gpu_state *>(state)->queue;
    if (static_cast<const gpu_state *>(state)->modelled)
        return copes_fail(COPES_ERROR_UNSUPPORTED,
                          "context: COPES_GPU_MODEL was set when it was made; it plans calls "
                          "and runs none");
    const device_guard guard(queue);
    COPES_TRY(guard.status);
    queue.refused = false;
    const copes_status status = enqueue_plan(queue, *problem, *plan, workspace);
    if (!queue.refused)
        return status;
    gpu_queue apart = queue;
    copes_plan other;
    apart.cooperative = false;
    COPES_TRY(plan_for(apart, *problem, &other));
    return enqueue_plan(apart, *problem, other, workspace);
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
    .plan = COPES_GPU::plan,
    .run = COPES_GPU::run,
    .variants = COPES_GPU::variants,
};
