/* Tables of refusals: a good call, what spoils it, and the status and message that it must then get, with no byte of
 * any tensor changed. The same call, unspoilt, must then succeed. */
#ifndef COPES_TESTS_REFUSAL_H
#define COPES_TESTS_REFUSAL_H

#include "common/slots.h"

#include <check.h>

enum { CALL_SLOTS = COPES_MAX_INPUTS + COPES_MAX_OUTPUTS, CALL_BYTES = 16384, CALL_EDITS = 3, OUT = COPES_MAX_INPUTS };

/* A call whose tensors sit in memory of its own. Slots are those of in, then (from OUT) those of out. */
typedef struct call_case {
    copes_op op;
    copes_args args;
    DLTensor tensor[CALL_SLOTS];
    int64_t shape[CALL_SLOTS][COPES_MAX_RANK + 1], stride[CALL_SLOTS][COPES_MAX_RANK + 1];
    unsigned char memory[CALL_SLOTS][CALL_BYTES];
} call_case;

typedef enum edit_kind {
    NOTHING,
    SET32,     /* the int32 of the descriptor at offset `slot` becomes `value` */
    SET64,     /* likewise an int64 */
    SET_REAL,  /* likewise a double */
    KIND,      /* the descriptor's kind */
    ABSENT,    /* the slot becomes NULL */
    GIVEN,     /* the slot becomes a good (2, 3) float32 tensor */
    RANK,      /* ndim */
    LENGTH,    /* shape[at] */
    STRIDE,    /* strides[at]; the others stay those of a compact tensor */
    BYTES,     /* byte_offset */
    TYPE,      /* dtype: code `at`, `value` bits */
    LANES,     /* dtype.lanes */
    DEVICE,    /* device: type `at`, id `value` */
    NO_DATA,   /* data NULL */
    NO_SHAPE,  /* shape NULL */
    SHARE,     /* data moves to that of slot `at`, `value` bytes on */
    ADDRESS,   /* data becomes the address `value` */
    AS_VIEW_OF /* data, shape and strides become those of slot `at` */
} edit_kind;

typedef struct call_edit {
    edit_kind kind;
    int64_t slot; /* or an offset in copes_op */
    int64_t at, value;
    double real;
} call_edit;

/* Which calls refuse: all three; copes_infer alone, which knows no context; all but that, for
 * what is wrong with an output; copes_run alone, for data. */
typedef enum refused_by { BY_ALL, BY_INFER, BY_SIZE_AND_RUN, BY_RUN } refused_by;

typedef struct refusal {
    copes_status status;
    refused_by by;
    call_edit edits[CALL_EDITS];
    const char *message;
} refusal;

/* The row of an int32 at this offset, which is reserved and not zero. */
#define RESERVED(offset, kind)                                                                                         \
    {COPES_ERROR_ATTRIBUTE,                                                                                            \
     BY_ALL,                                                                                                           \
     {{SET32, (int64_t)(offset), 0, 1 << 24, 0}},                                                                      \
     kind                                                                                                              \
     ": reserved is not zero; it must be: the struct was not all zero at first, or this library is older than "        \
     "the program"}

/* Rows that most tables have. A tensor is named with its operator: "act_forward: x". */
#define MISSING(by, slot, tensor)                                                                                      \
    {COPES_ERROR_NULL, by, {{ABSENT, slot, 0, 0, 0}}, tensor " is NULL; it must be a tensor"}
#define NO_SLOT(slot, place)                                                                                           \
    {COPES_ERROR_NULL,                                                                                                 \
     BY_ALL,                                                                                                           \
     {{GIVEN, slot, 0, 0, 0}},                                                                                         \
     place " is given; the operator has no such slot, so it must be NULL"}
#define WITHOUT_DATA(slot, elements)                                                                                   \
    {COPES_ERROR_NULL, BY_RUN, {{NO_DATA, slot, 0, 0, 0}}, elements " and data NULL; it must point to them"}

