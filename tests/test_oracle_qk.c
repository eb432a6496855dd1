/* The oracle's qk_norm_rope: worked examples, and its backward against central differences of its forward, in the queries, the
 * keys and both weights. */
#include "tests/every.h"
#include "tests/oracle/oracle.h"
#include "tests/suite.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ROOM = 256 };

typedef struct room {
    oracle_tensor tensor;
    double value[ROOM], term[ROOM], turn[ROOM], room[ROOM];
} room;

static void shape_room(room *r, int rank, const int64_t *shape)
{
    memset(r, 0, sizeof *r);
    r->tensor = (oracle_tensor){.rank = rank, .value = r->value, .term = r->term, .turn = r->turn, .room = r->room};
    for (int i = 0; i < rank; i++)
        r->tensor.shape[i] = shape[i];
    ck_assert_int_le(oracle_count(&r->tensor), ROOM);
}

static oracle_tensor *filled(room *r, int rank, const int64_t *shape, const double *values)
{
    shape_room(r, rank, shape);
    memcpy(r->value, values, (size_t)oracle_count(&r->tensor) * sizeof *values);
    return &r->tensor;
}

static oracle_tensor *scattered(room *r, int rank, const int64_t *shape, double seed)
{
    shape_room(r, rank, shape);
    for (int64_t i = 0; i < oracle_count(&r->tensor); i++)
        r->value[i] = 1.5 * sin(seed + 12.9898 * (double)i * (double)(i + 3)) + 0.01;
    return &r->tensor;
}

static void expect_near(double got, double wanted)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-15 * (1 + fabs(wanted)), "%.17g, not %.17g", got, wanted);
}

static void run(const copes_op *op, oracle_args *args)
{
    args->tiny = (double)FLT_MIN;
    ck_assert_int_eq(oracle_run(op, args), 0);
}

/* Means of 25 and 16 with eps 11 and 9: r is 1/6 and 1/5. Token 0 does not turn, token 1 by one radian. */
START_TEST(heads_are_normed_and_turned)
{
    static room q, theta, wq, o;
    const copes_op op = {.kind = COPES_QK_NORM_ROPE_FORWARD, .qk = {.eps = 11, .weight_offset = 1}};
    oracle_args args = {.in = {[COPES_QK_Q] = filled(&q, 4, (int64_t[]){1, 2, 1, 2}, (double[]){1, 7, -7, 1}),
                               [COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 1}, (double[]){1}),
                               [COPES_QK_WQ] = filled(&wq, 1, (int64_t[]){2}, (double[]){2, -4})},
                        .out = {&o.tensor}};
    shape_room(&o, 0, NULL);
    oracle_infer(&op, &args, COPES_QK_Q_OUT, &o.tensor);
    ck_assert_int_eq(o.tensor.rank, 4);
    ck_assert_mem_eq(o.tensor.shape, q.tensor.shape, 4 * sizeof(int64_t));
    run(&op, &args);
    expect_near(o.value[0], 1.0 / 6 * 3);
    expect_near(o.value[1], 7.0 / 6 * -3);
    expect_near(o.value[2], -7.0 / 6 * 3 * cos(1) - 1.0 / 6 * -3 * sin(1));
    expect_near(o.value[3], -7.0 / 6 * 3 * sin(1) + 1.0 / 6 * -3 * cos(1));
    expect_near(o.term[2], 3.5 * cos(1));
    expect_near(o.turn[2], hypot(3.5, 0.5));
}
END_TEST

/* One mean for two heads of keys, 9 with eps 7, and a row of weights for each; the queries have no norm. */
START_TEST(a_mean_may_be_over_all_heads)
{
    static room q, k, theta, wk, q_out, k_out;
    const int64_t shape[] = {1, 1, 2, 2};
    const copes_op op = {.kind = COPES_QK_NORM_ROPE_FORWARD,
                         .qk = {.eps = 7, .norm_over = COPES_QK_NORM_ALL_HEADS, .amplitude = 2}};
    oracle_args args = {.in = {[COPES_QK_Q] = filled(&q, 4, shape, (double[]){1, 2, 3, 4}),
                               [COPES_QK_K] = filled(&k, 4, shape, (double[]){1, 3, 5, 1}),
                               [COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 1}, (double[]){1}),
                               [COPES_QK_WK] = filled(&wk, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 4})},
                        .out = {&q_out.tensor, &k_out.tensor}};
    shape_room(&q_out, 4, shape);
    shape_room(&k_out, 4, shape);
    run(&op, &args);
    for (int i = 0; i < 4; i++) {
        expect_near(q_out.value[i], 2 * q.value[i]);
        expect_near(k_out.value[i], 2 * k.value[i] / 4 * wk.value[i]);
    }
}
END_TEST

