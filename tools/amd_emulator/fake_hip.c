/* A libamdhip64 whose GPU is emulate.py: memory is a file that both processes map at one address, and a launch is a message
 * that is answered when the grid is done. It has the functions that copes calls and no others. In the environment:
 * AMD_EMULATOR_SOCKET and AMD_EMULATOR_ARENA are emulate.py's. */
#define __HIP_PLATFORM_AMD__ 1
#define _GNU_SOURCE
#include <hip/hip_runtime_api.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ARCHITECTURE "gfx1100"
#define BASE ((char *)0x100000000000ull)
#define SIZE (1ull << 31)
#define PAGE 4096ull
enum { MOST_ALLOCATIONS = 4096, MOST_KERNELS = 8192, MOST_IMAGES = 64, MOST_NAME = 256 };

/* From `page` on; the caller's `size` bytes end with the last page, up to their alignment. */
typedef struct allocation {
    uint64_t page, pages, at, size;
} allocation;

typedef struct kernel {
    const void *host, *image;
    char name[MOST_NAME];
} kernel;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int server = -1;
static allocation live[MOST_ALLOCATIONS];
static int live_count;
static kernel kernels[MOST_KERNELS];
static int kernel_count;
static const void *sent[MOST_IMAGES];
static int sent_count;

static void die(const char *what)
{
    perror(what);
    _exit(99);
}

static void put(const void *data, size_t count)
{
    for (const char *at = data; count > 0;) {
        const ssize_t done = write(server, at, count);
        if (done <= 0)
            die("write to the emulator");
        at += done;
        count -= (size_t)done;
    }
}

static void get(void *data, size_t count)
{
    for (char *at = data; count > 0;) {
        const ssize_t done = read(server, at, count);
        if (done <= 0)
            die("read from the emulator");
        at += done;
        count -= (size_t)done;
    }
}

static void message(char kind, uint64_t first, uint64_t second)
{
    const uint64_t words[3] = {(unsigned char)kind, first, second};
    put(words, sizeof words);
}

/* Finds the emulator when it is first needed. */
static void begin(void)
{
    if (server >= 0)
        return;
    const char *path = getenv("AMD_EMULATOR_SOCKET"), *arena = getenv("AMD_EMULATOR_ARENA");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path == NULL || arena == NULL || strlen(path) >= sizeof to.sun_path)
        die("AMD_EMULATOR_SOCKET and AMD_EMULATOR_ARENA");
    strcpy(to.sun_path, path);
    const int file = open(arena, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, SIZE) != 0)
        die(arena);
    if (mmap(BASE, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) != (void *)BASE)
        die("mmap");
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(server, (struct sockaddr *)&to, sizeof to) != 0)
        die(path);
}

/* The first page that so many fit behind, with one between neighbours that nobody has. */
static uint64_t find_place(uint64_t pages)
{
    uint64_t at = PAGE;
    for (int i = 0; i < live_count; i++)
        if (at < live[i].page + live[i].pages + PAGE && live[i].page < at + pages + PAGE) {
            at = live[i].page + live[i].pages + PAGE;
            i = -1;
        }
    return at;
}

hipError_t hipMalloc(void **place, size_t size)
{
    pthread_mutex_lock(&lock);
    begin();
    const uint64_t whole = (size + 255) / 256 * 256, pages = (whole + PAGE - 1) / PAGE * PAGE;
    const uint64_t page = find_place(pages), at = page + pages - whole;
    const int fits = page + pages + PAGE <= SIZE && live_count < MOST_ALLOCATIONS;
    if (fits) {
        live[live_count++] = (allocation){page, pages, at, size};
        memset(BASE + page, 0xff, pages);
        *place = BASE + at;
        message('A', (uint64_t)(uintptr_t)(BASE + page), pages);
    }
    pthread_mutex_unlock(&lock);
    return fits ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipFree(void *place)
{
    hipError_t status = place == NULL ? hipSuccess : hipErrorInvalidValue;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < live_count; i++)
        if (place != NULL && place == BASE + live[i].at) {
            message('F', (uint64_t)(uintptr_t)(BASE + live[i].page), live[i].pages);
            live[i] = live[--live_count];
            status = hipSuccess;
            break;
        }
    pthread_mutex_unlock(&lock);
    return status;
}

hipError_t hipMemcpy(void *to, const void *from, size_t count, hipMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, count);
    return hipSuccess;
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t count, hipMemcpyKind kind, hipStream_t stream)
{
    (void)stream;
    return hipMemcpy(to, from, count, kind);
}

hipError_t hipMemset(void *place, int value, size_t count)
{
    memset(place, value, count);
    return hipSuccess;
}

hipError_t hipMemsetAsync(void *place, int value, size_t count, hipStream_t stream)
{
    (void)stream;
    return hipMemset(place, value, count);
}

hipError_t hipGetDeviceCount(int *count)
{
    *count = 1;
    return hipSuccess;
}

hipError_t hipGetDevice(int *device)
{
    *device = 0;
    return hipSuccess;
}

