/* Refusals that do not depend on an operator's tensors: null arguments, contexts, devices, workspaces and
 * descriptions that overlap. */
#include "tests/refusal.h"
#include "tests/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const DLDevice cpu = {kDLCPU, 0};
static const int64_t shape[2] = {2, 3};

static void make(call_case *call)
{
    memset(call, 0, sizeof *call);
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}};
    call_add(call, COPES_ACT_X, float32, 2, shape);
    call_add(call, OUT, float32, 2, shape);
}

START_TEST(null_arguments)
{
    static call_case call;
    size_t size = 77;
    make(&call);
    expect_refusal(copes_infer(NULL, &call.args), COPES_ERROR_NULL, "op is NULL; it must point to a descriptor");
    expect_refusal(copes_infer(&call.op, NULL), COPES_ERROR_NULL,
                   "act_forward: args is NULL; it must point to the tensors");
    expect_refusal(copes_workspace_size(NULL, &call.op, &call.args, &size), COPES_ERROR_NULL,
                   "context is NULL; it must come from copes_context_create");
    expect_refusal(copes_workspace_size(call_context(), NULL, &call.args, &size), COPES_ERROR_NULL,
                   "op is NULL; it must point to a descriptor");
    expect_refusal(copes_workspace_size(call_context(), &call.op, NULL, &size), COPES_ERROR_NULL,
                   "act_forward: args is NULL; it must point to the tensors");
    expect_refusal(copes_workspace_size(call_context(), &call.op, &call.args, NULL), COPES_ERROR_NULL,
                   "size is NULL; it must point to where the size goes");
    ck_assert_uint_eq(size, 77);
    expect_refusal(copes_workspace_bound(NULL, &call.op, &call.args, 1, &size), COPES_ERROR_NULL,
                   "context is NULL; it must come from copes_context_create");
    expect_refusal(copes_workspace_bound(call_context(), NULL, &call.args, 2, &size), COPES_ERROR_NULL,
                   "ops is NULL; it must point to those of 2 calls");
    expect_refusal(copes_workspace_bound(call_context(), &call.op, NULL, 1, &size), COPES_ERROR_NULL,
                   "args is NULL; it must point to those of 1 calls");
    expect_refusal(copes_workspace_bound(call_context(), &call.op, &call.args, 1, NULL), COPES_ERROR_NULL,
                   "size is NULL; it must point to where the size goes");
    ck_assert_uint_eq(size, 77);
    expect_refusal(copes_run(NULL, &call.op, &call.args, NULL, 0), COPES_ERROR_NULL,
                   "context is NULL; it must come from copes_context_create");
    expect_refusal(copes_run(call_context(), NULL, &call.args, NULL, 0), COPES_ERROR_NULL,
                   "op is NULL; it must point to a descriptor");
    expect_refusal(copes_run(call_context(), &call.op, NULL, NULL, 0), COPES_ERROR_NULL,
                   "act_forward: args is NULL; it must point to the tensors");
    expect_poison(&call, OUT);
    ck_assert_int_eq(call_run(&call), COPES_OK);
    call.tensor[OUT].shape = NULL;
    expect_refusal(copes_infer(&call.op, &call.args), COPES_ERROR_NULL,
                   "act_forward: o has a NULL shape; it must point to room for 8 lengths");
}
END_TEST