/* Three tokens, of which one has no place, and one is past a cache of 2 blocks of 2. */
START_TEST(caches_take_what_slots_name)
{
    static room q, k, v, theta, slots, k_scale, v_scale, o, k_cache, v_cache;
    const int64_t rows[] = {1, 5, 2, 2}, thin[] = {1, 5, 2, 1}, k_shape[] = {2, 2, 2, 2}, v_shape[] = {2, 2, 2, 1};
    const copes_op op = {.kind = COPES_QK_NORM_ROPE_FORWARD};
    oracle_args args = {.in = {[COPES_QK_Q] = scattered(&q, 4, rows, 0.1),
                               [COPES_QK_K] = scattered(&k, 4, rows, 0.2),
                               [COPES_QK_V] = scattered(&v, 4, thin, 0.3),
                               [COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 1}, (double[]){0}),
                               [COPES_QK_SLOTS] =
                                   filled(&slots, 2, (int64_t[]){1, 5}, (double[]){3, -1, 0, 4, -0x1p63}),
                               [COPES_QK_K_SCALE] = filled(&k_scale, 1, (int64_t[]){2}, (double[]){2, 0.5})},
                        .out = {&o.tensor, NULL, scattered(&k_cache, 4, k_shape, 5),
                                scattered(&v_cache, 4, v_shape, 6)}};
    static room k_before, v_before;
    k_before = k_cache;
    v_before = v_cache;
    shape_room(&o, 4, rows);
    run(&op, &args);
    const int64_t token_of[] = {2, -1, -1, 0}; /* by place */
    for (int i = 0; i < 16; i++) {
        const int64_t token = token_of[i / 4];
        expect_near(k_cache.value[i],
                    token < 0 ? k_before.value[i] : k.value[token * 4 + i % 4] / k_scale.value[i / 2 % 2]);
        ck_assert(token < 0 ? k_cache.term[i] == -1 : k_cache.term[i] >= fabs(k_cache.value[i]));
    }
    for (int i = 0; i < 8; i++) {
        const int64_t token = token_of[i / 2];
        ck_assert_double_eq(v_cache.value[i], token < 0 ? v_before.value[i] : v.value[token * 2 + i % 2]);
        ck_assert_double_eq(v_cache.term[i], -1); /* a copy either way */
    }
    args.in[COPES_QK_V_SCALE] = filled(&v_scale, 1, (int64_t[]){1}, (double[]){-4});
    run(&op, &args);
    expect_near(v_cache.value[6], v.value[0] / -4);
    expect_near(v_cache.term[6], fabs(v.value[0]) / 4);
}
END_TEST

static double to_integer(double value)
{
    return nearbyint(value);
}

/* Norms are the values themselves, with means of 1: near a middle they may be rounded to both sides. */
START_TEST(a_rounding_between_may_go_either_way)
{
    static room q, theta, wq, o;
    const copes_op op = {.kind = COPES_QK_NORM_ROPE_FORWARD, .qk = {.eps = 1e-30, .round_between = 1}};
    oracle_args args = {.in = {[COPES_QK_Q] = filled(&q, 4, (int64_t[]){1, 2, 1, 2}, (double[]){1, 1, 1, 1}),
                               [COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 1}, (double[]){1}),
                               [COPES_QK_WQ] = filled(&wq, 1, (int64_t[]){2}, (double[]){2.4999999, 5.6})},
                        .out = {&o.tensor},
                        .shorten = to_integer};
    shape_room(&o, 4, (int64_t[]){1, 2, 1, 2});
    run(&op, &args);
    expect_near(o.value[0], 2.5);
    expect_near(o.room[0], 0.5);
    expect_near(o.value[1], 6);
    expect_near(o.room[1], 0);
    expect_near(o.value[2], 2.5 * cos(1) - 6 * sin(1));
    expect_near(o.room[2], 0.5 * cos(1));
    expect_near(o.room[3], 0.5 * sin(1));
    args.shorten = NULL;
    run(&op, &args);
    expect_near(o.value[0], 2.4999999);
    expect_near(o.room[0], 0);
}
END_TEST

/* With an infinity r is 0. */
START_TEST(an_infinity_leaves_nan_and_zeros)
{
    static room q, theta, wq, o;
    const copes_op op = {.kind = COPES_QK_NORM_ROPE_FORWARD};
    oracle_args args = {.in = {[COPES_QK_Q] = filled(&q, 4, (int64_t[]){1, 1, 1, 4}, (double[]){1, -INFINITY, 3, 4}),
                               [COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 2}, (double[]){1, 2}),
                               [COPES_QK_WQ] = filled(&wq, 1, (int64_t[]){4}, (double[]){1, 1, 1, 1})},
                        .out = {&o.tensor}};
    shape_room(&o, 4, (int64_t[]){1, 1, 1, 4});
    run(&op, &args);
    ck_assert(o.value[0] == 0 && isnan(o.value[1]) && o.value[2] == 0);
}
END_TEST

