/* libFuzzer target: whatever the bytes are, the safetensors reader refuses them with a reason, or describes tensors
 * whose every byte is there, and which written and read again are the same. */
#include "tools/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static unsigned touch(const safetensors_tensor *tensor)
{
    unsigned sum = 0;
    for (size_t i = 0; i < tensor->size; i++)
        sum += ((const unsigned char *)tensor->data)[i];
    return sum;
}

static void expect_same(const safetensors_tensor *a, const safetensors_tensor *b)
{
    require(strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank && a->size == b->size);
    require(memcmp(a->shape, b->shape, sizeof a->shape) == 0 && touch(a) == touch(b));
    require(a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char reason[SAFETENSORS_REASON] = "", *again = NULL;
    size_t again_size = 0;
    safetensors_file file, copy;
    if (!safetensors_parse(bytes, size, &file, reason)) {
        require(reason[0] != '\0' && strchr(reason, '\n') == NULL && file.count == 0);
        return 0;
    }
    FILE *stream = open_memstream(&again, &again_size);
    require(stream != NULL && safetensors_write(stream, file.tensors, file.count, reason));
    require(fclose(stream) == 0 && safetensors_parse(again, again_size, &copy, reason));
    require(file.count == copy.count);
    for (size_t i = 0; i < file.count; i++)
        expect_same(&file.tensors[i], &copy.tensors[i]);
    safetensors_close(&copy);
    safetensors_close(&file);
    free(again);
    return 0;
}
