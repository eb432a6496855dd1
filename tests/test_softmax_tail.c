/* A softmax's gradient where the largest x is far above the others, and only one of those has a gradient that is not 0: two
 * results are then as large as its e^(x - largest), and as wrong as the rounding of that difference would make it, or a sum from
 * which the smaller exponentials are missing. At every instruction-set level. */
#include "tests/harness/random.h"
#include "tests/levels.h"
#include "tests/suite.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { PAIRS = 64, MOST = 16 /* elements of a softmax */ };

/* The operator's two walks, and what it takes for the second. */
typedef enum walk { FEATURES, SEQUENCE, SEQUENCE_WITH_LSE } walk;

typedef struct kind {
    DLDataType type;
    double largest, bound;
} kind;

static const kind single = {{kDLFloat, 32, 1}, 40, 1e-6}, twice = {{kDLFloat, 64, 1}, 700, 1e-14};

static void put(const kind *k, void *array, int i, double value)
{
    if (k->type.bits == 32)
        ((float *)array)[i] = (float)value;
    else
        ((double *)array)[i] = value;
}

static double get(const kind *k, const void *array, int i)
{
    return k->type.bits == 32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

/* The `count` elements of a softmax are features of a token, or tokens of a feature. Angles are 0. */
static void run_all(copes_context *context, const kind *k, walk w, int count, const void *x, const void *g, void *o)
{
    float theta = 0;
    double lse[PAIRS];
    const DLDevice cpu = {kDLCPU, 0};
    const DLDataType f32 = {kDLFloat, 32, 1};
    int64_t shape[] = {1, w == FEATURES ? PAIRS : count, 1, w == FEATURES ? count : PAIRS};
    int64_t strides[] = {0, w == FEATURES ? count : 1, 0, w == FEATURES ? 1 : count}, theta_shape[] = {1, 1};
    DLTensor x_view = {(void *)(uintptr_t)x, cpu, 4, k->type, shape, strides, 0}, g_view = x_view, o_view = x_view;
    DLTensor theta_view = {&theta, cpu, 2, f32, theta_shape, NULL, 0};
    DLTensor lse_view = {lse, cpu, 3, k->type, (int64_t[]){1, 1, PAIRS}, NULL, 0};
    g_view.data = (void *)(uintptr_t)g;
    o_view.data = o;
    for (int i = 0; i < PAIRS; i++)
        put(k, lse, i, k->largest); /* which the smaller one's e is too small to change */
    const copes_op op = {.kind = COPES_LRPE_BACKWARD,
                         .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = w == FEATURES ? -1 : -3, .rotary_dim = 2}};
    const copes_args args = {.lrpe_backward = {.x = &x_view,
                                               .theta = &theta_view,
                                               .grad_o = &g_view,
                                               .lse = w == SEQUENCE_WITH_LSE ? &lse_view : NULL,
                                               .grad_x = &o_view}};
    size_t bytes = 0;
    ck_assert_msg(copes_workspace_size(context, &op, &args, &bytes) == COPES_OK, "%s", copes_last_error());
    void *workspace = malloc(bytes + 1);
    ck_assert_msg(copes_run(context, &op, &args, workspace, bytes) == COPES_OK, "%s", copes_last_error());
    free(workspace);
}

static void check_walk(copes_context *context, const kind *k, walk w)
{
    double x[2 * PAIRS], g[2 * PAIRS], o[2 * PAIRS]; /* of either type */
    uint64_t state = 1;
    for (int i = 0; i < PAIRS; i++) {
        put(k, x, 2 * i, k->largest);
        put(k, x, 2 * i + 1, exp2(-12 * check_uniform(&state)));
        put(k, g, 2 * i, 0);
        put(k, g, 2 * i + 1, 1);
    }
    run_all(context, k, w, 2, x, g, o);
    for (int i = 0; i < PAIRS; i++) {
        const long double y = expl((long double)get(k, x, 2 * i + 1) - (long double)k->largest);
        const double high = (double)(get(k, o, 2 * i) / y + 1), low = (double)(get(k, o, 2 * i + 1) / y - 1);
        ck_assert_msg(fabs(high) <= k->bound && fabs(low) <= k->bound, "walk %d, pair %d: off by %g and %g", (int)w, i,
                      high, low);
    }
}

/* All but the first are a little less than half an ulp of 1: added one by one to the largest, of 1, they would be lost. */
static void check_sum(copes_context *context, walk w)
{
    float x[MOST * PAIRS], g[MOST * PAIRS], o[MOST * PAIRS];
    for (int i = 0; i < MOST * PAIRS; i++) {
        x[i] = i % MOST == 0 ? 0 : -16.65F;
        g[i] = i % MOST == MOST - 1 ? 1 : 0;
    }
    run_all(context, &single, w, MOST, x, g, o);
    const long double y = expl((long double)-16.65F) / (1 + (MOST - 1) * expl((long double)-16.65F));
    for (int i = 0; i < PAIRS; i++) {
        const double first = (double)(o[i * MOST] / (y * (1 - (MOST - 1) * y)) + 1);
        ck_assert_msg(fabs(first) <= single.bound / 2, "walk %d, softmax %d: off by %g", (int)w, i, first);
    }
}

START_TEST(differences_are_as_good_as_their_exponentials)
{
    for (int level = 0; level < LEVELS; level++) {
        copes_context *context;
        ck_assert_msg(open_level(level_names[level], 1, &context), "%s", copes_last_error());
        for (int w = FEATURES; w <= SEQUENCE_WITH_LSE && context != NULL; w++) {
            check_walk(context, &single, (walk)w);
            check_walk(context, &twice, (walk)w);
            if (w != SEQUENCE_WITH_LSE)
                check_sum(context, (walk)w);
        }
        copes_context_destroy(context);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("softmax tail");
    TCase *tests = tcase_create("gradients");
    tcase_add_test(tests, differences_are_as_good_as_their_exponentials);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
