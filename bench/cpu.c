/* The CPU as the benchmark's device: as many threads as OpenMP gives, each with a share of every copy and probe. */
#include "bench/cpu_probe.h"
#include "bench/device.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { LINE = 64 };

typedef struct cpu_state {
    int threads;
    cpu_level level;
    size_t flush_bytes;
    unsigned char *flush; /* read between repeats, so that nothing of a call's data is left in the caches */
} cpu_state;

/* The last-level cache that the first core sees: sysconf may tell of the whole package's. */
static size_t last_level_cache(void)
{
    size_t largest = 0;
    for (int i = 0; i < 8; i++) {
        char path[80], unit = ' ';
        unsigned long size = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            break;
        const int read = fscanf(file, "%lu%c", &size, &unit);
        fclose(file);
        const size_t bytes = (size_t)size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
        if (read >= 1 && bytes > largest)
            largest = bytes;
    }
    return largest > 0 ? largest : (size_t)32 << 20;
}

static cpu_level level_in_use(int device)
{
    char summary[256];
    if (copes_device_summary((DLDevice){kDLCPU, device}, summary, sizeof summary) != COPES_OK)
        return CPU_BASELINE;
    return strstr(summary, ", avx512") != NULL ? CPU_AVX512
           : strstr(summary, ", avx2") != NULL ? CPU_AVX2
                                               : CPU_BASELINE;
}

static void cpu_close(void *state)
{
    cpu_state *cpu = state;
    free(cpu->flush);
    free(cpu);
}

static void *cpu_open(int device, copes_context_options *options)
{
    cpu_state *cpu = malloc(sizeof *cpu);
    if (cpu == NULL)
        return NULL;
    *cpu = (cpu_state){.threads = 1, .level = level_in_use(device), .flush_bytes = 2 * last_level_cache()};
#ifdef _OPENMP
    cpu->threads = omp_get_max_threads();
#endif
    cpu->flush = malloc(cpu->flush_bytes);
    if (cpu->flush == NULL) {
        cpu_close(cpu);
        return NULL;
    }
    memset(cpu->flush, 1, cpu->flush_bytes);
    *options = (copes_context_options){.threads = cpu->threads};
    return cpu;
}

static int64_t cpu_free_memory(void *state)
{
    (void)state;
    char line[128];
    long long kilobytes = -1;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && kilobytes < 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "MemAvailable: %lld kB", &kilobytes);
    if (file != NULL)
        fclose(file);
    if (kilobytes >= 0)
        return (int64_t)kilobytes * 1024;
    return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

/* Reading leaves no lines behind that would have to be written back during the call that is timed. */
static void flush_caches(const cpu_state *cpu)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(cpu->threads) schedule(static)
#endif
    for (size_t i = 0; i < cpu->flush_bytes; i += LINE)
        (void)*(volatile const unsigned char *)(cpu->flush + i);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static double cpu_time(void *state, const bench_job *job)
{
    flush_caches(state);
    const double start = now();
    const int status = job->run(job->what);
    const double end = now();
    return status == 0 ? end - start : -1;
}

static int cpu_copy(void *state, int way, void *to, const void *from, size_t bytes)
{
    const cpu_state *cpu = state;
    const size_t share = (bytes / (size_t)cpu->threads / LINE + 1) * LINE;
#ifdef _OPENMP
#pragma omp parallel for num_threads(cpu->threads) schedule(static)
#endif
    for (int i = 0; i < cpu->threads; i++) {
        const size_t first = (size_t)i * share < bytes ? (size_t)i * share : bytes;
        const size_t size = bytes - first < share ? bytes - first : share;
        if (way == 0)
            memcpy((char *)to + first, (const char *)from + first, size);
        else
            cpu_copy_streaming((char *)to + first, (const char *)from + first, size);
    }
    return 0;
}

static int cpu_probe(void *state)
{
    const cpu_state *cpu = state;
#ifdef _OPENMP
#pragma omp parallel for num_threads(cpu->threads) schedule(static)
#endif
    for (int i = 0; i < cpu->threads; i++)
        cpu_multiply_add(cpu->level);
    return 0;
}

static double cpu_probe_size(void *state)
{
    const cpu_state *cpu = state;
    return cpu_multiply_adds(cpu->level) * cpu->threads;
}

const bench_device bench_device_cpu = {
    .device_type = kDLCPU,
    .copies = 2,
    .open = cpu_open,
    .close = cpu_close,
    .free_memory = cpu_free_memory,
    .time = cpu_time,
    .copy = cpu_copy,
    .multiply_add = cpu_probe,
    .multiply_adds = cpu_probe_size,
};
