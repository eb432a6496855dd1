/* The planners of GPUs, on any host: for devices that COPES_GPU_MODEL describes, over thousands of shapes of up to 2^33
 * elements. A plan must be one that the device can launch, always the same, and one that the environment allows. */
#include "tests/differential/draw.h"
#include "tests/harness/run.h"
#include "tests/harness/variants.h"
#include "tests/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef COPES_TEST_HIP
static const DLDevice gpu = {kDLROCM, 0};
#else
static const DLDevice gpu = {kDLCUDA, 0};
#endif

typedef struct gpu_model {
    const char *text;
    long long multiprocessors, shared_memory;
    int cluster; /* blocks of the largest one */
} gpu_model;

static const gpu_model models[] = {
    {"capability=75,multiprocessors=40,shared_memory=65536", 40, 65536, 1},
    {"capability=80,multiprocessors=108,shared_memory=166912", 108, 166912, 1},
    {"capability=86,multiprocessors=82,shared_memory=101376", 82, 101376, 1},
    {"capability=90,multiprocessors=132,shared_memory=232448,clusters=16", 132, 232448, 16},
    {"capability=90,multiprocessors=132,shared_memory=232448", 132, 232448, 8},
    {"capability=90,multiprocessors=8,shared_memory=232448,clusters=4", 8, 232448, 4}, /* a part of a device */
    {"capability=90,multiprocessors=1,shared_memory=232448,clusters=1", 1, 232448, 1},
    {"capability=100,multiprocessors=148,shared_memory=232448,clusters=16", 148, 232448, 16},
};
enum { MODELS = sizeof models / sizeof models[0], MODEL_H200 = 3, SEEDS = 3000 };

static const int64_t rooms[] = {64, 3000, 1 << 16, 1 << 22, 1 << 27, INT64_C(1) << 33};
enum { ROOMS = sizeof rooms / sizeof rooms[0] };

/* A plan as its text tells it. */
typedef struct plan {
    char text[CHECK_PLAN], variant[CHECK_VARIANT];
    long long grid[3], block[3], shared, cluster, workspace;
    bool cooperative;
    size_t padded; /* copes_workspace_size */
} plan;

static copes_context *open_model(const char *model)
{
    copes_context *context = NULL;
    setenv("COPES_GPU_MODEL", model, 1);
    ck_assert_msg(copes_context_create(gpu, NULL, &context) == COPES_OK, "%s", copes_last_error());
    unsetenv("COPES_GPU_MODEL");
    return context;
}

/* The same with another variable set. */
static copes_context *open_with(const char *model, const char *variable, const char *value)
{
    setenv(variable, value, 1);
    copes_context *context = open_model(model);
    unsetenv(variable);
    return context;
}

/* "8 x 1 x 16": returns how many characters; lengths that are not there are 1. */
static int read_lengths(const char *text, long long lengths[3])
{
    int at = 0, more = 0;
    lengths[0] = lengths[1] = lengths[2] = 1;
    ck_assert_int_eq(sscanf(text, "%lld%n", &lengths[0], &at), 1);
    for (int i = 1; i < 3 && sscanf(text + at, " x %lld%n", &lengths[i], &more) == 1; i++)
        at += more;
    return at;
}

static void read_launch(plan *p)
{
    static const char before[] = "launch: ", between[] = " blocks of ";
    const char *at = strstr(p->text, before);
    ck_assert_ptr_nonnull(at);
    at += strlen(before);
    at += read_lengths(at, p->grid);
    ck_assert_int_eq(strncmp(at, between, strlen(between)), 0);
    at += strlen(between);
    at += read_lengths(at, p->block);
    ck_assert_int_eq(sscanf(at, " threads, %lld bytes of dynamic shared memory, clusters of %lld", &p->shared,
                            &p->cluster) >= 1,
                     1);
    p->cooperative = strstr(p->text, ", cooperative") != NULL;
}