hipError_t hipSetDevice(int device)
{
    return device == 0 ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipDeviceSynchronize(void)
{
    return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    (void)stream;
    return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
    (void)stream;
    *status = hipStreamCaptureStatusNone;
    return hipSuccess;
}

hipError_t hipGetLastError(void)
{
    return hipSuccess;
}

const char *hipGetErrorString(hipError_t error)
{
    return error == hipSuccess ? "success" : error == hipErrorLaunchFailure ? "the emulator failed" : "error";
}

const char *hipGetErrorName(hipError_t error)
{
    return hipGetErrorString(error);
}

hipError_t hipFuncGetAttributes(hipFuncAttributes *attributes, const void *function)
{
    (void)function;
    *attributes = (hipFuncAttributes){.binaryVersion = 1100};
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
    (void)attribute, (void)device;
    *value = 0;
    return hipSuccess;
}

/* One compute unit, so that small problems choose the kernels that large ones have on a whole GPU. */
hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device)
{
    (void)device;
    *properties = (hipDeviceProp_t){.totalGlobalMem = SIZE,
                                    .sharedMemPerBlock = 65536,
                                    .warpSize = 32,
                                    .maxThreadsPerBlock = 1024,
                                    .major = 11,
                                    .multiProcessorCount = 1};
    strcpy(properties->name, "an emulator of RDNA3");
    strcpy(properties->gcnArchName, ARCHITECTURE);
    return hipSuccess;
}

/* What Clang's code for the host calls: before main for each source, and around each launch. */
void **__hipRegisterFatBinary(const void *wrapper);
void __hipUnregisterFatBinary(void **module);
void __hipRegisterFunction(void **module, const void *host, char *device_name, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp);
void __hipRegisterVar(void **module, void *variable, char *host_name, char *device_name, int is_extern, size_t size,
                      int is_constant, int is_global);

void **__hipRegisterFatBinary(const void *wrapper)
{
    const void **module = malloc(sizeof *module);
    if (module == NULL)
        die("malloc");
    *module = ((const void *const *)wrapper)[1];
    return (void **)module;
}

void __hipUnregisterFatBinary(void **module)
{
    free(module);
}

void __hipRegisterFunction(void **module, const void *host, char *device_name, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp)
{
    (void)device_name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    if (kernel_count == MOST_KERNELS || strlen(name) >= MOST_NAME)
        die("a kernel's registration");
    kernels[kernel_count] = (kernel){host, *module, ""};
    strcpy(kernels[kernel_count++].name, name);
}

void __hipRegisterVar(void **module, void *variable, char *host_name, char *device_name, int is_extern, size_t size,
                      int is_constant, int is_global)
{
    (void)module, (void)variable, (void)host_name, (void)device_name;
    (void)is_extern, (void)size, (void)is_constant, (void)is_global;
}

typedef struct configuration {
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
} configuration;

static __thread configuration pushed;

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream);
hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream);

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream)
{
    pushed = (configuration){grid, block, shared, stream};
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *stream = pushed.stream;
    return hipSuccess;
}

/* The architecture's code object in a bundle: a count, and of each its place, size and name. NULL: there is none. */
static const char *find_image(const char *bundle, uint64_t *size)
{
    uint64_t count, at = 32;
    memcpy(&count, bundle + 24, sizeof count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t entry[3];
        memcpy(entry, bundle + at, sizeof entry);
        const uint64_t length = strlen(ARCHITECTURE), name = at + sizeof entry;
        if (entry[2] >= length && memcmp(bundle + name + entry[2] - length, ARCHITECTURE, length) == 0) {
            *size = entry[1];
            return bundle + entry[0];
        }
        at = name + entry[2];
    }
    return NULL;
}

static hipError_t send_image(const char *bundle)
{
    for (int i = 0; i < sent_count; i++)
        if (sent[i] == bundle)
            return hipSuccess;
    uint64_t size = 0;
    const char *image = find_image(bundle, &size);
    if (image == NULL || sent_count == MOST_IMAGES)
        return hipErrorNoBinaryForGpu;
    message('I', (uint64_t)(uintptr_t)bundle, size);
    put(image, size);
    sent[sent_count++] = bundle;
    return hipSuccess;
}

/* The emulator asks for as many arguments as the kernel has, each of a size that it says. */
static hipError_t send_launch(const kernel *k, dim3 grid, dim3 block, void **arguments, size_t shared)
{
    const uint64_t shape[7] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, shared};
    message('L', (uint64_t)(uintptr_t)k->image, strlen(k->name));
    put(k->name, strlen(k->name));
    put(shape, sizeof shape);
    uint64_t count, size, status;
    get(&count, sizeof count);
    for (uint64_t i = 0; i < count; i++) {
        get(&size, sizeof size);
        put(arguments[i], size);
    }
    get(&status, sizeof status);
    return status == 0 ? hipSuccess : hipErrorLaunchFailure;
}

hipError_t hipLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, hipStream_t stream)
{
    (void)stream;
    int k = 0;
    while (k < kernel_count && kernels[k].host != host)
        k++;
    if (k == kernel_count)
        return hipErrorInvalidDeviceFunction;
    pthread_mutex_lock(&lock);
    begin();
    hipError_t status = send_image(kernels[k].image);
    if (status == hipSuccess)
        status = send_launch(&kernels[k], grid, block, arguments, shared);
    pthread_mutex_unlock(&lock);
    return status;
}
