/* Running a prepared case: buffers, the three calls of the API, and everything that may have gone wrong. */
#include "tests/harness/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one run holds. */
typedef struct run {
    check_problem *problem;
    DLDevice device;
    copes_context *context;
    check_buffer in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS], workspace;
    copes_args args;
    unsigned char poison;
    check_values got; /* the outputs' elements */
    check_result result;
} run;

static int fail(run *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->result.message, sizeof r->result.message, format, arguments);
    va_end(arguments);
    r->result.failed = true;
    return -1;
}

static int send_inputs(run *r)
{
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        const oracle_tensor *tensor = r->problem->args.in[slot];
        if (tensor == NULL) {
            continue;
        }
        check_buffer *buffer = &r->in[slot];
        check_layout layout = check_layout_of(&r->problem->c, slot);
        if (check_buffer_create(buffer, r->device, r->problem->in_type[slot], tensor->rank, tensor->shape, layout,
                                r->poison) != 0 ||
            check_buffer_write(buffer, tensor->value) != 0) {
            return fail(r, "no memory for input %d", slot);
        }
        r->args.in[slot] = &buffer->tensor;
    }
    return 0;
}

static int expect_inferred(run *r, int slot, const DLTensor *got)
{
    const oracle_tensor *wanted = r->problem->args.out[slot];
    DLDataType type = check_type_of(r->problem->out_type[slot])->dlpack;
    bool same = got->ndim == wanted->rank && got->strides == NULL && got->byte_offset == 0 &&
                got->dtype.code == type.code && got->dtype.bits == type.bits && got->dtype.lanes == type.lanes &&
                got->device.device_type == r->device.device_type && got->device.device_id == r->device.device_id;
    same = same && memcmp(got->shape, wanted->shape, (size_t)wanted->rank * sizeof *got->shape) == 0;
    return same ? 0 : fail(r, "copes_infer describes output %d wrongly", slot);
}

/* Asks copes_infer for every output before any has memory. */
static int infer(run *r)
{
    DLTensor tensors[COPES_MAX_OUTPUTS] = {{.ndim = -1}};
    int64_t shapes[COPES_MAX_OUTPUTS][COPES_MAX_RANK], no_strides[COPES_MAX_RANK] = {0};
    copes_args args = r->args;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        tensors[slot] = (DLTensor){.ndim = -1, .shape = shapes[slot], .strides = no_strides, .byte_offset = 7};
        args.out[slot] = r->problem->args.out[slot] == NULL ? NULL : &tensors[slot];
    }
    if (copes_infer(&r->problem->c.op, &args) != COPES_OK) {
        return fail(r, "copes_infer: %s", copes_last_error());
    }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        if (args.out[slot] != NULL && expect_inferred(r, slot, &tensors[slot]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* The first line of copes_explain is "variant: NAME". */
static void read_variant(copes_status status, const char *text, char name[CHECK_VARIANT])
{
    name[0] = '\0';
    if (status == COPES_OK)
        sscanf(text, "variant: %127[^\n]", name);
}

#define ADDRESS ((uintptr_t)1 << 40) /* of the first tensor, and from one to the next: further apart than any is long */

copes_status check_explain(const check_problem *problem, copes_context *context, DLDevice device, size_t offset,
                           char text[CHECK_PLAN], size_t *workspace)
{
    const check_case *c = &problem->c;
    check_buffer in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS];
    copes_args args = {.in = {NULL}};
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (problem->args.in[slot] != NULL) {
            const oracle_tensor *tensor = problem->args.in[slot];
            check_buffer_describe(&in[slot], device, problem->in_type[slot], tensor->rank, tensor->shape,
                                  check_layout_of(c, slot), ADDRESS * (uintptr_t)(1 + slot) + offset);
            args.in[slot] = &in[slot].tensor;
        }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (problem->args.out[slot] != NULL) {
            const oracle_tensor *tensor = problem->args.out[slot];
            check_buffer_describe(&out[slot], device, problem->out_type[slot], tensor->rank, tensor->shape,
                                  c->out_layout, ADDRESS * (uintptr_t)(1 + COPES_MAX_INPUTS + slot) + offset);
            args.out[slot] =
                c->in_place && slot == COPES_FIRST_OUT ? args.in[check_lead_slot(&c->op)] : &out[slot].tensor;
        }
    const copes_status status = copes_workspace_size(context, &c->op, &args, workspace);
    return status == COPES_OK ? copes_explain(context, &c->op, &args, text, CHECK_PLAN) : status;
}

void check_variant_of(const check_problem *problem, copes_context *context, DLDevice device, char name[CHECK_VARIANT])
{
    char text[CHECK_PLAN];
    size_t workspace;
    read_variant(check_explain(problem, context, device, 0, text, &workspace), text, name);
}

static check_buffer *output_buffer(run *r, int slot)
{
    bool shared = r->problem->c.in_place && slot == COPES_FIRST_OUT;
    return shared ? &r->in[check_lead_slot(&r->problem->c.op)] : &r->out[slot];
}

static int make_outputs(run *r)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        const oracle_tensor *tensor = r->problem->args.out[slot];
        if (tensor == NULL) {
            continue;
        }
        check_buffer *buffer = output_buffer(r, slot);
        if (buffer == &r->out[slot] && check_buffer_create(buffer, r->device, r->problem->out_type[slot], tensor->rank,
                                                           tensor->shape, r->problem->c.out_layout, r->poison) != 0) {
            return fail(r, "no memory for output %d", slot);
        }
        r->args.out[slot] = &buffer->tensor;
    }
    return 0;
}

