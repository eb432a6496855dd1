/* What one call on a tiny tensor costs a C program: nanoseconds for each of two operators, the least of many rounds.
 * bench/python_overhead.py sets the same calls from Python beside it. */
#include <copes/copes.h>

#include <stdio.h>
#include <time.h>

enum { N = 2, D = 4, ROUNDS = 200, CALLS = 1000 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int report(const char *name, copes_context *context, const copes_op *op, const copes_args *args)
{
    double least = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = now();
        for (int call = 0; call < CALLS; call++)
            if (copes_run(context, op, args, NULL, 0) != COPES_OK)
                return fprintf(stderr, "%s\n", copes_last_error()), 1;
        const double each = (now() - begin) / CALLS;
        least = each < least ? each : least;
    }
    return printf("%s %.0f\n", name, least) < 0;
}

int main(void)
{
    float x[N * D] = {1, 2, 3, 4, 5, 6, 7, 8}, theta[D / 2] = {1, 0.01F}, o[N * D];
    const DLDevice cpu = {kDLCPU, 0};
    const DLDataType f32 = {kDLFloat, 32, 1};
    int64_t shape[] = {1, N, 1, D}, theta_shape[] = {1, D / 2};
    DLTensor x_view = {.data = x, .device = cpu, .ndim = 4, .dtype = f32, .shape = shape};
    DLTensor theta_view = {.data = theta, .device = cpu, .ndim = 2, .dtype = f32, .shape = theta_shape};
    DLTensor o_view = {.data = o, .device = cpu, .ndim = 4, .dtype = f32, .shape = shape};

    const copes_op act = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_args act_args = {.act_forward = {.x = &x_view, .o = &o_view}};
    const copes_op rotate = {.kind = COPES_LRPE_FORWARD, .lrpe = {.offset = {3}}};
    const copes_args rotate_args = {.lrpe_forward = {.x = &x_view, .theta = &theta_view, .o = &o_view}};
    copes_context *context;
    if (copes_context_create(cpu, NULL, &context) != COPES_OK)
        return fprintf(stderr, "%s\n", copes_last_error()), 1;
    const int failed = report("act", context, &act, &act_args) || report("lrpe_rotate", context, &rotate, &rotate_args);
    copes_context_destroy(context);
    return failed;
}