/* False where the library refuses the size. */
static bool make_plan(const check_problem *problem, copes_context *context, size_t offset, plan *p)
{
    char line[CHECK_CASE_TEXT];
    *p = (plan){.cluster = 1};
    const copes_status status = check_explain(problem, context, gpu, offset, p->text, &p->padded);
    ck_assert_msg(status == COPES_OK || status == COPES_ERROR_SIZE, "%s: %s", check_case_text(&problem->c, line),
                  copes_last_error());
    if (status != COPES_OK || strncmp(p->text, "nothing to do", 13) == 0)
        return false;
    ck_assert_int_eq(sscanf(p->text, "variant: %127[^\n]", p->variant), 1);
    read_launch(p);
    ck_assert_int_eq(sscanf(strstr(p->text, "\nworkspace: "), "\nworkspace: %lld", &p->workspace), 1);
    return true;
}

/* Does each refusal begin with the name of a method, as they point to names that must outlive the planner? */
static bool are_named(const char *text)
{
    static const char before[] = "\nrefused: ", between[] = ", as ";
    bool named = true;
    for (const char *at = strstr(text, before); at != NULL; at = strstr(at, before)) {
        at += strlen(before);
        const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        named = named && length > 0 && strncmp(at + length, between, strlen(between)) == 0;
    }
    return named;
}

static check_case draw(uint64_t seed)
{
    check_case c = draw_case_of(seed, rooms[seed % ROOMS]);
    c.type = c.type == CHECK_F64 ? CHECK_F32 : c.type;
    c.theta_type = c.theta_type == CHECK_F64 ? CHECK_F32 : c.theta_type;
    c.qk.weight_type = c.qk.weight_type == CHECK_F64 ? CHECK_F32 : c.qk.weight_type;
    c.qk.cache_type = c.qk.cache_type == CHECK_F64 ? CHECK_F32 : c.qk.cache_type;
    if (c.grad_theta && c.op.lrpe.act == COPES_ACT_SOFTMAX && c.op.lrpe.dim == -3)
        c.lse = true; /* which GPUs need for theta's gradient */
    return c;
}

/* The limits of CUDA and HIP, and of what a multiprocessor has: threads, and a KiB of shared memory a block for the driver. */
static bool can_launch(const plan *p, const gpu_model *model)
{
    const long long blocks = p->grid[0] * p->grid[1] * p->grid[2], threads = p->block[0] * p->block[1] * p->block[2];
    const long long resident = (blocks + model->multiprocessors - 1) / model->multiprocessors;
    return p->grid[0] >= 1 && p->grid[0] <= INT32_MAX && p->grid[1] >= 1 && p->grid[1] <= 65535 && p->grid[2] >= 1 &&
           p->grid[2] <= 65535 && threads >= 1 && threads <= 1024 && p->block[2] <= 64 && p->shared >= 0 &&
           p->shared <= model->shared_memory && p->cluster >= 1 && p->cluster <= model->cluster &&
           p->grid[0] % p->cluster == 0 &&
           (!p->cooperative || (resident * threads <= 2048 && resident * p->shared <= model->shared_memory + 1024));
}

/* The name up to its "<". */
static bool is_method(const char *variant, const char *method)
{
    const size_t length = strlen(method);
    return strncmp(variant, method, length) == 0 && variant[length] == '<';
}

/* A kernel before another one, and the passes of a sequence, are two launches. */
static bool has_three_launches(const plan *p)
{
    return strstr(p->text, "\nbefore it: ") != NULL && is_method(p->variant, "sequence_passes");
}