/* Tensors need no data yet for the size of a workspace, and it does not depend on them. */
static int expect_size_without_data(run *r, size_t wanted)
{
    DLTensor bare[COPES_MAX_INPUTS + COPES_MAX_OUTPUTS];
    copes_args args = r->args;
    size_t size = 0;
    for (int i = 0; i < COPES_MAX_INPUTS + COPES_MAX_OUTPUTS; i++) {
        DLTensor **tensor = i < COPES_MAX_INPUTS ? &args.in[i] : &args.out[i - COPES_MAX_INPUTS];
        if (*tensor == NULL)
            continue;
        bare[i] = **tensor;
        bare[i].data = NULL;
        *tensor = &bare[i];
    }
    if (copes_workspace_size(r->context, &r->problem->c.op, &args, &size) == COPES_OK && size == wanted)
        return 0;
    return fail(r, "the workspace has %zu bytes with data and %zu without", wanted, size);
}

/* The workspace is poisoned, and at any address. */
static int call(run *r)
{
    const copes_op *op = &r->problem->c.op;
    size_t size = 0;
    if (copes_workspace_size(r->context, op, &r->args, &size) != COPES_OK) {
        return fail(r, "copes_workspace_size: %s", copes_last_error());
    }
    if (expect_size_without_data(r, size) != 0)
        return -1;
    char plan[CHECK_PLAN];
    read_variant(copes_explain(r->context, op, &r->args, plan, sizeof plan), plan, r->result.variant);
    int64_t floats = (int64_t)(size / 4 + 1);
    if (check_buffer_create(&r->workspace, r->device, CHECK_F32, 1, &floats, CHECK_ODD, r->poison) != 0) {
        return fail(r, "no memory for a workspace of %zu bytes", size);
    }
    if (copes_run(r->context, op, &r->args, size == 0 ? NULL : r->workspace.tensor.data, size) != COPES_OK) {
        return fail(r, "copes_run: %s", copes_last_error());
    }
    return 0;
}

static int compare(run *r, int slot, const double *got)
{
    const oracle_tensor *wanted = r->problem->args.out[slot];
    const check_type type = r->problem->out_type[slot];
    const check_bound bound = check_bound_of(&r->problem->c.op, slot, type, r->device);
    for (int64_t i = 0; i < oracle_count(wanted); i++) {
        check_verdict verdict = check_compare(bound, type, wanted->value[i], wanted->term[i], wanted->turn[i], got[i]);
        if (verdict.ulps > r->result.ulps) {
            r->result.ulps = verdict.ulps;
        }
        if (verdict.beyond && !r->result.failed) {
            fail(r, "output %d, element %lld is %.9g, not %.9g (largest term %.4g): %.3g ulp", slot, (long long)i,
                 got[i], wanted->value[i], wanted->term[i], verdict.ulps);
        }
    }
    return r->result.failed ? -1 : 0;
}

