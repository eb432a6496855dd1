/* The oracle against closed forms, worked examples and identities; test_oracle_gradients.c has the finite
 * differences. */
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

static oracle_tensor *shaped(room *r, int rank, const int64_t *shape)
{
    memset(r, 0, sizeof *r);
    r->tensor = (oracle_tensor){.rank = rank, .value = r->value, .term = r->term, .turn = r->turn};
    for (int i = 0; i < rank; i++) {
        r->tensor.shape[i] = shape[i];
    }
    ck_assert_int_le(oracle_count(&r->tensor), ROOM);
    return &r->tensor;
}

static oracle_tensor *filled(room *r, int rank, const int64_t *shape, const double *values)
{
    shaped(r, rank, shape);
    memcpy(r->value, values, (size_t)oracle_count(&r->tensor) * sizeof *values);
    return &r->tensor;
}

/* Distinct values without a pattern. */
static oracle_tensor *scattered(room *r, int rank, const int64_t *shape, double seed)
{
    shaped(r, rank, shape);
    for (int64_t i = 0; i < oracle_count(&r->tensor); i++) {
        r->value[i] = 2 * sin(seed + 12.9898 * (double)i * (double)(i + 3));
    }
    return &r->tensor;
}

static void expect_near(double got, double wanted)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-15 * (1 + fabs(wanted)), "%.17g, not %.17g", got, wanted);
}

static const double *run_one(const copes_op *op, oracle_args *args, room *out)
{
    shaped(out, 0, NULL);
    oracle_infer(op, args, COPES_FIRST_OUT, &out->tensor);
    args->out[COPES_FIRST_OUT] = &out->tensor;
    args->tiny = (double)FLT_MIN;
    ck_assert_int_eq(oracle_run(op, args), 0);
    return out->value;
}

static const double *act(copes_act which, int dim, oracle_tensor *x, room *out)
{
    copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = which, .dim = dim}};
    oracle_args args = {.in = {[COPES_ACT_X] = x}};
    return run_one(&op, &args, out);
}

START_TEST(activations_have_their_known_values)
{
    static room x, out;
    const double values[] = {0, 1, -2, INFINITY, -INFINITY, NAN, -100};
    oracle_tensor *t = filled(&x, 1, (int64_t[]){7}, values);
    const double *o = act(COPES_ACT_SIGMOID, 0, t, &out);
    expect_near(o[0], 0.5);
    expect_near(o[1], 0.73105857863000487925);
    expect_near(o[2], 0.11920292202211755594);
    ck_assert(o[3] == 1 && o[4] == 0 && isnan(o[5]));
    ck_assert_double_eq_tol(o[6], 3.7200759760208359630e-44, 1e-58);
    ck_assert(out.term[6] == o[6]); /* no larger for being denormal as a float */
    o = act(COPES_ACT_SILU, 0, t, &out);
    ck_assert(o[0] == 0 && o[3] == INFINITY);
    expect_near(o[1], 0.73105857863000487925);
    expect_near(o[2], -0.23840584404423511188);
    o = act(COPES_ACT_RELU, 0, t, &out);
    ck_assert(o[0] == 0 && o[1] == 1 && o[2] == 0 && o[3] == INFINITY && o[4] == 0 && isnan(o[5]));
    o = act(COPES_ACT_NONE, 0, t, &out);
    ck_assert(memcmp(o, values, sizeof values) == 0);
}
END_TEST

START_TEST(softmax_runs_along_its_axis)
{
    static room x, out;
    const double ln2 = 0.69314718055994530942;
    oracle_tensor *t = filled(&x, 2, (int64_t[]){2, 3}, (double[]){0, ln2, 0, 1000, 1000 + ln2, -INFINITY});
    const double *o = act(COPES_ACT_SOFTMAX, 0, t, &out);
    const double rows[] = {0.25, 0.5, 0.25, 1. / 3, 2. / 3, 0};
    for (int i = 0; i < 6; i++) {
        ck_assert_double_eq_tol(o[i], rows[i], 1e-13); /* 1000 + ln 2 is rounded */
    }
    ck_assert_double_eq_tol(out.term[0], 0.5, 1e-15);
    o = act(COPES_ACT_SOFTMAX, -2, t, &out);
    ck_assert(o[0] == 0 || o[0] < 1e-300);
    ck_assert(o[3] == 1 && o[2] == 1 && o[5] == 0);
    o = act(COPES_ACT_SOFTMAX, -1, filled(&x, 2, (int64_t[]){1, 2}, (double[]){-INFINITY, -INFINITY}), &out);
    ck_assert(isnan(o[0]) && isnan(o[1]));
}
END_TEST

