/* safetensors on disk: files mapped to be read, and written so that they appear whole or not at all. */
#include "tools/safetensors.h"

#include "tools/whole_file.h"

#include <errno.h>
#include <fcntl.h>
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
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* without waiting for a pipe's writer */
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

bool safetensors_save(const char *path, const safetensors_tensor *tensors, size_t count,
                      char reason[SAFETENSORS_REASON])
{
    whole_file file;
    if (!whole_file_open(&file, path, reason))
        return false;
    if (safetensors_write(file.stream, tensors, count, reason))
        return whole_file_commit(&file, reason);
    whole_file_abandon(&file);
    return false;
}
