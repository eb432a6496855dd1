/* A family of GPUs as the benchmark's device. Everything of a measurement is queued before any of it is waited for, so
 * that no time of the host's is in between; jobs are timed by events on their stream. */
#include "bench/device.h"
#include "memory/current.h"

#include <stdlib.h>

/* bench/gpu_flush.cu: 0, or -1 where the launch failed. */
int GPU_FLUSH(void *stream, void *memory, size_t bytes);

typedef struct gpu_state {
    int device;
    GPU(Stream_t) stream;
    GPU(Event_t) begin, end;
    void *flush;
    size_t flush_bytes;
} gpu_state;

static void gpu_close(void *state)
{
    gpu_state *gpu = state;
    gpu_turn turn;
    int done = gpu_enter(&turn, gpu->device) == 0;
    done &= gpu->end == NULL || GPU(EventDestroy)(gpu->end) == GPU(Success);
    done &= gpu->begin == NULL || GPU(EventDestroy)(gpu->begin) == GPU(Success);
    done &= gpu->stream == NULL || GPU(StreamDestroy)(gpu->stream) == GPU(Success);
    done &= gpu->flush == NULL || GPU(Free)(gpu->flush) == GPU(Success);
    (void)gpu_leave(&turn, done);
    free(gpu);
}

static int prepare(gpu_state *gpu)
{
    gpu_turn turn;
    int cache = 0;
    int done = gpu_enter(&turn, gpu->device) == 0 &&
               GPU(DeviceGetAttribute)(&cache, GPU_L2_CACHE, gpu->device) == GPU(Success);
    gpu->flush_bytes = 3 * (size_t)cache;
    done = done && GPU(StreamCreateWithFlags)(&gpu->stream, GPU(StreamNonBlocking)) == GPU(Success) &&
           GPU(EventCreate)(&gpu->begin) == GPU(Success) && GPU(EventCreate)(&gpu->end) == GPU(Success) &&
           GPU(Malloc)(&gpu->flush, gpu->flush_bytes) == GPU(Success) &&
           GPU(Memset)(gpu->flush, 1, gpu->flush_bytes) == GPU(Success);
    return gpu_leave(&turn, done);
}

static void *gpu_open(int device, copes_context_options *options)
{
    gpu_state *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL)
        return NULL;
    gpu->device = device;
    if (prepare(gpu) != 0) {
        gpu_close(gpu);
        return NULL;
    }
    *options = (copes_context_options){.stream = gpu->stream};
    return gpu;
}

static int64_t gpu_free_memory(void *state)
{
    const gpu_state *gpu = state;
    gpu_turn turn;
    size_t available = 0, all = 0;
    const int done = gpu_enter(&turn, gpu->device) == 0 && GPU(MemGetInfo)(&available, &all) == GPU(Success);
    return gpu_leave(&turn, done) == 0 ? (int64_t)available : 0;
}

typedef struct recording {
    GPU(Stream_t) stream;
    GPU(GraphExec_t) graph;
} recording;

static int replay_recording(void *what)
{
    const recording *record = what;
    return GPU(GraphLaunch)(record->graph, record->stream) == GPU(Success) ? 0 : -1;
}

static double time_once(const gpu_state *gpu, const bench_job *job)
{
    float milliseconds = -1;
    if (GPU_FLUSH(gpu->stream, gpu->flush, gpu->flush_bytes) != 0 ||
        GPU(EventRecord)(gpu->begin, gpu->stream) != GPU(Success) || job->run(job->what) != 0 ||
        GPU(EventRecord)(gpu->end, gpu->stream) != GPU(Success) || GPU(EventSynchronize)(gpu->end) != GPU(Success) ||
        GPU(EventElapsedTime)(&milliseconds, gpu->begin, gpu->end) != GPU(Success))
        return -1;
    return (double)milliseconds;
}

static GPU(Graph_t) record_job(const gpu_state *gpu, const bench_job *job)
{
    GPU(Graph_t) graph = NULL;
    if (GPU(StreamBeginCapture)(gpu->stream, GPU(StreamCaptureModeThreadLocal)) != GPU(Success))
        return NULL;
    const int status = job->run(job->what);
    if (GPU(StreamEndCapture)(gpu->stream, &graph) == GPU(Success) && status == 0)
        return graph;
    if (graph != NULL)
        (void)GPU(GraphDestroy)(graph);
    return NULL;
}

static double time_replay(const gpu_state *gpu, const bench_job *job)
{
    recording record = {.stream = gpu->stream};
    const GPU(Graph_t) graph = record_job(gpu, job);
    if (graph == NULL)
        return -1;
    double milliseconds = -1;
    if (GPU(GraphInstantiateWithFlags)(&record.graph, graph, 0) == GPU(Success)) {
        if (replay_recording(&record) == 0) /* the first replay is when a graph goes to the device */
            milliseconds = time_once(gpu, &(bench_job){.run = replay_recording, .what = &record});
        (void)GPU(GraphExecDestroy)(record.graph);
    }
    (void)GPU(GraphDestroy)(graph);
    return milliseconds;
}

/* What it times, the flush and the job, finds the device current and may leave an error. */
static double gpu_time(void *state, const bench_job *job)
{
    const gpu_state *gpu = state;
    gpu_turn turn;
    double milliseconds = -1;
    if (gpu_enter(&turn, gpu->device) == 0)
        milliseconds = job->replay ? time_replay(gpu, job) : time_once(gpu, job);
    (void)gpu_leave(&turn, milliseconds >= 0);
    return milliseconds;
}

static int gpu_copy(void *state, int way, void *to, const void *from, size_t bytes)
{
    (void)way;
    const gpu_state *gpu = state;
    return GPU(MemcpyAsync)(to, from, bytes, GPU(MemcpyDeviceToDevice), gpu->stream) == GPU(Success) ? 0 : -1;
}

/* The multiply-adds of tensor cores depend on the type and the shape; no probe stands for them. */
static int no_probe(void *state)
{
    (void)state;
    return -1;
}

static double no_probe_size(void *state)
{
    (void)state;
    return 0;
}

const bench_device GPU_BENCH = {
    .device_type = GPU_DEVICE_TYPE,
    .copies = 1,
    .replays = true,
    .open = gpu_open,
    .close = gpu_close,
    .free_memory = gpu_free_memory,
    .time = gpu_time,
    .copy = gpu_copy,
    .multiply_add = no_probe,
    .multiply_adds = no_probe_size,
};
