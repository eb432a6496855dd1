/* copes doctor: what was built, what runs here and why, and one line of it all for an issue. */
#include "tools/doctor.h"

#include "tools/arguments.h"
#include "tools/build_facts.h"
#include "tools/commands.h"
#include "tools/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes doctor\n"
    "\n"
    "Prints what was built and by what, each backend's devices or why it has none, which level of "
    "instructions the CPU\n"
    "runs and why, threads, and variables of the environment that matter; computes eight numbers "
    "on each device. The last\n"
    "line has the most of it, to paste into an issue. Exits 1 where a device computes nothing or "
    "wrong numbers.\n";

static const struct {
    const char *name, *architectures, *compiler;
} gpu_builds[] = {{"cuda", BUILD_CUDA, "nvcc"}, {"hip", BUILD_HIP, "hipcc"}};

/* What is known of one backend, in words. */
typedef struct backend_state {
    char devices[2 * DOCTOR_TEXT]; /* for the last line; of many devices the first few */
    int failed;
} backend_state;

/* `host`: the program that the command is a part of, with its version, or NULL. */
static void print_build(const char *host)
{
    printf("copes     %s\n", copes_version());
    if (host != NULL)
        printf("in        %s\n", host);
    printf("built     by %s for %s, %s\n", BUILD_COMPILER, BUILD_SYSTEM, BUILD_TYPE);
    printf("          commands: check %s, bench and explain %s\n",
           COPES_TOOLS_CHECK ? "yes" : "no (-Dtests=disabled -Dbench=disabled)",
           COPES_TOOLS_BENCH ? "yes" : "no (-Dbench=disabled)");
}

/* The word of the CPU's summary that names its level: "CPU, avx2, 2 threads". False where the summary says what is wrong. */
static bool read_level(const char *summary, char level[32])
{
    return sscanf(summary, "CPU, %31[^,]", level) == 1;
}

static void print_cpu(const char *summary)
{
    char text[DOCTOR_TEXT], level[32];
    const char *asked = getenv("COPES_CPU_ISA"), *last = strrchr(BUILD_CPU_LEVELS, ' ');
    const char *highest = last != NULL ? last + 1 : BUILD_CPU_LEVELS;
    const int processors = doctor_processors();
    doctor_processor(text);
    printf("          on %s, %d processor%s\n", text, processors, processors == 1 ? "" : "s");
    printf("          levels in the build: %s\n", BUILD_CPU_LEVELS);
    if (read_level(summary, level) && asked != NULL && asked[0] != '\0')
        printf("          %s runs, as COPES_CPU_ISA says\n", level);
    else if (read_level(summary, level))
        printf("          %s runs, the highest %s\n", level,
               strcmp(level, highest) == 0 ? "in the build" : "that the processor has of them");
    doctor_openmp(text);
    printf("          OpenMP: %s\n", !BUILD_OPENMP     ? "none in the build (-Dopenmp=disabled)"
                                     : text[0] != '\0' ? text
                                                       : "linked statically");
}

static void print_device(const copes_backend_info *backend, DLDevice device, backend_state *state)
{
    char summary[DOCTOR_TEXT];
    const size_t used = strlen(state->devices);
    if (copes_device_summary(device, summary, sizeof summary) != COPES_OK)
        snprintf(summary, sizeof summary, "%s", copes_last_error());
    const char *problem = doctor_try(device);
    printf("%-9s %s\n", device.device_id == 0 ? backend->name : "", summary);
    if (device.device_type == kDLCPU)
        print_cpu(summary);
    printf("          %s%s%s%s\n", terminal_style(stdout, problem == NULL ? TERMINAL_GREEN : TERMINAL_RED),
           problem == NULL ? "computes" : "FAILS: ", problem == NULL ? "" : problem,
           terminal_style(stdout, TERMINAL_PLAIN));
    state->failed |= problem != NULL;
    if (used < DOCTOR_TEXT / 2)
        snprintf(state->devices + used, sizeof state->devices - used, "%s%s%s", used > 0 ? ", " : "",
                 problem == NULL ? "" : "FAILS ", summary);
}

