/* RoPE after silu, on two heads of the token at position 4096. */
#include <copes/copes.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 1, N = 1, H = 2, D = 8 };

int main(void)
{
    float x[B * N * H * D], theta[D / 2], o[B * N * H * D];
    for (int i = 0; i < B * N * H * D; i++)
        x[i] = (float)i / 8 - 1;
    for (int i = 0; i < D / 2; i++)
        theta[i] = powf(10000, -2 * (float)i / D);

    const DLDevice cpu = {kDLCPU, 0};
    const DLDataType f32 = {kDLFloat, 32, 1};
    int64_t shape[] = {B, N, H, D}, theta_shape[] = {1, D / 2};
    DLTensor x_view = {.data = x, .device = cpu, .ndim = 4, .dtype = f32, .shape = shape};
    DLTensor theta_view = {.data = theta, .device = cpu, .ndim = 2, .dtype = f32, .shape = theta_shape};
    DLTensor o_view = {.data = o, .device = cpu, .ndim = 4, .dtype = f32, .shape = shape};

    const copes_op op = {.kind = COPES_LRPE_FORWARD,
                         .lrpe = {.variant = COPES_LRPE_ROTATE, .act = COPES_ACT_SILU, .offset = {4096}}};
    const copes_args args = {.lrpe_forward = {.x = &x_view, .theta = &theta_view, .o = &o_view}};

    copes_context *context;
    size_t size = 0;
    void *workspace = NULL;
    int failed = copes_context_create(cpu, NULL, &context) != COPES_OK ||
                 copes_workspace_size(context, &op, &args, &size) != COPES_OK ||
                 (size > 0 && (workspace = malloc(size)) == NULL) ||
                 copes_run(context, &op, &args, workspace, size) != COPES_OK;
    if (failed)
        fprintf(stderr, "%s\n", copes_last_error());
    for (int i = 0; i < B * N * H * D && !failed; i++)
        printf("%.6f\n", (double)o[i]);
    free(workspace);
    copes_context_destroy(context);
    return failed;
}
