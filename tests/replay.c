/* Runs a fuzz target once on each file of a folder, as libFuzzer's own main does first, for compilers without it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int replay(const char *path)
{
    FILE *stream = fopen(path, "rb");
    if (stream == NULL || fseek(stream, 0, SEEK_END) != 0)
        return 1;
    const long size = ftell(stream);
    uint8_t *bytes = size >= 0 ? malloc((size_t)size + (size == 0)) : NULL; /* exact, so that a read past it shows */
    const int failed =
        bytes == NULL || fseek(stream, 0, SEEK_SET) != 0 || fread(bytes, 1, (size_t)size, stream) != (size_t)size;
    if (!failed)
        LLVMFuzzerTestOneInput(bytes, (size_t)size);
    free(bytes);
    fclose(stream);
    return failed;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    int count = 0;
    if (folder == NULL)
        return fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        if (replay(path) != 0) {
            perror(path);
            return 1;
        }
        count++;
    }
    closedir(folder);
    printf("%d files\n", count);
    return count == 0;
}
