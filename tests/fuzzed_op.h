/* What fuzz_run.c makes calls of: numbers, descriptors and shapes that the fuzzer's bytes spell. */
#ifndef COPES_TESTS_FUZZED_OP_H
#define COPES_TESTS_FUZZED_OP_H

#include <copes/copes.h>
#include <stdbool.h>

enum { FUZZ_SLOTS = COPES_MAX_INPUTS + COPES_MAX_OUTPUTS };

/* What is left to read; past the end all is 0. */
typedef struct reader {
    const uint8_t *bytes;
    size_t size;
} reader;

uint8_t fuzz_take(reader *from);

/* Mostly a small number, at times a negative, a large or any one. */
int64_t fuzz_take_number(reader *from);
void fuzz_take_numbers(reader *from, int64_t *values, int count);

void fuzz_take_op(reader *from, copes_op *op);
bool fuzz_is_qk(const copes_op *op);

/* A slot's tensor among those that go together; rank 0: any. */
typedef struct fuzz_shape {
    int rank;
    int64_t lengths[5];
    DLDataType type;
} fuzz_shape;

/* Those of tpa_decode and qk_norm_rope. Of outputs only those that exist before the call have one. */
void fuzz_take_shapes(reader *from, const copes_op *op, DLDataType usual, fuzz_shape shapes[FUZZ_SLOTS]);

#endif
