/* Running a case: values and the oracle's answer once, then the library on any number of contexts. */
#ifndef COPES_TESTS_HARNESS_RUN_H
#define COPES_TESTS_HARNESS_RUN_H

#include "tests/harness/bounds.h"
#include "tests/harness/case.h"

/* A case with its inputs' values and the outputs that the oracle wants. */
typedef struct check_problem {
    check_case c;
    oracle_args args;
    oracle_tensor in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS]; /* value NULL: absent */
    check_type in_type[COPES_MAX_INPUTS], out_type[COPES_MAX_OUTPUTS];
    double *before[COPES_MAX_OUTPUTS]; /* the values of outputs that are updated; NULL: of others */
    bool described;                    /* by shapes alone: there are no values */
    bool judged;                       /* a run was found right: */
    uint64_t right_hash;
    double right_ulps;
} check_problem;

enum {
    CHECK_MESSAGE = 512,
    CHECK_VARIANT = 128 /* bytes of a variant's name */,
    CHECK_PLAN = 2048 /* and of a plan's text */
};

typedef struct check_result {
    bool failed;
    char message[CHECK_MESSAGE]; /* what is wrong */
    double ulps;                 /* the worst element's error */
    uint64_t hash;               /* of the outputs' bits */
    char variant[CHECK_VARIANT]; /* that ran */
} check_result;

/* 0, or -1 where memory ran out; free the problem either way. */
int check_prepare(check_problem *problem, const check_case *c);
void check_problem_free(check_problem *problem);

/* The same without values, which cannot fail: to ask about a call that is not made. It owns nothing. */
void check_describe(check_problem *problem, const check_case *c);

/* What copes_explain and copes_workspace_size say of a call on tensors that have no memory. `offset`: bytes from addresses
 * that are aligned to all that a kernel may ask for. */
copes_status check_explain(const check_problem *problem, copes_context *context, DLDevice device, size_t offset,
                           char text[CHECK_PLAN], size_t *workspace);

/* The variant's name in what copes_explain wrote, whose first line is "variant: NAME"; "" where it refused the call. */
void check_read_variant(copes_status status, const char *text, char name[CHECK_VARIANT]);

/* The name of the variant that a call would take; "" where the call is refused. */
void check_variant_of(const check_problem *problem, copes_context *context, DLDevice device, char name[CHECK_VARIANT]);

/* Runs through the public API in poisoned and guarded memory. Fails where a call does, where a shape, an element or the
 * memory around it is not what it should be, or an input has changed. The bits of the last run that was right are
 * noted: the same bits again, as by another number of threads, are not compared with the oracle's again. */
check_result check_execute(check_problem *problem, copes_context *context, DLDevice device);

/* The same, and leaves the outputs' elements in arrays that the caller frees, in place of NULL. */
typedef struct check_values {
    double *out[COPES_MAX_OUTPUTS];
} check_values;
check_result check_execute_keeping(check_problem *problem, copes_context *context, DLDevice device, check_values *kept);
void check_values_free(check_values *values);

/* How far two runs of a problem are apart at most, as check_compare measures it. What is not finite in
 * either is left to the oracle. */
double check_distance(const check_problem *problem, const check_values *a, const check_values *b);

/* All of the above for one case. */
check_result check_run(const check_case *c, copes_context *context, DLDevice device);

#endif