static const double *lrpe(const copes_op *op, oracle_tensor *x, oracle_tensor *theta, room *out)
{
    oracle_args args = {.in = {[COPES_LRPE_X] = x, [COPES_LRPE_THETA] = theta}};
    return run_one(op, &args, out);
}

/* Each token and feature gets the angle that the definition names: a = 1 and b = 0 in every pair, so that o is the
 * cosine and the sine of the angle. */
START_TEST(rotation_follows_grid_and_pairing)
{
    static room x, theta, out;
    const int64_t shape[] = {1, 8, 1, 8}; /* 1 + 2 x 3 + 1 tokens */
    copes_op op = {.kind = COPES_LRPE_FORWARD,
                   .lrpe = {.grid_rank = 2, .grid = {2, 3}, .offset = {5, -1}, .prefix = 1, .suffix = 1}};
    op.lrpe.rotary_dim = 6;
    oracle_tensor *rates = filled(&theta, 2, (int64_t[]){1, 2}, (double[]){0.25, 0.0625});
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        op.lrpe.pairing = interleaved ? COPES_LRPE_INTERLEAVED : COPES_LRPE_HALF;
        oracle_tensor *t = shaped(&x, 4, shape);
        for (int i = 0; i < 64; i++) {
            int feature = i % 8;
            t->value[i] = feature >= 6 ? 9 : interleaved ? feature % 2 == 0 : feature < 3;
        }
        const double *o = lrpe(&op, t, rates, &out);
        for (int token = 0; token < 8; token++) {
            int s = token - 1, rotated = token >= 1 && token <= 6;
            double row = rotated ? 5 + s / 3 : 0, column = rotated ? -1 + s % 3 : 0;
            const double phi[] = {0.25 * row, 0.0625 * row, 0.25 * column};
            for (int k = 0; k < 3; k++) {
                expect_near(o[token * 8 + (interleaved ? 2 * k : k)], cos(phi[k]));
                expect_near(o[token * 8 + (interleaved ? 2 * k + 1 : k + 3)], sin(phi[k]));
            }
            ck_assert(o[token * 8 + 6] == 9 && o[token * 8 + 7] == 9);
        }
    }
}
END_TEST

START_TEST(cosine_follows_heads_and_sections)
{
    static room x, theta, out;
    copes_op op =
        {.kind = COPES_LRPE_FORWARD,
         .lrpe = {.variant = COPES_LRPE_COSINE, .grid_rank = 2, .grid = {1, 2}, .offset = {3, 7}, .sections = {1, 2}}};
    oracle_tensor *t = filled(&x, 4, (int64_t[]){1, 2, 2, 3}, (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    oracle_tensor *rates = filled(&theta, 2, (int64_t[]){2, 3}, (double[]){.5, .25, .125, 1, 2, 3});
    const double *o = lrpe(&op, t, rates, &out);
    ck_assert_int_eq(out.tensor.shape[3], 6);
    for (int i = 0; i < 12; i++) {
        int token = i / 6, head = i / 3 % 2, feature = i % 3;
        double phi = theta.value[head * 3 + feature] * (feature == 0 ? 3 : 7 + token);
        expect_near(o[i / 3 * 6 + feature], (i + 1) * cos(phi));
        expect_near(o[i / 3 * 6 + 3 + feature], (i + 1) * sin(phi));
        expect_near(out.turn[i / 3 * 6 + feature], i + 1);
    }
}
END_TEST

/* A row of theta too short leaves the last angles 0; one value serves all of them. */
START_TEST(theta_may_be_short)
{
    static room x, theta, out;
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.variant = COPES_LRPE_COSINE, .offset = {2}}};
    oracle_tensor *t = filled(&x, 3, (int64_t[]){1, 1, 3}, (double[]){1, 1, 1});
    const double *o = lrpe(&op, t, filled(&theta, 2, (int64_t[]){1, 2}, (double[]){.5, .25}), &out);
    expect_near(o[0], cos(1.));
    expect_near(o[1], cos(.5));
    expect_near(o[2], 1);
    o = lrpe(&op, t, filled(&theta, 2, (int64_t[]){1, 1}, (double[]){.5}), &out);
    expect_near(o[0], cos(1.));
    expect_near(o[5], sin(1.));
}
END_TEST