START_TEST(contexts)
{
    copes_context *context = (copes_context *)&context;
    const copes_context_options negative = {.threads = -1}, many = {.threads = 4097};
    copes_context_options newer;
    expect_refusal(copes_context_create(cpu, NULL, NULL), COPES_ERROR_NULL,
                   "context is NULL; it must point to where the context goes");
    expect_refusal(copes_context_create(cpu, &negative, &context), COPES_ERROR_ATTRIBUTE,
                   "options: threads is -1; it must be 0 to 4096");
    ck_assert_ptr_null(context);
    expect_refusal(copes_context_create(cpu, &many, &context), COPES_ERROR_ATTRIBUTE,
                   "options: threads is 4097; it must be 0 to 4096");
    ck_assert_ptr_null(context);
    for (size_t i = 0; i < sizeof newer.reserved / sizeof newer.reserved[0]; i++) {
        newer = (copes_context_options){.threads = 1};
        newer.reserved[i] = INT32_MIN;
        expect_refusal(
            copes_context_create(cpu, &newer, &context), COPES_ERROR_ATTRIBUTE,
            "options: reserved is not zero; it must be: the struct was not all zero at first, or this library "
            "is older than the program");
        ck_assert_ptr_null(context);
    }
    expect_refusal(copes_context_create((DLDevice){kDLCPU, 1}, NULL, &context), COPES_ERROR_DEVICE,
                   "device: id is 1; backend cpu has 1 devices");
    expect_refusal(copes_context_create((DLDevice){kDLCPU, -1}, NULL, &context), COPES_ERROR_DEVICE,
                   "device: id is -1; backend cpu has 1 devices");
    expect_refusal(copes_context_create((DLDevice){kDLVulkan, 0}, NULL, &context), COPES_ERROR_UNSUPPORTED,
                   "device: type is 7, for which this build has no backend; copes_backend_at lists those it has");
    ck_assert_ptr_null(context);
    expect_refusal(copes_context_set_stream(NULL, NULL), COPES_ERROR_NULL,
                   "context is NULL; it must come from copes_context_create");
    copes_context_destroy(NULL);
    ck_assert_int_eq(copes_context_create(cpu, NULL, &context), COPES_OK);
    ck_assert_int_eq(copes_context_set_stream(context, &context), COPES_OK);
    copes_context_destroy(context);
}
END_TEST

START_TEST(levels)
{
    copes_context *context = (copes_context *)&context;
    setenv("COPES_CPU_ISA", "sse9", 1);
    expect_refusal(copes_context_create(cpu, NULL, &context), COPES_ERROR_ATTRIBUTE,
                   "COPES_CPU_ISA is sse9; it must be baseline, avx2, avx512, avx512bf16 or sve256, or not set");
    ck_assert_ptr_null(context);
    setenv("COPES_CPU_ISA", "baseline", 1);
    ck_assert_int_eq(copes_context_create(cpu, NULL, &context), COPES_OK);
    copes_context_destroy(context);
    setenv("COPES_CPU_ISA", "avx512bf16", 1);
    if (copes_context_create(cpu, NULL, &context) == COPES_OK)
        copes_context_destroy(context);
    else
        expect_refusal(COPES_ERROR_ATTRIBUTE, COPES_ERROR_ATTRIBUTE,
                       "COPES_CPU_ISA is avx512bf16, which the processor or the build lacks; "
                       "it must be a level that both have");
    unsetenv("COPES_CPU_ISA");
}
END_TEST

START_TEST(summaries)
{
    char text[64] = "poison";
    expect_refusal(copes_device_summary(cpu, NULL, 64), COPES_ERROR_NULL,
                   "text is NULL or has no room; it must take a line");
    expect_refusal(copes_device_summary(cpu, text, 0), COPES_ERROR_NULL,
                   "text is NULL or has no room; it must take a line");
    expect_refusal(copes_device_summary((DLDevice){kDLCPU, 3}, text, sizeof text), COPES_ERROR_DEVICE,
                   "device: id is 3; backend cpu has 1 devices");
    expect_refusal(copes_device_summary((DLDevice){kDLVPI, 0}, text, sizeof text), COPES_ERROR_UNSUPPORTED,
                   "device: type is 9, for which this build has no backend; copes_backend_at lists those it has");
    ck_assert_str_eq(text, "poison");
    ck_assert_int_eq(copes_device_summary(cpu, text, 4), COPES_OK);
    ck_assert_str_eq(text, "CPU");
}
END_TEST

/* Rows of softmax that no stack holds, so that their float32 sums need a workspace. x, o and theta lie one after the
 * other, with room for a workspace before and after them. */
enum { FEATURES = 1 << 17, ROWS = 2, ROW_BYTES = ROWS * FEATURES * 2 };
typedef struct long_rows {
    char *memory, *x, *o, *theta, *after;
    int64_t shape[3][4];
    DLTensor in, angles, out;
    copes_op op;
    copes_args args;
    size_t size; /* of the workspace */
} long_rows;

