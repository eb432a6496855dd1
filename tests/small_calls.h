/* A call of every kind, on tensors large enough that a run takes several threads and most take a workspace; the bits they
 * leave are compared where threads, modes and processes differ. */
#ifndef COPES_TESTS_SMALL_CALLS_H
#define COPES_TESTS_SMALL_CALLS_H

#include <copes/copes.h>
#include <stdbool.h>

enum {
    SMALL_OUT = 13, /* inputs that a call may have */
    SMALL_TENSORS = SMALL_OUT + 4,
    SMALL_ROOM = 1 << 20 /* bytes of a tensor */
};

typedef struct small_call {
    const char *name;
    copes_op op;
    int64_t shapes[SMALL_TENSORS][5]; /* of in[0 .. 12], out[0 .. 3] */
    int ranks[SMALL_TENSORS];         /* 0: no such tensor */
} small_call;

extern const small_call small_calls[];
extern const int small_call_count;

/* A call's tensors in memory of their own. */
typedef struct small_tensors {
    _Alignas(64) unsigned char memory[SMALL_TENSORS][SMALL_ROOM];
    size_t bytes[SMALL_TENSORS];
    int64_t shapes[SMALL_TENSORS][5];
    DLTensor tensors[SMALL_TENSORS];
    copes_args args;
} small_tensors;

/* Elements of type `type`, float32, float16, bfloat16 or float64; inputs are the same ones in each process, some of them
 * subnormal. Outputs are 0. */
void small_call_fill(const small_call *call, DLDataType type, small_tensors *to);

/* Runs it; the workspace is its own. False where the library refuses. */
bool small_call_run(const small_call *call, copes_context *context, small_tensors *tensors);

/* Have two runs left the same bits? */
bool small_call_same(const small_tensors *a, const small_tensors *b);

#endif