/* The activation comes first, and softmax over the sequence sees every token. */
START_TEST(lrpe_activates_first)
{
    static room x, theta, out, lse, plain;
    const int64_t shape[] = {2, 3, 2, 4};
    scattered(&x, 4, shape, 0.3);
    filled(&theta, 2, (int64_t[]){1, 1}, (double[]){0});
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3, .prefix = 1}};
    oracle_args args = {.in = {&x.tensor, &theta.tensor}};
    shaped(&lse, 0, NULL);
    oracle_infer(&op, &args, COPES_LSE_OUT, &lse.tensor);
    ck_assert(lse.tensor.rank == 3 && lse.tensor.shape[0] == 2 && lse.tensor.shape[1] == 2 && lse.tensor.shape[2] == 4);
    args.out[COPES_LSE_OUT] = &lse.tensor;
    const double *o = run_one(&op, &args, &out), *wanted = act(COPES_ACT_SOFTMAX, -3, &x.tensor, &plain);
    for (int i = 0; i < 48; i++) {
        expect_near(o[i], wanted[i]);
        expect_near(exp(x.value[i] - lse.value[i / 24 * 8 + i % 8]), wanted[i]);
    }
    op.lrpe = (copes_lrpe_attributes){.act = COPES_ACT_SILU};
    o = lrpe(&op, &x.tensor, &theta.tensor, &out);
    wanted = act(COPES_ACT_SILU, 0, &x.tensor, &plain);
    ck_assert(memcmp(o, wanted, 48 * sizeof *o) == 0);
}
END_TEST

START_TEST(attention_has_its_known_values)
{
    static room aq, bq, ak, bk, av, bv, kv_len, out, lse;
    filled(&aq, 4, (int64_t[]){1, 2, 1, 2}, (double[]){1, 2, 1, 0});
    filled(&bq, 4, (int64_t[]){1, 2, 2, 1}, (double[]){3, 4, 0, 5}); /* q = (3 + 8) / 2, then 0 */
    filled(&ak, 3, (int64_t[]){1, 3, 1}, (double[]){1, 2, 0.5});
    filled(&bk, 3, (int64_t[]){1, 3, 1}, (double[]){0.1, 0.2, 0.4});
    filled(&av, 3, (int64_t[]){1, 3, 1}, (double[]){1, 2, 4});
    filled(&bv, 3, (int64_t[]){1, 3, 2}, (double[]){1, 10, 2, 20, 3, 30});
    copes_op op = {.kind = COPES_TPA_DECODE};
    oracle_args args = {.in = {&aq.tensor, &bq.tensor, &ak.tensor, &bk.tensor, &av.tensor, &bv.tensor}};
    shaped(&lse, 0, NULL);
    oracle_infer(&op, &args, COPES_LSE_OUT, &lse.tensor);
    args.out[COPES_LSE_OUT] = &lse.tensor;
    const double *o = run_one(&op, &args, &out);
    const double e[] = {exp(0.55), exp(2.2), exp(1.1)}, sum = e[0] + e[1] + e[2];
    expect_near(o[0], (e[0] + 4 * e[1] + 12 * e[2]) / sum);
    expect_near(o[1], 10 * (e[0] + 4 * e[1] + 12 * e[2]) / sum);
    expect_near(lse.value[0], log(sum));
    expect_near(o[2], 17. / 3);
    expect_near(lse.value[1], log(3.));
    const double first = 10 * e[0], second = 40 * e[1] * 2.2, third = 120 * e[2] * 1.1; /* times scores above 1 */
    expect_near(out.term[0], sqrt(first * first + second * second + third * third) / sum);
    expect_near(out.term[2], 170. / 3);
    expect_near(lse.term[0], 2.2);
    op.tpa.causal = 1;
    o = run_one(&op, &args, &out);
    expect_near(o[0], (e[0] + 4 * e[1]) / (e[0] + e[1]));
    expect_near(o[2], 17. / 3);
    args.in[COPES_TPA_KV_LEN] = filled(&kv_len, 1, (int64_t[]){1}, (double[]){1});
    o = run_one(&op, &args, &out);
    ck_assert(o[0] == 0 && o[1] == 0 && lse.value[0] == -INFINITY);
    ck_assert(o[2] == 1 && o[3] == 10);
    op = (copes_op){.kind = COPES_TPA_DECODE, .tpa = {.scale = 2, .scale_q = 0.5, .scale_k = 0.25, .scale_v = -1}};
    o = run_one(&op, &args, &out);
    ck_assert(o[0] == -1 && o[1] == -10);
    expect_near(lse.value[0], 2 * 0.5 * 0.25 * 11 * 0.1);
}
END_TEST

