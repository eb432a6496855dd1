/* Memory for the tensors of a call, and what is in it. */
#include "bench/call.h"
#include "tests/harness/random.h"

#include <math.h>
#include <stdlib.h>

/* Elements of the block that is repeated: a prime, so that no two rows of a tensor are the same. */
enum { BLOCK = 262139 };

static int write_repeated(const device_memory *memory, int device, void *to, size_t bytes, const void *block,
                          size_t size)
{
    for (size_t done = 0; done < bytes; done += size) {
        const size_t part = bytes - done < size ? bytes - done : size;
        if (memory->write(device, (char *)to + done, block, part) != 0)
            return -1;
    }
    return 0;
}

/* The block of a type, bell-shaped, from -3 to 3, with variance 1. It is kept until another type asks, as a call in a graph has
 * hundreds of tensors. NULL: there is no memory. */
static const char *random_block(check_type type)
{
    static char *block;
    static check_type of;
    const size_t size = (size_t)check_type_of(type)->size;
    uint64_t state = 1;
    if (block != NULL && of == type)
        return block;
    free(block);
    block = malloc(BLOCK * size);
    of = type;
    for (size_t i = 0; i < BLOCK && block != NULL; i++)
        check_encode(type,
                     check_round(type,
                                 2 * (check_uniform(&state) + check_uniform(&state) + check_uniform(&state) - 1.5)),
                     block + i * size);
    return block;
}

int bench_fill_random(const device_memory *memory, int device, void *to, size_t bytes, check_type type)
{
    const char *block = random_block(type);
    return block == NULL ? -1
                         : write_repeated(memory, device, to, bytes, block, BLOCK * (size_t)check_type_of(type)->size);
}

/* RoPE's angles, for every head; a log-sum-exp of the size that random tokens have; positions that follow each other, from
 * another one in each batch entry; the slots of tokens in a paged cache, each entry's in pages of its own; and bytes of any
 * bits. */
static double special_value(const bench_call *call, const bench_tensor *tensor, int64_t i)
{
    const int64_t width = tensor->shape[1], row = i / width;
    if (tensor->fill == BENCH_LSE)
        return log((double)call->tokens) + 0.5;
    if (tensor->fill == BENCH_POSITIONS)
        return (double)(i % width + 1009 * row);
    if (tensor->fill == BENCH_BITS)
        return (double)((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
    if (tensor->fill == BENCH_SLOTS) {
        const int64_t pages = (width + BENCH_PAGE - 1) / BENCH_PAGE;
        return (double)(row * pages * BENCH_PAGE + i % width);
    }
    return pow(10000, -(double)(i % width) / (double)width);
}

static int fill_special(const bench_call *call, const bench_tensor *tensor, const device_memory *memory)
{
    const size_t size = (size_t)check_type_of(tensor->type)->size;
    char *values = malloc(tensor->bytes + 1);
    if (values == NULL)
        return -1;
    for (size_t i = 0; i < tensor->bytes / size; i++)
        check_encode(tensor->type, check_round(tensor->type, special_value(call, tensor, (int64_t)i)),
                     values + i * size);
    const int status = memory->write(call->device.device_id, tensor->view.data, values, tensor->bytes);
    free(values);
    return status;
}

int bench_call_allocate(bench_call *call, const device_memory *memory)
{
    const int device = call->device.device_id;
    for (int i = 0; i < call->count; i++) {
        bench_tensor *tensor = &call->tensors[i];
        if (tensor->replaces != NULL) {
            tensor->view.data = tensor->replaces->data;
            continue;
        }
        tensor->view.data = memory->allocate(device, tensor->bytes);
        if (tensor->view.data == NULL)
            return -1;
        const int status = tensor->fill == BENCH_RANDOM
                               ? bench_fill_random(memory, device, tensor->view.data, tensor->bytes, tensor->type)
                               : fill_special(call, tensor, memory);
        if (status != 0)
            return -1;
    }
    call->workspace = call->workspace_size > 0 ? memory->allocate(device, call->workspace_size) : NULL;
    return call->workspace_size > 0 && call->workspace == NULL ? -1 : 0;
}

void bench_call_release(bench_call *call, const device_memory *memory)
{
    for (int i = 0; i < call->count; i++)
        if (call->tensors[i].view.data != NULL && call->tensors[i].replaces == NULL)
            memory->release(call->device.device_id, call->tensors[i].view.data);
    if (call->workspace != NULL)
        memory->release(call->device.device_id, call->workspace);
}
