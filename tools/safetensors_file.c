/* safetensors on disk: files mapped to be read, and written so that they appear whole or not at all. */
#include "tools/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(char reason[SAFETENSORS_REASON], const char *text)
{
    snprintf(reason, SAFETENSORS_REASON, "%s", text);
    return false;
}

/* Maps a file that is open, so that only what is used of it takes memory. */
static bool map_file(int descriptor, void **map, size_t *size, char reason[SAFETENSORS_REASON])
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return fail(reason, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fail(reason, "not a regular file");
    *size = (size_t)status.st_size;
    if (*size == 0) /* an empty mapping is an error; safetensors_parse says what is wrong with an empty file */
        return true;
    *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    return *map != MAP_FAILED || fail(reason, strerror(errno));
}

bool safetensors_open(const char *path, safetensors_file *file, char reason[SAFETENSORS_REASON])
{
    void *map = NULL;
    size_t size = 0;
    *file = (safetensors_file){0};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail(reason, strerror(errno));
    const bool mapped = map_file(descriptor, &map, &size, reason);
    close(descriptor);
    if (!mapped)
        return false;
    const bool ok = safetensors_parse(map, size, file, reason);
    if (ok) {
        file->map = map;
        file->map_size = size;
    } else if (map != NULL) {
        munmap(map, size);
    }
    return ok;
}

/* Where the file is to be in the end: behind a link, and never in the place of a device or a folder. */
static char *resolve(const char *path, char reason[SAFETENSORS_REASON])
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        fail(reason, S_ISDIR(status.st_mode) ? "a folder is there" : "what is there is not a regular file");
        return NULL;
    }
    char *target = realpath(path, NULL);
    if (target == NULL && errno == ENOENT)
        target = strdup(path);
    if (target == NULL)
        fail(reason, strerror(errno));
    return target;
}

/* A new file beside `target`, for as long as it is being written. */
static FILE *open_part(const char *target, char *part, size_t size, char reason[SAFETENSORS_REASON])
{
    int descriptor = -1;
    errno = EEXIST;
    for (int i = 0; i < 100 && descriptor < 0 && errno == EEXIST; i++) {
        snprintf(part, size, "%s.%ld-%d.part", target, (long)getpid(), i);
        descriptor = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (stream == NULL) {
        fail(reason, strerror(errno));
        if (descriptor >= 0) {
            close(descriptor);
            unlink(part);
        }
    }
    return stream;
}

static bool save_beside(const char *target, char *part, size_t part_size, const safetensors_tensor *tensors,
                        size_t count, char reason[SAFETENSORS_REASON])
{
    FILE *stream = open_part(target, part, part_size, reason);
    if (stream == NULL)
        return false;
    bool ok = safetensors_write(stream, tensors, count, reason);
    if (ok && fsync(fileno(stream)) != 0)
        ok = fail(reason, strerror(errno));
    if (fclose(stream) != 0 && ok)
        ok = fail(reason, strerror(errno));
    if (ok && rename(part, target) != 0)
        ok = fail(reason, strerror(errno));
    if (!ok)
        unlink(part);
    return ok;
}

bool safetensors_save(const char *path, const safetensors_tensor *tensors, size_t count,
                      char reason[SAFETENSORS_REASON])
{
    char *target = resolve(path, reason);
    if (target == NULL)
        return false;
    const size_t size = strlen(target) + 64;
    char *part = malloc(size);
    const bool ok =
        part != NULL ? save_beside(target, part, size, tensors, count, reason) : fail(reason, "out of memory");
    free(part);
    free(target);
    return ok;
}