START_TEST(plans_can_be_launched)
{
    const gpu_model *model = &models[_i];
    copes_context *context = open_model(model->text);
    check_variants variants;
    check_problem problem;
    char line[CHECK_CASE_TEXT];
    int planned = 0;
    plan first, again;
    ck_assert_int_eq(check_variants_open(&variants, gpu.device_type), 0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const check_case c = draw(seed);
        check_describe(&problem, &c);
        if (!make_plan(&problem, context, 0, &first))
            continue;
        planned++;
        ck_assert_msg(check_variants_has(&variants, first.variant), "%s", first.variant);
        ck_assert_msg(can_launch(&first, model), "%s\n%s", check_case_text(&c, line), first.text);
        ck_assert_msg(are_named(first.text), "%s\n%s", check_case_text(&c, line), first.text);
        ck_assert_msg(!has_three_launches(&first), "%s\n%s", check_case_text(&c, line), first.text);
        ck_assert_int_eq(first.workspace >= 0, 1);
        ck_assert_uint_eq(first.padded, first.workspace == 0 ? 0 : (size_t)first.workspace + 255);
        ck_assert_int_eq(make_plan(&problem, context, 0, &again), 1);
        ck_assert_str_eq(first.text, again.text);
        ck_assert_int_eq(make_plan(&problem, context, c.type == CHECK_F32 ? 4 : 2, &again), 1);
        ck_assert_msg(first.padded == again.padded, "%s\n%s\nat other addresses\n%s", check_case_text(&c, line),
                      first.text, again.text);
    }
    ck_assert_int_gt(planned, SEEDS / 2);
    check_variants_free(&variants);
    copes_context_destroy(context);
}
END_TEST

/* What a family falls back on, which cannot be refused. */
static bool is_last(const char *variant)
{
    static const char *const last[] = {"act_strided",      "act_mask_strided", "softmax_any", "lrpe_any",
                                       "sequence_columns", "tpa_fma",          "qk_any",      "merge_any"};
    bool found = false;
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
        found = found || is_method(variant, last[i]);
    return found;
}

static void check_choice(const char *method)
{
    char without[CHECK_METHOD + 1];
    snprintf(without, sizeof without, "-%s", method);
    copes_context *asks = open_with(models[MODEL_H200].text, "COPES_GPU_VARIANT", method);
    copes_context *forbids = open_with(models[MODEL_H200].text, "COPES_GPU_VARIANT", without);
    check_problem problem;
    plan p;
    for (uint64_t seed = 0; seed < SEEDS / 4; seed++) {
        const check_case c = draw(seed);
        check_describe(&problem, &c);
        if (make_plan(&problem, asks, 0, &p))
            ck_assert_msg(is_method(p.variant, method) || is_last(p.variant), "%s asked for\n%s", method, p.text);
        if (make_plan(&problem, forbids, 0, &p))
            ck_assert_msg(!is_method(p.variant, method) || is_last(p.variant), "%s forbidden\n%s", method, p.text);
    }
    copes_context_destroy(asks);
    copes_context_destroy(forbids);
}

START_TEST(variants_are_asked_for_and_forbidden)
{
    check_variants variants;
    char method[CHECK_METHOD];
    ck_assert_int_eq(check_variants_open(&variants, gpu.device_type), 0);
    for (size_t from = 0; check_variants_next(&variants, &from, method);)
        check_choice(method);
    check_variants_free(&variants);
}
END_TEST

#ifndef COPES_TEST_HIP
/* Does the text tell why a method was refused? */
static bool has_reason(const plan *p, const char *method)
{
    char line[CHECK_METHOD + 16];
    snprintf(line, sizeof line, "\nrefused: %s, as ", method);
    return strstr(p->text, line) != NULL;
}

/* On devices with little shared memory, too, and wherever tensors begin. */
START_TEST(tensor_cores_give_a_reason)
{
    static const char *const devices[] = {
        "capability=90,multiprocessors=132,shared_memory=232448",
        "capability=90,multiprocessors=132,shared_memory=101376",
        "capability=90,multiprocessors=132,shared_memory=49152",
        "capability=75,multiprocessors=40,shared_memory=65536",
    };
    copes_context *context = open_model(devices[_i / 2]);
    check_problem problem;
    plan p;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const check_case c = draw(seed);
        check_describe(&problem, &c);
        if (c.op.kind != COPES_TPA_DECODE || !make_plan(&problem, context, _i % 2 * 4, &p))
            continue;
        ck_assert_msg(is_method(p.variant, "tpa_wgmma") || has_reason(&p, "tpa_wgmma"), "%s", p.text);
        ck_assert_msg(!is_method(p.variant, "tpa_fma") || has_reason(&p, "tpa_mma"), "%s", p.text);
    }
    copes_context_destroy(context);
}
END_TEST
#endif

