/* A case made into a call of the library: its tensors on the device with random content, and what the call costs in
 * bytes and multiply-adds. */
#ifndef COPES_BENCH_CALL_H
#define COPES_BENCH_CALL_H

#include "bench/case.h"
#include "memory/memory.h"

typedef enum bench_fill { BENCH_RANDOM, BENCH_THETA, BENCH_LSE, BENCH_POSITIONS, BENCH_SLOTS, BENCH_BITS } bench_fill;

enum { BENCH_PAGE = 16 }; /* tokens in a block of a paged cache */

typedef struct bench_tensor {
    DLTensor view; /* first, so that a slot's tensor is one of these */
    int64_t shape[COPES_MAX_RANK], strides[COPES_MAX_RANK];
    check_type type;
    bench_fill fill;
    size_t bytes;
    int64_t touched_rows;     /* those of the last axis that the call has to do with; 0: all */
    const DLTensor *replaces; /* the input whose memory this output has; NULL: memory of its own */
} bench_tensor;

enum { BENCH_TENSORS = 12 };

typedef struct bench_call {
    copes_op op;
    copes_args args;
    bool first_too; /* a call of the first pass comes before: the same operator with `first` */
    copes_args first;
    copes_context *context;
    DLDevice device;
    bench_tensor tensors[BENCH_TENSORS]; /* inputs, then the outputs */
    int count;
    int64_t tokens; /* of the sequence, for the size of a log-sum-exp */
    void *workspace;
    size_t workspace_size;
    int64_t moved;        /* bytes: every input read once, every output written once; of a cache what is written */
    int64_t held;         /* bytes of the tensors' memory: less than moved in place */
    double multiply_adds; /* 0 where moving bytes is all there is to it */
} bench_call;

/* Adds a tensor of these lengths. */
bench_tensor *bench_call_add(bench_call *call, check_type type, int rank, const int64_t *shape);

/* Adds an output that the library will describe. */
DLTensor *bench_call_output(bench_call *call, check_type type);

/* call_qk.c: the tensors of qk_norm_rope, outputs included. */
void bench_call_plan_qk(bench_call *call, const bench_case *c);

/* Describes the tensors of a case, without memory. */
copes_status bench_call_plan(bench_call *call, const bench_case *c, copes_context *context, DLDevice device);

/* The bytes that the call needs: inputs, outputs and workspace. */
int64_t bench_call_memory(const bench_call *call);

/* Memory for all of it, the inputs filled. 0, or -1 where memory ran out or the device failed; release either way. */
int bench_call_allocate(bench_call *call, const device_memory *memory);
void bench_call_release(bench_call *call, const device_memory *memory);

/* Fills memory with random numbers of a type, one block of them over and over. */
int bench_fill_random(const device_memory *memory, int device, void *to, size_t bytes, check_type type);

#endif
