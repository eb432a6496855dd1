/* The oracle's backward against central differences of its forward: with L = sum(w o), the backward at grad_o = w must
 * be the slope of L in every element of x, and of theta. */
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

static room x, theta, positions, w, o, lse, slope, theta_slope;

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

/* L's slopes in the elements of an input, which are float32 numbers where `narrow`, beside those that a backward gave. */
static void expect_slopes_in(const copes_op *op, oracle_args *args, room *input, const room *wanted, int narrow)
{
    const double step = 0x1p-13;
    for (int64_t i = 0; i < oracle_count(&input->tensor); i += tests_every()) {
        double kept = input->value[i], high = kept + step, low = kept - step;
        high = narrow ? (double)(float)high : high;
        low = narrow ? (double)(float)low : low;
        input->value[i] = high;
        double above = loss(op, args);
        input->value[i] = low;
        double difference = (above - loss(op, args)) / (high - low);
        input->value[i] = kept;
        ck_assert_msg(fabs(difference - wanted->value[i]) < 1e-7 * fmax(1, wanted->term[i]),
                      "element %lld: slope %.12g, backward %.12g", (long long)i, difference, wanted->value[i]);
    }
}

static void expect_slopes(const copes_op *op, oracle_args *args)
{
    expect_slopes_in(op, args, &x, &slope, 0);
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
    room of_output = slope;
    back.in[COPES_ACT_O] = which == COPES_ACT_SOFTMAX ? &o.tensor : NULL;
    run(&backward, &back);
    expect_slopes_in(&forward, &args, &x, &of_output, 0);
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

/* What positions and theta are. */
typedef struct angles_of {
    int64_t heads, width;
    int rows;      /* of a theta for each dimension; 0: of rank 2 */
    int positions; /* dimensions of positions, which are float32; 0: there are none */
} angles_of;

static void scatter_angles(angles_of angles, oracle_args *args)
{
    const int64_t theta_shape[] = {angles.rows, angles.heads, angles.width},
                  position_shape[] = {angles.positions, 2, 7};
    const int skipped = angles.rows == 0;
    scatter(&theta, 3 - skipped, theta_shape + skipped, 4.1);
    for (int64_t i = 0; i < oracle_count(&theta.tensor); i++) {
        theta.value[i] = (double)(float)theta.value[i];
    }
    args->in[COPES_LRPE_THETA] = &theta.tensor;
    if (angles.positions > 0) {
        scatter(&positions, 3, position_shape, 0.3);
        for (int64_t i = 0; i < oracle_count(&positions.tensor); i++) {
            positions.value[i] = (double)(float)positions.value[i];
        }
        args->in[COPES_LRPE_POSITIONS] = &positions.tensor;
        args->positions_are_real = 1;
    }
}

static void check_lrpe(copes_lrpe_attributes attributes, angles_of angles)
{
    const int64_t shape[] = {2, 7, 2, 6};
    copes_op forward = {.kind = COPES_LRPE_FORWARD, .lrpe = attributes};
    copes_op backward = {.kind = COPES_LRPE_BACKWARD, .lrpe = attributes};
    oracle_args args = {.in = {[COPES_LRPE_X] = &x.tensor}, .out = {&o.tensor}};
    scatter(&x, 4, shape, 0.7);
    scatter_angles(angles, &args);
    shape_room(&o, 4, shape);
    oracle_infer(&forward, &args, COPES_LRPE_OUT, &o.tensor);
    scatter(&w, 4, o.tensor.shape, 2.9);
    int over_sequence = attributes.act == COPES_ACT_SOFTMAX && attributes.dim == -3;
    shape_room(&lse, 3, (int64_t[]){2, 2, 6});
    args.out[COPES_LRPE_OUT_LSE] = over_sequence ? &lse.tensor : NULL;
    run(&forward, &args);
    shape_room(&slope, 4, shape);
    shape_room(&theta_slope, theta.tensor.rank, theta.tensor.shape);
    oracle_args back = args;
    back.in[COPES_LRPE_GRAD_O] = &w.tensor;
    back.out[COPES_LRPE_OUT] = &slope.tensor;
    back.out[COPES_LRPE_GRAD_THETA] = &theta_slope.tensor;
    run(&backward, &back);
    expect_slopes(&forward, &args);
    if (attributes.offset[0] < 100) { /* else a step turns too far for a difference to say anything */
        expect_slopes_in(&forward, &args, &theta, &theta_slope, 1);
    }
    if (over_sequence) { /* the saved lse gives the same gradients */
        run(&forward, &args);
        room anew = slope, theta_anew = theta_slope;
        back.in[COPES_LRPE_LSE] = &lse.tensor;
        run(&backward, &back);
        for (int64_t i = 0; i < oracle_count(&slope.tensor); i++) {
            ck_assert(fabs(slope.value[i] - anew.value[i]) < 1e-14);
        }
        for (int64_t i = 0; i < oracle_count(&theta_slope.tensor); i++) {
            ck_assert(fabs(theta_slope.value[i] - theta_anew.value[i]) < 1e-14 * theta_anew.term[i]);
        }
    }
}

static void check_lrpe_acts(copes_lrpe_attributes attributes, angles_of angles)
{
    for (int which = COPES_ACT_NONE; which <= COPES_ACT_SOFTMAX; which++) {
        attributes.act = (copes_act)which;
        attributes.dim = -1;
        check_lrpe(attributes, angles);
    }
    attributes.dim = -3;
    check_lrpe(attributes, angles);
}

START_TEST(lrpe_rotate)
{
    check_lrpe_acts((copes_lrpe_attributes){.offset = {100000}}, (angles_of){2, 3, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.pairing = COPES_LRPE_INTERLEAVED, .rotary_dim = 4, .prefix = 1},
                    (angles_of){1, 2, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.grid_rank = 2, .grid = {3, 2}, .suffix = 1, .sections = {2, 1}},
                    (angles_of){2, 3, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.grid_rank = 2, .grid = {3, 2}, .prefix = 1, .offset = {0, -2}},
                    (angles_of){2, 2, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.rotary_begin = 2, .amplitude = 1.5, .inverse = 1, .pad_theta = 1},
                    (angles_of){2, 1, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.amplitude = -0.75, .offset = {1}}, (angles_of){1, 1, 0, 0});
}
END_TEST

START_TEST(lrpe_cosine)
{
    check_lrpe_acts((copes_lrpe_attributes){.variant = COPES_LRPE_COSINE, .offset = {-3}}, (angles_of){2, 1, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.variant = COPES_LRPE_COSINE,
                                            .grid_rank = 3,
                                            .grid = {1, 3, 2},
                                            .prefix = 1},
                    (angles_of){1, 2, 0, 0});
    check_lrpe_acts((copes_lrpe_attributes){.variant = COPES_LRPE_COSINE, .amplitude = 2, .inverse = 1},
                    (angles_of){2, 6, 0, 0});
}
END_TEST

/* A theta for each dimension, and positions that are no integers. */
START_TEST(lrpe_of_positions)
{
    const copes_lrpe_variant variant = _i == 0 ? COPES_LRPE_ROTATE : COPES_LRPE_COSINE;
    const int64_t angles = _i == 0 ? 3 : 6;
    for (int64_t heads = 1; heads <= 2; heads++) {
        check_lrpe_acts((copes_lrpe_attributes){.variant = variant, .offset = {1, 0, -2}},
                        (angles_of){heads, angles, 3, 3});
        check_lrpe_acts((copes_lrpe_attributes){.variant = variant, .inverse = 1}, (angles_of){heads, angles, 0, 1});
        check_lrpe_acts((copes_lrpe_attributes){.variant = variant, .grid_rank = 2, .grid = {3, 2}, .suffix = 1},
                        (angles_of){heads, angles, 2, 0});
        check_lrpe_acts((copes_lrpe_attributes){.variant = variant, .sections = {1, angles - 1}},
                        (angles_of){heads, angles, 0, 2});
    }
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
    tcase_add_loop_test(tests, lrpe_of_positions, 0, 2);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