/* An architecture that the environment caps is one that the device has. */
START_TEST(architecture_is_capped)
{
    copes_context *capped = open_with(models[MODEL_H200].text, "COPES_GPU_ARCH", "80");
    copes_context *older = open_model("capability=80,multiprocessors=132,shared_memory=232448");
    check_problem problem;
    plan a, b;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const check_case c = draw(seed);
        check_describe(&problem, &c);
        const bool planned = make_plan(&problem, capped, 0, &a);
        ck_assert_int_eq(planned, make_plan(&problem, older, 0, &b));
        if (planned)
            ck_assert_str_eq(a.text, b.text);
    }
    copes_context_destroy(capped);
    copes_context_destroy(older);
}
END_TEST

typedef struct bad_environment {
    const char *variable, *value;
} bad_environment;

static const bad_environment bad[] = {
    {"COPES_GPU_ARCH", "sm_80"},
    {"COPES_GPU_ARCH", "9"},
    {"COPES_GPU_ARCH", "80 "},
    {"COPES_GPU_ARCH", "99999999999"},
    {"COPES_GPU_VARIANT", "lrpe_nothing"},
    {"COPES_GPU_VARIANT", "-"},
    {"COPES_GPU_VARIANT", "-lrpe_any,,-tpa_fma"},
    {"COPES_GPU_VARIANT", "-lrpe_any,tpa_fma"},
    {"COPES_GPU_MODEL", "h200"},
    {"COPES_GPU_MODEL", "capability=90"},
    {"COPES_GPU_MODEL", "capability=90,multiprocessors=132,shared_memory=232448,clusters=17"},
    {"COPES_GPU_MODEL", "capability=90,multiprocessors=132,shared_memory=232448,capability=80"},
    {"COPES_GPU_MODEL", "capability=90,multiprocessors=-132,shared_memory=232448"},
    {"COPES_GPU_MODEL", "capability=90,multiprocessors=132,shared_memory=1000"},
};

START_TEST(bad_environments_are_refused)
{
    copes_context *context = NULL;
    setenv("COPES_GPU_MODEL", models[MODEL_H200].text, 1);
    setenv(bad[_i].variable, bad[_i].value, 1);
    const copes_status status = copes_context_create(gpu, NULL, &context);
    unsetenv("COPES_GPU_MODEL");
    unsetenv(bad[_i].variable);
    ck_assert_int_eq(status, COPES_ERROR_ATTRIBUTE);
    ck_assert_ptr_null(context);
    ck_assert_msg(strstr(copes_last_error(), bad[_i].variable) == copes_last_error() &&
                      strstr(copes_last_error(), bad[_i].value) != NULL,
                  "%s", copes_last_error());
}
END_TEST

#ifndef COPES_TEST_HIP
/* Chunks of sequences of 256 tokens, of 32 + 8 heads in bfloat16, with norms. */
typedef struct chunk {
    copes_kind kind;
    int64_t sequences, features;
    bool cached;
} chunk;

static const chunk chunks[] = {
    {COPES_QK_NORM_ROPE_FORWARD, 8, 256, false},
    {COPES_QK_NORM_ROPE_FORWARD, 16, 128, false},
    {COPES_QK_NORM_ROPE_FORWARD, 8, 512, true},
    {COPES_QK_NORM_ROPE_BACKWARD, 8, 256, false},
};

static check_case case_of(const chunk *of)
{
    return (check_case){.family = "qk_norm_rope",
                        .op = {.kind = of->kind},
                        .type = CHECK_BF16,
                        .theta_type = CHECK_F32,
                        .rank = 4,
                        .shape = {of->sequences, 256, 32, of->features},
                        .theta_shape = {1, of->features / 2},
                        .qk = {.k = true,
                               .k_out = !of->cached,
                               .k_cache = of->cached,
                               .v_cache = of->cached,
                               .key_heads = 8,
                               .e = of->features,
                               .wq = CHECK_SHARED_WEIGHTS,
                               .wk = CHECK_SHARED_WEIGHTS,
                               .weight_type = CHECK_BF16,
                               .blocks = of->sequences * 16,
                               .page = 16,
                               .cache_type = CHECK_BF16}};
}

