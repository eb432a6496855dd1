/* What `copes doctor` finds out about the machine. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "tools/device_call.h"
#include "tools/doctor.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void cut_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
}

void doctor_processor(char text[DOCTOR_TEXT])
{
    char line[DOCTOR_TEXT];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(text, DOCTOR_TEXT, "unknown processor");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        cut_line(line);
        snprintf(text, DOCTOR_TEXT, "%s", colon + strspn(colon, ": "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

int doctor_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void doctor_openmp(char text[DOCTOR_TEXT])
{
    static const char *const names[] = {"libgomp", "libomp", "libiomp5"};
    char line[4096];
    size_t used = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    text[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *slash = strrchr(line, '/'), *name = slash != NULL ? slash + 1 : "";
        cut_line(line);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) /* a library has several lines */
            if (strncmp(name, names[i], strlen(names[i])) == 0 && strstr(text, name) == NULL && used < DOCTOR_TEXT)
                used += (size_t)snprintf(text + used, DOCTOR_TEXT - used, "%s%s", used > 0 ? ", " : "", name);
    }
    if (file != NULL)
        fclose(file);
}

void doctor_driver(const char *backend, bool found, char text[DOCTOR_TEXT])
{
    const bool cuda = strcmp(backend, "cuda") == 0;
    const char *node = cuda ? "/dev/nvidiactl" : "/dev/kfd";
    text[0] = '\0';
    if (!cuda && strcmp(backend, "hip") != 0)
        return;
    if (!found && access(node, F_OK) != 0)
        snprintf(text, DOCTOR_TEXT, "there is no %s: no driver is loaded, or a container was not given its device",
                 node);
    else if (!found && access(node, R_OK | W_OK) != 0)
        snprintf(text, DOCTOR_TEXT, "%s is not open to this user", node);
    FILE *file = cuda && text[0] == '\0' ? fopen("/proc/driver/nvidia/version", "r") : NULL;
    if (file == NULL)
        return;
    if (fgets(text, DOCTOR_TEXT, file) == NULL)
        text[0] = '\0';
    cut_line(text);
    fclose(file);
}

const char *doctor_try(DLDevice device)
{
    enum { COUNT = 8 };
    float x[COUNT], o[COUNT] = {0};
    int64_t shape = COUNT;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i - 4;
    DLTensor in = {.data = x, .device = device, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = &shape}, out = in;
    out.data = o;
    const copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_args args = {.act_forward = {.x = &in, .o = &out}};
    const int status = device_call(device, copes_op_at(0), &op, &args);
    if (status != 0)
        return status > 0 ? copes_last_error() : "its memory could not be used";
    for (int i = 0; i < COUNT; i++)
        if (o[i] != (x[i] > 0 ? x[i] : 0))
            return "relu of 8 numbers came out wrong";
    return NULL;
}
