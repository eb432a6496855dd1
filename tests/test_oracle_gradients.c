/* The oracle's backward against central differences of its forward: with L = sum(w o), the backward at grad_o = w must
 * be the slope of L in every element of x. */
#include "tests/every.h"
#include "tests/oracle/oracle.h"
#include "tests/suite.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ROOM = 512 };

typedef struct room {
    oracle_tensor tensor;
    double value[ROOM], term[ROOM], turn[ROOM];
} room;

static room x, theta, w, o, lse, slope;

static void shape_room(room *r, int rank, const int64_t *shape)
{
    memset(r, 0, sizeof *r);
    r->tensor = (oracle_tensor){.rank = rank, .value = r->value, .term = r->term, .turn = r->turn};
    memcpy(r->tensor.shape, shape, (size_t)rank * sizeof *shape);
    ck_assert_int_le(oracle_count(&r->tensor), ROOM);
}

static void scatter(room *r, int rank, const int64_t *shape, double seed)
{
    shape_room(r, rank, shape);
    for (int64_t i = 0; i < oracle_count(&r->tensor); i++) {
        r->value[i] = 1.5 * sin(seed + 12.9898 * (double)i * (double)(i + 3)) + 0.01; /* away from relu's corner */
    }
}

static void run(const copes_op *op, oracle_args *args)
{
    args->tiny = (double)FLT_MIN;
    ck_assert_int_eq(oracle_run(op, args), 0);
}

static double loss(const copes_op *op, oracle_args *args)
{
    double sum = 0;
    run(op, args);
    for (int64_t i = 0; i < oracle_count(&o.tensor); i++) {
        sum += w.value[i] * o.value[i];
    }
    return sum;
}

static void expect_slopes(const copes_op *op, oracle_args *args)
{
    const double step = 1e-4;
    for (int64_t i = 0; i < oracle_count(&x.tensor); i += tests_every()) {
        double kept = x.value[i];
        x.value[i] = kept + step;
        double above = loss(op, args);
        x.value[i] = kept - step;
        double difference = (above - loss(op, args)) / (2 * step);
        x.value[i] = kept;
        ck_assert_msg(fabs(difference - slope.value[i]) < 1e-7, "element %lld: slope %.12g, backward %.12g",
                      (long long)i, difference, slope.value[i]);
    }
}

static void check_act(copes_act which, int dim)
{
    const int64_t shape[] = {3, 4, 2};
    copes_op forward = {.kind = COPES_ACT_FORWARD, .act = {.act = which, .dim = dim}};
    copes_op backward = {.kind = COPES_ACT_BACKWARD, .act = forward.act};
    scatter(&x, 3, shape, 0.7);
    scatter(&w, 3, shape, 2.9);
    shape_room(&o, 3, shape);
    shape_room(&slope, 3, shape);
    oracle_args args = {.in = {[COPES_ACT_X] = &x.tensor}, .out = {&o.tensor}};
    run(&forward, &args);
    oracle_args back = {.in = {&x.tensor, &w.tensor, &o.tensor}, .out = {&slope.tensor}};
    run(&backward, &back);
    expect_slopes(&forward, &args);
}

START_TEST(act)
{
    for (int which = COPES_ACT_NONE; which < COPES_ACT_SOFTMAX; which++) {
        check_act((copes_act)which, 0);
    }
    for (int dim = -3; dim <= 0; dim++) {
        check_act(COPES_ACT_SOFTMAX, dim);
    }
}
END_TEST

static void check_lrpe(copes_lrpe_attributes attributes, int64_t heads, int64_t width)
{
    const int64_t shape[] = {2, 7, 2, 6};
    copes_op forward = {.kind = COPES_LRPE_FORWARD, .lrpe = attributes};
    copes_op backward = {.kind = COPES_LRPE_BACKWARD, .lrpe = attributes};
    scatter(&x, 4, shape, 0.7);
    scatter(&theta, 2, (int64_t[]){heads, width}, 4.1);
    oracle_args args = {.in = {[COPES_LRPE_X] = &x.tensor, [COPES_LRPE_THETA] = &theta.tensor}, .out = {&o.tensor}};
    shape_room(&o, 4, shape);
    oracle_infer(&forward, &args, COPES_LRPE_OUT, &o.tensor);
    scatter(&w, 4, o.tensor.shape, 2.9);
    int over_sequence = attributes.act == COPES_ACT_SOFTMAX && attributes.dim == -3;
    shape_room(&lse, 3, (int64_t[]){2, 2, 6});
    args.out[COPES_LRPE_OUT_LSE] = over_sequence ? &lse.tensor : NULL;
    run(&forward, &args);
    shape_room(&slope, 4, shape);
    oracle_args back = {.in = {&x.tensor, &theta.tensor, &w.tensor}, .out = {&slope.tensor}};
    run(&backward, &back);
    expect_slopes(&forward, &args);
    if (over_sequence) { /* the saved lse gives the same gradient */
        run(&forward, &args);
        room anew = slope;
        back.in[COPES_LRPE_LSE] = &lse.tensor;
        run(&backward, &back);
        for (int64_t i = 0; i < oracle_count(&slope.tensor); i++) {
            ck_assert(fabs(slope.value[i] - anew.value[i]) < 1e-14);
        }
    }
}

static void check_lrpe_acts(copes_lrpe_attributes attributes, int64_t heads, int64_t width)
{
    for (int which = COPES_ACT_NONE; which <= COPES_ACT_SOFTMAX; which++) {
        attributes.act = (copes_act)which;
        attributes.dim = -1;
        check_lrpe(attributes, heads, width);
    }
    attributes.dim = -3;
    check_lrpe(attributes, heads, width);
}

START_TEST(lrpe_rotate)
{
    check_lrpe_acts((copes_lrpe_attributes){.offset = {100000}}, 2, 3);
    check_lrpe_acts((copes_lrpe_attributes){.pairing = COPES_LRPE_INTERLEAVED, .rotary_dim = 4, .prefix = 1}, 1, 2);
    check_lrpe_acts((copes_lrpe_attributes){.grid_rank = 2, .grid = {3, 2}, .suffix = 1, .sections = {2, 1}}, 2, 3);
}
END_TEST

START_TEST(lrpe_cosine)
{
    check_lrpe_acts((copes_lrpe_attributes){.variant = COPES_LRPE_COSINE, .offset = {-3}}, 2, 1);
    check_lrpe_acts((copes_lrpe_attributes){.variant = COPES_LRPE_COSINE,
                                            .grid_rank = 3,
                                            .grid = {1, 3, 2},
                                            .prefix = 1},
                    1, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle gradients");
    TCase *tests = tcase_create("central differences");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, act);
    tcase_add_test(tests, lrpe_rotate);
    tcase_add_test(tests, lrpe_cosine);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