static void make_long_rows(long_rows *call)
{
    memset(call, 0, sizeof *call);
    for (int i = 0; i < 2; i++)
        memcpy(call->shape[i], (int64_t[4]){1, ROWS, 1, FEATURES}, sizeof call->shape[i]);
    memcpy(call->shape[2], (int64_t[4]){1, 1}, sizeof call->shape[2]);
    call->in = (DLTensor){.device = cpu, .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = call->shape[0]};
    call->out = (DLTensor){.device = cpu, .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = call->shape[1]};
    call->angles = (DLTensor){.device = cpu, .ndim = 2, .dtype = float32, .shape = call->shape[2]};
    call->op = (copes_op){.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX}};
    call->args = (copes_args){.in = {&call->in, &call->angles}, .out = {&call->out}};
    ck_assert_int_eq(copes_workspace_size(call_context(), &call->op, &call->args, &call->size), COPES_OK);
    ck_assert_uint_gt(call->size, 1024);
    call->memory = calloc(1, 2 * call->size + 2 * ROW_BYTES + sizeof(float));
    ck_assert_ptr_nonnull(call->memory);
    call->in.data = call->x = call->memory + call->size;
    call->out.data = call->o = call->x + ROW_BYTES;
    call->angles.data = call->theta = call->o + ROW_BYTES;
    call->after = call->theta + sizeof(float);
    memset(call->o, 0x5a, ROW_BYTES);
}

static void expect_untouched(const long_rows *call)
{
    for (int i = 0; i < ROW_BYTES; i++)
        if (call->o[i] != 0x5a)
            ck_abort_msg("o was written at byte %d", i);
}

START_TEST(workspaces)
{
    long_rows call;
    char message[128];
    make_long_rows(&call);
    const size_t size = call.size;
    snprintf(message, sizeof message, "lrpe_forward: the workspace has %zu bytes; it must have %zu", size - 1, size);
    expect_refusal(copes_run(call_context(), &call.op, &call.args, call.memory, size - 1), COPES_ERROR_WORKSPACE,
                   message);
    snprintf(message, sizeof message, "lrpe_forward: the workspace has %zu bytes at NULL; it must have %zu", size,
             size);
    expect_refusal(copes_run(call_context(), &call.op, &call.args, NULL, size), COPES_ERROR_WORKSPACE, message);
    expect_untouched(&call);
    ck_assert_int_eq(copes_run(call_context(), &call.op, &call.args, call.memory, size), COPES_OK);
    ck_assert_int_ne(call.o[ROW_BYTES - 1], 0x5a);
    free(call.memory);
}
END_TEST

static void expect_overlap(const long_rows *call, char *workspace, const char *slot)
{
    char message[128];
    snprintf(message, sizeof message, "lrpe_forward: the workspace overlaps %s; it must have memory of its own", slot);
    expect_refusal(copes_run(call_context(), &call->op, &call->args, workspace, call->size), COPES_ERROR_ALIAS,
                   message);
    expect_untouched(call);
}

/* The workspace is used from the next multiple of 256 bytes on. */
START_TEST(workspaces_that_overlap)
{
    long_rows call;
    make_long_rows(&call);
    expect_overlap(&call, call.x, "x");
    expect_overlap(&call, call.x - call.size + 256, "x");
    expect_overlap(&call, call.x + ROW_BYTES - 257, "x");
    call.in.data = call.memory; /* out of the way of what comes up to o */
    expect_overlap(&call, call.o - call.size + 256, "o");
    call.in.data = call.x;
    call.out.data = call.memory;
    memset(call.memory, 0x5a, ROW_BYTES);
    call.o = call.memory;
    expect_overlap(&call, call.memory, "o");
    expect_overlap(&call, call.theta - 256, "theta");
    free(call.memory);
    make_long_rows(&call);
    ck_assert_int_eq(copes_run(call_context(), &call.op, &call.args, call.memory, call.size), COPES_OK);
    ck_assert_int_eq(copes_run(call_context(), &call.op, &call.args, call.after, call.size), COPES_OK);
    free(call.memory);
}
END_TEST