enum { SIDES = 2 };
static room x[SIDES], weight[SIDES], gradient[SIDES], out[SIDES], slope[SIDES], weight_slope[SIDES], theta;

static double loss(const copes_op *op, oracle_args *args)
{
    double sum = 0;
    run(op, args);
    for (int side = 0; side < SIDES; side++)
        for (int64_t i = 0; i < oracle_count(&out[side].tensor); i++)
            sum += gradient[side].value[i] * out[side].value[i];
    return sum;
}

static void expect_slopes(const copes_op *op, oracle_args *args, room *input, const room *wanted)
{
    const double step = 0x1p-13;
    for (int64_t i = 0; i < oracle_count(&input->tensor); i += tests_every()) {
        const double kept = input->value[i];
        input->value[i] = kept + step;
        const double above = loss(op, args);
        input->value[i] = kept - step;
        const double difference = (above - loss(op, args)) / (2 * step);
        input->value[i] = kept;
        ck_assert_msg(fabs(difference - wanted->value[i]) < 1e-6 * fmax(1, wanted->term[i]),
                      "element %lld: slope %.12g, backward %.12g", (long long)i, difference, wanted->value[i]);
        ck_assert(wanted->term[i] >= fabs(wanted->value[i]) / 2); /* the sum of two terms, or of sizes */
    }
}

/* Of 3 heads of queries and 2 of keys; weights are one row, or one for each head. */
static void check_gradients(copes_qk_attributes attributes, int each)
{
    const int64_t heads[] = {3, 2}, d = 6;
    copes_op forward = {.kind = COPES_QK_NORM_ROPE_FORWARD, .qk = attributes};
    copes_op backward = {.kind = COPES_QK_NORM_ROPE_BACKWARD, .qk = attributes};
    oracle_args args = {.in = {[COPES_QK_THETA] = filled(&theta, 2, (int64_t[]){1, 3}, (double[]){1, 0.5, 0.125})}};
    for (int side = 0; side < SIDES; side++) {
        const int64_t shape[] = {2, 3, heads[side], d}, rows[] = {heads[side], d};
        args.in[COPES_QK_Q + side] = scattered(&x[side], 4, shape, 0.7 + side);
        args.in[COPES_QK_WQ + side] = scattered(&weight[side], 1 + each, rows + 1 - each, 2.1 + side);
        scattered(&gradient[side], 4, shape, 5.3 + side);
        shape_room(&out[side], 4, shape);
        shape_room(&slope[side], 4, shape);
        args.out[COPES_QK_Q_OUT + side] = &out[side].tensor;
    }
    oracle_args back = args;
    for (int side = 0; side < SIDES; side++) {
        back.in[COPES_QK_GRAD_Q_OUT + side] = &gradient[side].tensor;
        back.out[COPES_QK_Q_OUT + side] = &slope[side].tensor;
        shape_room(&weight_slope[side], 0, NULL);
        oracle_infer(&backward, &back, COPES_QK_GRAD_WQ + side, &weight_slope[side].tensor);
        ck_assert_int_eq(weight_slope[side].tensor.rank, 1 + each);
        back.out[COPES_QK_GRAD_WQ + side] = &weight_slope[side].tensor;
    }
    run(&backward, &back);
    for (int side = 0; side < SIDES; side++) {
        expect_slopes(&forward, &args, &x[side], &slope[side]);
        expect_slopes(&forward, &args, &weight[side], &weight_slope[side]);
    }
}

START_TEST(gradients)
{
    const int each = _i;
    check_gradients((copes_qk_attributes){.offset = {100000}}, each);
    check_gradients((copes_qk_attributes){.norm_over = COPES_QK_NORM_ALL_HEADS, .weight_offset = 1, .eps = 0.5}, each);
    check_gradients((copes_qk_attributes){.pairing = COPES_LRPE_INTERLEAVED,
                                          .rotary_begin = 2,
                                          .amplitude = 1.5,
                                          .inverse = 1,
                                          .pad_theta = 1,
                                          .prefix = 1},
                    each);
    check_gradients((copes_qk_attributes){.grid_rank = 2, .grid = {1, 3}, .sections = {1, 2}, .offset = {3, 4}}, each);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle of qk_norm_rope");
    TCase *tests = tcase_create("qk_norm_rope");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, heads_are_normed_and_turned);
    tcase_add_test(tests, a_mean_may_be_over_all_heads);
    tcase_add_test(tests, caches_take_what_slots_name);
    tcase_add_test(tests, a_rounding_between_may_go_either_way);
    tcase_add_test(tests, an_infinity_leaves_nan_and_zeros);
    tcase_add_loop_test(tests, gradients, 0, 2);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
