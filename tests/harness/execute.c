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
    check_buffer pack; /* of which some inputs are views, or nothing */
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

static int create_pack(run *r)
{
    int64_t shape[4];
    const check_case *c = &r->problem->c;
    if (!check_packed_shape(c, shape))
        return 0;
    return check_buffer_create(&r->pack, r->device, c->type, 4, shape, check_layout_of(c, 0), r->poison);
}

static int create_input(run *r, int slot)
{
    const check_problem *p = r->problem;
    const oracle_tensor *tensor = p->args.in[slot];
    const int64_t packed_head = check_packed_head(&p->c, slot);
    if (packed_head < 0)
        return check_buffer_create(&r->in[slot], r->device, p->in_type[slot], tensor->rank, tensor->shape,
                                   check_layout_of(&p->c, slot), r->poison);
    check_buffer_view(&r->in[slot], &r->pack, packed_head, tensor->shape);
    return 0;
}

static int send_inputs(run *r)
{
    if (create_pack(r) != 0)
        return fail(r, "no memory for packed inputs");
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        const oracle_tensor *tensor = r->problem->args.in[slot];
        if (tensor == NULL) {
            continue;
        }
        if (create_input(r, slot) != 0 || check_buffer_write(&r->in[slot], tensor->value) != 0) {
            return fail(r, "no memory for input %d", slot);
        }
        r->args.in[slot] = &r->in[slot].tensor;
    }
    return 0;
}

static int create_output(run *r, int slot)
{
    const check_problem *p = r->problem;
    const oracle_tensor *tensor = p->args.out[slot];
    if (check_buffer_create(&r->out[slot], r->device, p->out_type[slot], tensor->rank, tensor->shape, p->c.out_layout,
                            r->poison) != 0)
        return fail(r, "no memory for output %d", slot);
    return 0;
}

/* Outputs that are there before the call, with what they hold. */
static int send_updated(run *r)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        const double *before = r->problem->before[slot];
        if (before == NULL)
            continue;
        if (create_output(r, slot) != 0)
            return -1;
        if (check_buffer_write(&r->out[slot], before) != 0)
            return fail(r, "output %d cannot be sent", slot);
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

/* One that exists already is the caller's to describe. */
static int expect_left_alone(run *r, int slot, const DLTensor *got)
{
    const oracle_tensor *wanted = r->problem->args.out[slot];
    const bool same = memcmp(got, &r->out[slot].tensor, sizeof *got) == 0 &&
                      memcmp(got->shape, wanted->shape, (size_t)wanted->rank * sizeof *got->shape) == 0;
    return same ? 0 : fail(r, "copes_infer describes output %d, which exists", slot);
}

/* Asks copes_infer for every output before any has memory, but for those that exist. */
static int infer(run *r)
{
    DLTensor tensors[COPES_MAX_OUTPUTS] = {{.ndim = -1}};
    int64_t shapes[COPES_MAX_OUTPUTS][COPES_MAX_RANK], no_strides[COPES_MAX_RANK] = {0};
    copes_args args = r->args;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        tensors[slot] = (DLTensor){.ndim = -1, .shape = shapes[slot], .strides = no_strides, .byte_offset = 7};
        args.out[slot] = r->problem->args.out[slot] == NULL ? NULL : &tensors[slot];
        if (check_is_updated(&r->problem->c.op, slot))
            tensors[slot] = r->out[slot].tensor;
    }
    if (copes_infer(&r->problem->c.op, &args) != COPES_OK) {
        return fail(r, "copes_infer: %s", copes_last_error());
    }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        const bool updated = check_is_updated(&r->problem->c.op, slot);
        if (args.out[slot] != NULL &&
            (updated ? expect_left_alone(r, slot, &tensors[slot]) : expect_inferred(r, slot, &tensors[slot])) != 0) {
            return -1;
        }
    }
    return 0;
}

static check_buffer *output_buffer(run *r, int slot)
{
    const int replaced = check_replaced(&r->problem->c, slot);
    return replaced >= 0 ? &r->in[replaced] : &r->out[slot];
}

static int make_outputs(run *r)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        if (r->problem->args.out[slot] == NULL) {
            continue;
        }
        check_buffer *buffer = output_buffer(r, slot);
        if (buffer->image == NULL && create_output(r, slot) != 0) {
            return -1;
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
    check_read_variant(copes_explain(r->context, op, &r->args, plan, sizeof plan), plan, r->result.variant);
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
    check_bound bound = check_bound_of(&r->problem->c.op, &r->problem->args, slot, type, r->device);
    for (int64_t i = 0; i < oracle_count(wanted); i++) {
        bound.room = wanted->room[i];
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

static int read_outputs(run *r)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        const int status = r->args.out[slot] == NULL ? 0 : check_buffer_read(output_buffer(r, slot), &r->result.hash);
        if (status != 0)
            return fail(r, status < 0 ? "output %d cannot be read back" : "memory around output %d was written", slot);
    }
    return 0;
}

static int take_values(run *r, int slot)
{
    const size_t count = (size_t)oracle_count(r->problem->args.out[slot]);
    double *values = r->got.out[slot] = calloc(count + 1, sizeof *values);
    if (values == NULL)
        return fail(r, "no memory for the elements of output %d", slot);
    check_buffer_values(output_buffer(r, slot), values);
    return 0;
}

/* `keeps`: their values are wanted though the bits are known to be right. */
static int compare_outputs(run *r, bool keeps)
{
    check_problem *problem = r->problem;
    const bool known = problem->judged && problem->right_hash == r->result.hash;
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (r->args.out[slot] != NULL && (keeps || !known) && take_values(r, slot) != 0)
            return -1;
    if (known) {
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

static bool is_written(const run *r, int input)
{
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (r->args.out[slot] == &r->in[input].tensor)
            return true;
    return false;
}

static int judge(run *r, bool keeps)
{
    if (read_outputs(r) != 0 || compare_outputs(r, keeps) != 0) {
        return -1;
    }
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        if (r->args.in[slot] != NULL && !is_written(r, slot) && check_buffer_read(&r->in[slot], NULL) != 0) {
            return fail(r, "input %d was written", slot);
        }
    }
    if (r->pack.image != NULL && check_buffer_read(&r->pack, NULL) != 0)
        return fail(r, "memory between or in packed inputs was written");
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
    if (send_inputs(r) == 0 && send_updated(r) == 0 && infer(r) == 0 && make_outputs(r) == 0 && call(r) == 0) {
        judge(r, kept != NULL);
    }
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++) {
        check_buffer_destroy(&r->in[slot]);
    }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++) {
        check_buffer_destroy(&r->out[slot]);
    }
    check_buffer_destroy(&r->pack);
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
        const check_bound bound = {.rule = oracle_rule_of(&problem->c.op, slot)}; /* only how far it is counts */
        for (int64_t i = 0; wanted != NULL && a->out[slot] != NULL && b->out[slot] != NULL && i < oracle_count(wanted);
             i++) {
            const double value = b->out[slot][i], got = a->out[slot][i];
            if (!isfinite(value) || !isfinite(got)) {
                continue;
            }
            const double ulps =
                check_compare(bound, problem->out_type[slot], value, wanted->term[i], wanted->turn[i], got).ulps;
            if (isfinite(ulps)) { /* infinite: beyond this bound of 0, but no further than angles leave open */
                most = fmax(most, ulps);
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