/* On another device than the first input, which is all that copes_infer knows, and than the context. */
#define APART_FROM_FIRST(slot, tensor)                                                                                 \
    {COPES_ERROR_DEVICE,                                                                                               \
     BY_INFER,                                                                                                         \
     {{DEVICE, slot, kDLCUDA, 0, 0}},                                                                                  \
     tensor " is on device (2, 0); it must be on the device of the first input, (1, 0)"}
#define APART_FROM_CONTEXT(slot, tensor)                                                                               \
    {COPES_ERROR_DEVICE,                                                                                               \
     BY_SIZE_AND_RUN,                                                                                                  \
     {{DEVICE, slot, kDLCUDA, 0, 0}},                                                                                  \
     tensor " is on device (2, 0); it must be on the context's, (1, 0)"}

/* Of two tensors of which the call must have one: none, and both. */
#define NEITHER(slot, tensor, other)                                                                                   \
    {COPES_ERROR_NULL,                                                                                                 \
     BY_SIZE_AND_RUN,                                                                                                  \
     {{ABSENT, slot, 0, 0, 0}},                                                                                        \
     tensor " is NULL; it must be a tensor, or " other " must be one"}
#define BOTH(slot, tensors)                                                                                            \
    {COPES_ERROR_NULL, BY_ALL, {{GIVEN, slot, 0, 0, 0}}, tensors " are given; one of them must be NULL"}

/* An output whose data begins `bytes` after that of `other`: which it may not share, or only if it is that very tensor. */
#define OVERLAP(slot, other, bytes, tensors)                                                                           \
    {COPES_ERROR_ALIAS, BY_SIZE_AND_RUN, {{SHARE, slot, other, bytes, 0}}, tensors "; it must have memory of its own"}
#define OVERLAP_IN_PART(slot, other, bytes, tensors)                                                                   \
    {COPES_ERROR_ALIAS,                                                                                                \
     BY_SIZE_AND_RUN,                                                                                                  \
     {{SHARE, slot, other, bytes, 0}},                                                                                 \
     tensors "; it must have memory of its own, or be exactly that tensor"}

/* How the messages of several tables end. */
#define FLOATS "; it must be float32, float16 or bfloat16 (on the CPU also float64)"
#define THETA_TYPES "; it must be float32, float16 or bfloat16, for the phase is exact for theta's float32 value"
#define PAST_MEMORY ", which reach past the address space; every element must have an address"
#define SHARED_ELEMENTS ", where elements overlap; each element of an output must have its own memory"

/* Gives the slot a compact tensor, its memory filled: inputs with small numbers, outputs with poison. */
void call_add(call_case *call, int slot, DLDataType dtype, int rank, const int64_t *shape);
void call_change(call_case *call, const call_edit *edit);

/* What `make` builds, in place of whatever the call was. */
void call_make(call_case *call, void (*make)(call_case *call));

copes_context *call_context(void);

/* Runs one row on the call that `make` builds. */
void refusal_test(void (*make)(call_case *call), const refusal *row);

/* A test of a table: each row on the call that `make` builds; and what adds it to a test case. */
#define REFUSAL_TEST(name, make, rows)                                                                                 \
    enum { name##_rows = sizeof(rows) / sizeof(rows)[0] };                                                             \
    START_TEST(name)                                                                                                   \
    {                                                                                                                  \
        refusal_test(make, &(rows)[_i]);                                                                               \
    }                                                                                                                  \
    END_TEST
#define ADD_REFUSALS(tcase, name) tcase_add_loop_test(tcase, name, 0, name##_rows)

/* As copes_run with a workspace that is large enough. */
copes_status call_run(call_case *call);

/* Asserts on a status and the whole message that came with it. */
void expect_refusal(copes_status status, copes_status wanted, const char *message);

/* Asserts that the call runs. */
void expect_success(call_case *call);

/* Asserts that no byte of an output was written. */
void expect_poison(const call_case *call, int slot);

static const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1};

#endif
