/* Refusals that do not depend on an operator's tensors: null arguments, contexts, devices and workspaces. */
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
    call->op = (copes_op){.kind = COPES_ACT_FORWARD, .act = {COPES_RELU, -1}};
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
    expect_refusal(copes_run(NULL, &call.op, &call.args, NULL, 0), COPES_ERROR_NULL,
                   "context is NULL; it must come from copes_context_create");
    expect_refusal(copes_run(call_context(), NULL, &call.args, NULL, 0), COPES_ERROR_NULL,
                   "op is NULL; it must point to a descriptor");
    expect_refusal(copes_run(call_context(), &call.op, NULL, NULL, 0), COPES_ERROR_NULL,
                   "act_forward: args is NULL; it must point to the tensors");
    for (int i = 0; i < CALL_BYTES; i++)
        ck_assert_int_eq(call.memory[OUT][i], 0x5a);
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
    expect_refusal(copes_context_create(cpu, NULL, NULL), COPES_ERROR_NULL,
                   "context is NULL; it must point to where the context goes");
    expect_refusal(copes_context_create(cpu, &negative, &context), COPES_ERROR_ATTRIBUTE,
                   "options: threads is -1; it must be 0 to 4096");
    ck_assert_ptr_null(context);
    expect_refusal(copes_context_create(cpu, &many, &context), COPES_ERROR_ATTRIBUTE,
                   "options: threads is 4097; it must be 0 to 4096");
    ck_assert_ptr_null(context);
    expect_refusal(copes_context_create((DLDevice){kDLCPU, 1}, NULL, &context), COPES_ERROR_DEVICE,
                   "device: id is 1; backend cpu has 1 devices");
    expect_refusal(copes_context_create((DLDevice){kDLCPU, -1}, NULL, &context), COPES_ERROR_DEVICE,
                   "device: id is -1; backend cpu has 1 devices");
    expect_refusal(copes_context_create((DLDevice){kDLVulkan, 0}, NULL, &context), COPES_ERROR_UNSUPPORTED,
                   "device: type is 7, for which this build has no backend; copes_backends lists those it has");
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
                   "COPES_CPU_ISA is sse9; it must be baseline, avx2, avx512 or avx512bf16, or not set");
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
                   "device: type is 9, for which this build has no backend; copes_backends lists those it has");
    ck_assert_str_eq(text, "poison");
    ck_assert_int_eq(copes_device_summary(cpu, text, 4), COPES_OK);
    ck_assert_str_eq(text, "CPU");
}
END_TEST

/* A row of softmax that no stack holds: its float32 sums need a workspace. */
START_TEST(workspaces)
{
    enum { FEATURES = 1 << 17 };
    static const int64_t x_shape[4] = {1, 2, 1, FEATURES}, theta_shape[2] = {1, 1};
    static uint16_t x[2 * FEATURES], o[2 * FEATURES];
    static float theta = 1;
    int64_t shapes[3][4];
    memcpy(shapes[0], x_shape, sizeof x_shape);
    memcpy(shapes[1], x_shape, sizeof x_shape);
    memcpy(shapes[2], theta_shape, sizeof theta_shape);
    DLTensor in = {.data = x, .device = cpu, .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = shapes[0]};
    DLTensor angles = {.data = &theta, .device = cpu, .ndim = 2, .dtype = float32, .shape = shapes[2]};
    DLTensor out = {.data = o, .device = cpu, .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = shapes[1]};
    const copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_SOFTMAX}};
    const copes_args args = {.in = {&in, &angles}, .out = {&out}};
    size_t size = 0;
    char message[128];
    memset(o, 0x5a, sizeof o);
    ck_assert_int_eq(copes_workspace_size(call_context(), &op, &args, &size), COPES_OK);
    ck_assert_uint_gt(size, 0);
    snprintf(message, sizeof message, "lrpe_forward: the workspace has %zu bytes; it must have %zu", size - 1, size);
    char *workspace = malloc(size);
    ck_assert_ptr_nonnull(workspace);
    expect_refusal(copes_run(call_context(), &op, &args, workspace, size - 1), COPES_ERROR_WORKSPACE, message);
    snprintf(message, sizeof message, "lrpe_forward: the workspace has %zu bytes at NULL; it must have %zu", size,
             size);
    expect_refusal(copes_run(call_context(), &op, &args, NULL, size), COPES_ERROR_WORKSPACE, message);
    for (size_t i = 0; i < 2 * FEATURES; i++)
        ck_assert_uint_eq(o[i], 0x5a5a);
    ck_assert_int_eq(copes_run(call_context(), &op, &args, workspace, size), COPES_OK);
    ck_assert_uint_ne(o[2 * FEATURES - 1], 0x5a5a);
    free(workspace);
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
    suite_add_tcase(suite, context);
    return suite_run(suite);
}