/* Where blocks take a few rounds, the last has work for nine tenths of an H200. Of this kernel 640 threads run on a multiprocessor. */
START_TEST(rounds_of_blocks_are_full)
{
    copes_context *context = open_model(models[MODEL_H200].text);
    const check_case c = case_of(&chunks[_i]);
    check_problem problem;
    plan p;
    check_describe(&problem, &c);
    ck_assert(make_plan(&problem, context, 0, &p));
    const long long at_once = 132 * (640 / (p.block[0] * p.block[1])), rounds = (p.grid[0] + at_once - 1) / at_once;
    ck_assert_msg(rounds > 1 && p.grid[0] >= 0.9 * (double)(rounds * at_once), "%s", p.text);
    copes_context_destroy(context);
}
END_TEST

/* Tokens of 12 x 12 heads of 128 features, and how they come to lie on no line. */
typedef struct off_line {
    int64_t tokens, prefix, grid[2];
    int position_rank;
} off_line;

static const off_line off_lines[] = {
    {256, 0, {0}, 2}, {8192, 0, {0}, 2}, {32768, 0, {0}, 1}, {1024, 1, {0}, 0}, {4096, 0, {64, 64}, 0},
};

/* Their rotations take longer than memory, and both passes in one launch have too few threads for them. */
START_TEST(tokens_off_a_line_take_two_launches)
{
    copes_context *context = open_model(models[MODEL_H200].text);
    const off_line *of = &off_lines[_i];
    check_case c = {.family = "lrpe_rotate",
                    .op = {.kind = COPES_LRPE_FORWARD,
                           .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3, .prefix = of->prefix}},
                    .type = CHECK_BF16,
                    .theta_type = CHECK_F32,
                    .rank = 4,
                    .shape = {12, of->tokens, 12, 128},
                    .theta_shape = {1, of->grid[0] > 0 ? 32 : 64},
                    .position_rank = of->position_rank,
                    .position_type = CHECK_I64};
    check_problem problem;
    plan p;
    c.op.lrpe.grid_rank = of->grid[0] > 0 ? 2 : 0;
    memcpy(c.op.lrpe.grid, of->grid, sizeof of->grid);
    check_describe(&problem, &c);
    ck_assert_msg(make_plan(&problem, context, 0, &p), "%s", copes_last_error());
    ck_assert_msg(is_method(p.variant, "sequence_passes"), "%s", p.text);
    copes_context_destroy(context);
}
END_TEST
#endif

START_TEST(a_model_runs_nothing)
{
    copes_context *context = open_model(models[MODEL_H200].text);
    int64_t shape[1] = {4};
    float elements[4] = {0};
    DLTensor x = {.data = elements, .device = gpu, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    const copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_args args = {.act_forward = {.x = &x, .o = &x}};
    ck_assert_int_eq(copes_context_set_stream(context, NULL), COPES_OK);
    ck_assert_int_eq(copes_run(context, &op, &args, NULL, 0), COPES_ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(copes_last_error(), "COPES_GPU_MODEL"));
    copes_context_destroy(context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("plan");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, plans_can_be_launched, 0, MODELS);
    tcase_add_test(tests, variants_are_asked_for_and_forbidden);
#ifndef COPES_TEST_HIP
    tcase_add_loop_test(tests, tensor_cores_give_a_reason, 0, 8);
    tcase_add_loop_test(tests, rounds_of_blocks_are_full, 0, sizeof chunks / sizeof chunks[0]);
    tcase_add_loop_test(tests, tokens_off_a_line_take_two_launches, 0, sizeof off_lines / sizeof off_lines[0]);
#endif
    tcase_add_test(tests, architecture_is_capped);
    tcase_add_loop_test(tests, bad_environments_are_refused, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(tests, a_model_runs_nothing);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