/* What copes_infer writes must be nobody else's: an input that shares it would describe memory that it does not
 * have. */
static void expect_description_refusal(const copes_op *op, const copes_args *args, const char *parts)
{
    char message[160];
    snprintf(message, sizeof message, "lrpe_forward: the %s; it is written, so it must have memory of its own", parts);
    expect_refusal(copes_infer(op, args), COPES_ERROR_ALIAS, message);
}

START_TEST(descriptions_that_overlap)
{
    int64_t lengths[2][8] = {{1, 2, 1, 4}, {1, 1}}, steps[8] = {0, 0, 0, 8, 4, 4, 1}, *strides = steps + 3;
    int64_t made[2][8] = {{0}};
    DLTensor x = {.device = cpu, .ndim = 4, .dtype = float32, .shape = lengths[0], .strides = strides};
    DLTensor theta = {.device = cpu, .ndim = 2, .dtype = float32, .shape = lengths[1]};
    DLTensor o = {.shape = made[0]}, lse = {.shape = made[1]};
    const DLTensor x_before = x, o_before = o;
    const copes_op op = {.kind = COPES_LRPE_FORWARD,
                         .lrpe = {.variant = COPES_LRPE_COSINE, .act = COPES_ACT_SOFTMAX, .dim = -3}};
    copes_args args = {.in = {&x, &theta}, .out = {&x, &lse}};
    expect_description_refusal(&op, &args, "DLTensor of o overlaps the DLTensor of x");
    args.out[1] = args.out[0] = &o;
    expect_description_refusal(&op, &args, "DLTensor of o overlaps the DLTensor of lse");
    args.out[1] = &lse;
    o.shape = lengths[0];
    expect_description_refusal(&op, &args, "shape of o overlaps the shape of x");
    o.shape = steps; /* its last length is x's first step */
    expect_description_refusal(&op, &args, "shape of o overlaps the strides of x");
    o.shape = lengths[0] + 3; /* its first length is x's last */
    expect_description_refusal(&op, &args, "shape of o overlaps the shape of x");
    o.shape = (int64_t *)&theta;
    expect_description_refusal(&op, &args, "shape of o overlaps the DLTensor of theta");
    o.shape = made[1] + 2; /* its first length is lse's last */
    expect_description_refusal(&op, &args, "shape of o overlaps the shape of lse");
    o.shape = made[0];
    ck_assert_mem_eq(&x, &x_before, sizeof x);
    ck_assert_mem_eq(&o, &o_before, sizeof o);
    ck_assert(lengths[0][3] == 4 && strides[0] == 8 && made[1][0] == 0 && lse.ndim == 0);
    o.shape = lengths[0] + 4; /* beside x's lengths is no overlap */
    ck_assert_int_eq(copes_infer(&op, &args), COPES_OK);
    ck_assert(lengths[0][3] == 4 && lengths[0][7] == 8 && lse.ndim == 3);
    ck_assert_mem_eq(&x, &x_before, sizeof x);
}
END_TEST

START_TEST(names)
{
    ck_assert_str_eq(copes_last_error(), "");
    ck_assert_str_eq(copes_status_name(COPES_OK), "COPES_OK");
    ck_assert_str_eq(copes_status_name(COPES_ERROR_BACKEND), "COPES_ERROR_BACKEND");
    ck_assert_str_eq(copes_status_name((copes_status)99), "unknown status");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals_context");
    TCase *context = tcase_create("context");
    tcase_add_test(context, names);
    tcase_add_test(context, null_arguments);
    tcase_add_test(context, contexts);
    tcase_add_test(context, levels);
    tcase_add_test(context, summaries);
    tcase_add_test(context, workspaces);
    tcase_add_test(context, workspaces_that_overlap);
    tcase_add_test(context, descriptions_that_overlap);
    suite_add_tcase(suite, context);
    return suite_run(suite);
}