static void print_backend(const copes_backend_info *backend, backend_state *state)
{
    char text[DOCTOR_TEXT];
    const int32_t devices = copes_device_count(backend->device_type);
    state->devices[0] = '\0';
    for (int32_t id = 0; id < devices; id++)
        print_device(backend, (DLDevice){backend->device_type, id}, state);
    if (devices == 0) {
        if (copes_device_summary((DLDevice){backend->device_type, 0}, text, sizeof text) != COPES_OK)
            snprintf(text, sizeof text, "%s", copes_last_error());
        printf("%-9s %sno device%s: %s\n", backend->name, terminal_style(stdout, TERMINAL_YELLOW),
               terminal_style(stdout, TERMINAL_PLAIN), text);
        snprintf(state->devices, sizeof state->devices, "no device (%.200s)", text);
    }
    for (size_t i = 0; i < sizeof gpu_builds / sizeof *gpu_builds; i++)
        if (strcmp(backend->name, gpu_builds[i].name) == 0)
            printf("          architectures in the build: %s\n", gpu_builds[i].architectures);
    doctor_driver(backend->name, devices > 0, text);
    if (text[0] != '\0')
        printf("          %s\n", text);
}

/* GPU backends that the build lacks, and what they need. */
static void print_absent(void)
{
    for (size_t i = 0; i < sizeof gpu_builds / sizeof *gpu_builds; i++)
        if (gpu_builds[i].architectures[0] == '\0')
            printf("%-9s not in this build, which takes %s (-D%s=enabled)\n", gpu_builds[i].name,
                   gpu_builds[i].compiler, gpu_builds[i].name);
}

/* Variables that change what runs, where they are set, with `separator` before each. Returns how many. */
static int print_environment(const char *separator)
{
    static const char *const names[] = {"COPES_CPU_ISA",        "COPES_GPU_ARCH",      "COPES_GPU_VARIANT",
                                        "COPES_GPU_MODEL",      "OMP_NUM_THREADS",     "OMP_THREAD_LIMIT",
                                        "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    int set = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) != NULL)
            set += printf("%s%s=%s", separator, names[i], getenv(names[i])) > 0;
    return set;
}

static void print_line(const char *host, const backend_state *states, size_t count)
{
    printf("\nTo paste into an issue:\ncopes %s, %s, %s, %s", copes_version(), BUILD_SYSTEM, BUILD_COMPILER,
           BUILD_TYPE);
    if (host != NULL)
        printf(", %s", host);
    for (size_t i = 0; i < count; i++)
        printf("; %s: %s", copes_backend_at(i)->name, states[i].devices);
    printf("; levels: %s", BUILD_CPU_LEVELS);
    print_environment("; ");
    putchar('\n');
}

int command_doctor(int argc, char **argv)
{
    enum { BACKENDS = 4 };
    backend_state states[BACKENDS] = {{.failed = 0}};
    const size_t count = copes_backend_count() < BACKENDS ? copes_backend_count() : BACKENDS;
    int failed = 0;
    /* Python's package says by a flag of its own what it is. */
    const char *host = argc == 3 && strcmp(argv[1], "--host") == 0 ? argv[2] : NULL;
    const int status = host != NULL ? -1 : arguments_none(argc, argv, help);
    if (status >= 0)
        return status;
    print_build(host);
    for (size_t i = 0; i < count; i++) {
        print_backend(copes_backend_at(i), &states[i]);
        failed |= states[i].failed;
    }
    print_absent();
    printf("variables");
    puts(print_environment(" ") == 0 ? " none that change what runs" : "");
    print_line(host, states, count);
    return failed != 0 ? complain(EXIT_FAILED, "a device does not compute") : 0;
}