static int read_output(run *r, int slot)
{
    const size_t count = (size_t)oracle_count(r->problem->args.out[slot]);
    double *got = r->got.out[slot] = calloc(count + 1, sizeof *got);
    const int status = got == NULL ? -1 : check_buffer_read(output_buffer(r, slot), got, &r->result.hash);
    if (status != 0)
        fail(r, status < 0 ? "output %d cannot be read back" : "memory around output %d was written", slot);
    return status;
}

static int read_outputs(run *r)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (r->args.out[slot] != NULL && read_output(r, slot) != 0)
            return -1;
    return 0;
}

static int compare_outputs(run *r)
{
    check_problem *problem = r->problem;
    if (problem->judged && problem->right_hash == r->result.hash) {
        r->result.ulps = problem->right_ulps;
        return 0;
    }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (r->args.out[slot] != NULL && compare(r, slot, r->got.out[slot]) != 0)
            return -1;
    problem->judged = true;
    problem->right_hash = r->result.hash;
    problem->right_ulps = r->result.ulps;
    return 0;
}

/* The workspace's last bytes and what lies around it. */
static int expect_workspace_kept_to(run *r)
{
    size_t size = 0;
    copes_workspace_size(r->context, &r->problem->c.op, &r->args, &size);
    check_buffer *w = &r->workspace;
    unsigned char *after = malloc(w->bytes);
    int same = after != NULL && w->memory->read(r->device.device_id, after, w->device, w->bytes) == 0;
    if (same) {
        memset(after + w->first, r->poison, size);
        same = memcmp(after, w->image, w->bytes) == 0;
    }
    free(after);
    return same ? 0 : fail(r, "memory around the workspace of %zu bytes was written", size);
}

static int judge(run *r)
{
    if (read_outputs(r) != 0 || compare_outputs(r) != 0) {
        return -1;
    }
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        bool written = r->problem->c.in_place && slot == check_lead_slot(&r->problem->c.op);
        if (r->args.in[slot] != NULL && !written && check_buffer_read(&r->in[slot], NULL, NULL) != 0) {
            return fail(r, "input %d was written", slot);
        }
    }
    return expect_workspace_kept_to(r);
}

check_result check_execute(check_problem *problem, copes_context *context, DLDevice device)
{
    return check_execute_keeping(problem, context, device, NULL);
}

check_result check_execute_keeping(check_problem *problem, copes_context *context, DLDevice device, check_values *kept)
{
    run *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return (check_result){.failed = true, .message = "no memory"};
    }
    r->problem = problem;
    r->device = device;
    r->context = context;
    r->poison = problem->c.seed & 1 ? 0xff : 0x5a; /* NaN of every type, or a number like any other */
    if (send_inputs(r) == 0 && infer(r) == 0 && make_outputs(r) == 0 && call(r) == 0) {
        judge(r);
    }
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        check_buffer_destroy(&r->in[slot]);
    }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        check_buffer_destroy(&r->out[slot]);
    }
    check_buffer_destroy(&r->workspace);
    if (kept != NULL)
        *kept = r->got;
    else
        check_values_free(&r->got);
    check_result result = r->result;
    free(r);
    return result;
}

void check_values_free(check_values *values)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        free(values->out[i]);
}

double check_distance(const check_problem *problem, const check_values *a, const check_values *b)
{
    double most = 0;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        const oracle_tensor *wanted = problem->args.out[slot];
        const check_bound bound = {oracle_rule_of(&problem->c.op, slot), 0}; /* only how far it is counts */
        for (int64_t i = 0; wanted != NULL && a->out[slot] != NULL && b->out[slot] != NULL && i < oracle_count(wanted);
             i++) {
            const double value = b->out[slot][i], got = a->out[slot][i];
            if (isfinite(value) && isfinite(got)) {
                most = fmax(most,
                            check_compare(bound, problem->out_type[slot], value, wanted->term[i], wanted->turn[i], got)
                                .ulps);
            }
        }
    }
    return most;
}

check_result check_run(const check_case *c, copes_context *context, DLDevice device)
{
    check_problem problem;
    check_result result = {.failed = true, .message = "no memory for the oracle"};
    if (check_prepare(&problem, c) == 0) {
        result = check_execute(&problem, context, device);
    }
    check_problem_free(&problem);
    return result;
}