/* Of a score 3 - 3, of an output 5 - 5 of each of four keys alike, and of keys that differ. */
START_TEST(sums_that_cancel_have_sizes)
{
    static room aq, bq, ak, bk, av, bv, out, lse;
    filled(&aq, 4, (int64_t[]){1, 1, 1, 1}, (double[]){1});
    filled(&bq, 4, (int64_t[]){1, 1, 1, 1}, (double[]){1});
    filled(&ak, 4, (int64_t[]){1, 4, 1, 2}, (double[]){1, -1, 1, -1, 1, -1, 1, -1});
    filled(&bk, 4, (int64_t[]){1, 4, 2, 1}, (double[]){3, 3, 3, 3, 3, 3, 3, 3});
    filled(&av, 4, (int64_t[]){1, 4, 1, 2}, (double[]){1, -1, 1, -1, 1, -1, 1, -1});
    filled(&bv, 4, (int64_t[]){1, 4, 2, 1}, (double[]){5, 5, 5, 5, 5, 5, 5, 5});
    const copes_op op = {.kind = COPES_TPA_DECODE, .tpa = {.scale_k = 1, .scale_v = 1}};
    oracle_args args = {.in = {&aq.tensor, &bq.tensor, &ak.tensor, &bk.tensor, &av.tensor, &bv.tensor}};
    shaped(&lse, 0, NULL);
    oracle_infer(&op, &args, COPES_LSE_OUT, &lse.tensor);
    args.out[COPES_LSE_OUT] = &lse.tensor;
    const double *o = run_one(&op, &args, &out);
    expect_near(lse.value[0], log(4.));
    expect_near(lse.term[0], 6);
    ck_assert(o[0] == 0);
    expect_near(out.term[0],
                10 * 6 / 2.); /* the root of four quarters' squares is a half; weights are as their scores */
    filled(&bk, 4, (int64_t[]){1, 4, 2, 1}, (double[]){0, 0, 0, 0, 0, 0, 0, 0});
    o = run_one(&op, &args, &out);
    ck_assert(o[0] == 0 && out.term[0] == 10);
    filled(&av, 4, (int64_t[]){1, 4, 1, 2}, (double[]){1, 0, -1, 0, 1, 0, -1, 0});
    o = run_one(&op, &args, &out);
    ck_assert(o[0] == 0);
    expect_near(out.term[0], 5 / 2.);
}
END_TEST

