/* Every refusal of lrpe's shares of a softmax over the sequence: what all shares' log sum exp makes of one; then the
 * delta of one in the backward, and what all shares' makes of it. */
#include "tests/refusal_lrpe.h"
#include "tests/suite.h"

static const int64_t lse[3] = {2, 3, 8};

static void share_of_lse(call_case *call)
{
    call_grid(call);
    call_change(call, &(call_edit){ABSENT, LSE, 0, 0, 0});
    call_add(call, LSE_ALL, float32, 3, lse);
}

static void share_delta(call_case *call)
{
    call_cosine_backward(call);
    call_change(call, &(call_edit){ABSENT, OUT, 0, 0, 0});
    call_add(call, DELTA, float32, 3, lse);
}

static void share_of_delta(call_case *call)
{
    call_cosine_backward(call);
    call_add(call, DELTA_ALL, float32, 3, lse);
}

static const refusal share_of_lse_rows[] = {
    BOTH(LSE, "lrpe_forward: lse_all and lse"),
    NEITHER(OUT, "lrpe_forward: o", "lse"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{SET32, AT(dim), 0, -1, 0}},
     "lrpe_forward: lse_all is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, LSE_ALL, kDLBfloat, 16, 0}},
     "lrpe_forward: lse_all has type bfloat16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{LENGTH, LSE_ALL, 0, 1, 0}},
     "lrpe_forward: lse_all has shape (1, 3, 8); it must be (2, 3, 8), (B, H, D)"},
    OVERLAP(OUT, LSE_ALL, 0, "lrpe_forward: o overlaps lse_all"),
};

static const refusal share_delta_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, LSE_IN, 0, 0, 0}},
     "lrpe_backward: lse is NULL; delta needs that of all shares"},
    NEITHER(DELTA, "lrpe_backward: grad_x", "delta"),
    BOTH(OUT, "lrpe_backward: grad_x and delta"),
    BOTH(DELTA_ALL, "lrpe_backward: delta_all and delta"),
    BOTH(GRAD_THETA, "lrpe_backward: grad_theta and delta"),
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{ABSENT, LSE_IN, 0, 0, 0}, {SET32, AT(dim), 0, -1, 0}},
     "lrpe_backward: delta is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_DTYPE,
     BY_SIZE_AND_RUN,
     {{TYPE, DELTA, kDLFloat, 16, 0}},
     "lrpe_backward: delta has type float16; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_SIZE_AND_RUN,
     {{LENGTH, DELTA, 1, 1, 0}},
     "lrpe_backward: delta has shape (2, 1, 8); it must be (2, 3, 8), (B, H, D)"},
    OVERLAP(DELTA, LSE_IN, 0, "lrpe_backward: delta overlaps lse"),
};

static const refusal share_of_delta_rows[] = {
    {COPES_ERROR_NULL,
     BY_ALL,
     {{ABSENT, LSE_IN, 0, 0, 0}},
     "lrpe_backward: lse is NULL; delta_all needs that of all shares"},
    {COPES_ERROR_ATTRIBUTE,
     BY_ALL,
     {{ABSENT, LSE_IN, 0, 0, 0}, {SET32, AT(act), 0, COPES_ACT_SILU, 0}},
     "lrpe_backward: delta_all is given; it must be NULL but for softmax over the sequence"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, DELTA_ALL, 6, 8, 0}},
     "lrpe_backward: delta_all has type bool; it must be float32 (float64 where x is)"},
    {COPES_ERROR_DTYPE,
     BY_ALL,
     {{TYPE, DELTA_ALL, kDLFloat, 64, 0}},
     "lrpe_backward: delta_all has type float64; it must be float32"},
    {COPES_ERROR_SHAPE,
     BY_ALL,
     {{RANK, DELTA_ALL, 0, 2, 0}},
     "lrpe_backward: delta_all has shape (2, 3); it must be (2, 3, 8), (B, H, D)"},
};

REFUSAL_TEST(share_of_lse_refuses, share_of_lse, share_of_lse_rows)
REFUSAL_TEST(share_delta_refuses, share_delta, share_delta_rows)
REFUSAL_TEST(share_of_delta_refuses, share_of_delta, share_of_delta_rows)

int main(void)
{
    Suite *suite = suite_create("refusals_lrpe_shares");
    TCase *lrpe = tcase_create("lrpe");
    ADD_REFUSALS(lrpe, share_of_lse_refuses);
    ADD_REFUSALS(lrpe, share_delta_refuses);
    ADD_REFUSALS(lrpe, share_of_delta_refuses);
    suite_add_tcase(suite, lrpe);
    return suite_run(suite);
}