/* Two shares of weights 1/4 and 3/4, an empty one whose o is NaN, and a row of empty ones. */
START_TEST(merge_has_its_known_values)
{
    static room shares, lses, out, lse, grad_o, grad_lse;
    filled(&shares, 5, (int64_t[]){3, 1, 1, 2, 1}, (double[]){8, NAN, 4, NAN, NAN, NAN});
    filled(&lses, 4, (int64_t[]){3, 1, 1, 2}, (double[]){5, -INFINITY, 5 + log2(3), INFINITY, -INFINITY, INFINITY});
    copes_op op = {.kind = COPES_ATTENTION_MERGE_FORWARD, .merge = {.base = COPES_LOG_BASE_2}};
    oracle_args args = {.in = {[COPES_MERGE_O_SHARES] = &shares.tensor, [COPES_MERGE_LSE_SHARES] = &lses.tensor}};
    shaped(&lse, 0, NULL);
    oracle_infer(&op, &args, COPES_MERGE_OUT_LSE, &lse.tensor);
    args.out[COPES_MERGE_OUT_LSE] = &lse.tensor;
    const double *o = run_one(&op, &args, &out);
    expect_near(o[0], 5);
    expect_near(lse.value[0], 7);
    ck_assert(o[1] == 0 && lse.value[1] == -INFINITY);
    op.kind = COPES_ATTENTION_MERGE_BACKWARD;
    args.in[COPES_MERGE_GRAD_O] = filled(&grad_o, 4, (int64_t[]){1, 1, 2, 1}, (double[]){2, 1});
    args.in[COPES_MERGE_GRAD_LSE] = filled(&grad_lse, 3, (int64_t[]){1, 1, 2}, (double[]){10, 1});
    oracle_infer(&op, &args, COPES_MERGE_OUT_LSE, &lse.tensor);
    const double *grad = run_one(&op, &args, &out);
    expect_near(grad[0], 2 / 4.);
    expect_near(grad[2], 2 * 3 / 4.);
    expect_near(lse.value[0], (log(2) * 2 * (8 - 5) + 10) / 4);
    expect_near(lse.value[2], (log(2) * 2 * (4 - 5) + 10) * 3 / 4);
    ck_assert(grad[1] == 0 && grad[3] == 0 && grad[4] == 0 && lse.value[1] == 0 && lse.value[4] == 0);
}
END_TEST

START_TEST(gradients_that_cancel_have_sizes)
{
    static room o, g, out;
    filled(&o, 1, (int64_t[]){3}, (double[]){0.5, 0.25, 0.25});
    filled(&g, 1, (int64_t[]){3}, (double[]){0, 1, -1});
    const copes_op op = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_SOFTMAX}};
    oracle_args args = {.in = {[COPES_ACT_GRAD_O] = &g.tensor, [COPES_ACT_O] = &o.tensor}};
    const double *x = run_one(&op, &args, &out);
    ck_assert(x[0] == 0 && x[1] == 0.25 && out.term[0] == 0.25);
    filled(&g, 1, (int64_t[]){3}, (double[]){6, -6, -6});
    run_one(&op, &args, &out);
    expect_near(out.term[0], 3); /* not a half of the root of 9 + 2.25 + 2.25 */
    filled(&o, 1, (int64_t[]){3}, (double[]){1, 0.25, 0.25});
    filled(&g, 1, (int64_t[]){3}, (double[]){0, 4, -4});
    run_one(&op, &args, &out);
    expect_near(out.term[0], sqrt(2.));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oracle");
    TCase *tests = tcase_create("closed forms");
    tcase_add_test(tests, activations_have_their_known_values);
    tcase_add_test(tests, softmax_runs_along_its_axis);
    tcase_add_test(tests, rotation_follows_grid_and_pairing);
    tcase_add_test(tests, cosine_follows_heads_and_sections);
    tcase_add_test(tests, theta_may_be_short);
    tcase_add_test(tests, lrpe_activates_first);
    tcase_add_test(tests, attention_has_its_known_values);
    tcase_add_test(tests, sums_that_cancel_have_sizes);
    tcase_add_test(tests, merge_has_its_known_values);
    tcase_add_test(tests, gradients_that_cancel_have_sizes);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
