/* Softmax over the sequence has the same bits with any number of threads, whether they share a sequence or not: on the CPU threads
 * share its parts where they are more than half as many as there are sequences. */
#include "tests/harness/random.h"
#include "tests/suite.h"

#include <copes/copes.h>
#include <stdlib.h>
#include <string.h>

/* More tokens than 32 parts of the least length, and a last part that is short. */
enum { TOKENS = 8999, HEADS = 2, DIM = 34, COLUMNS = HEADS * DIM, ELEMENTS = TOKENS * COLUMNS };

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType f32 = {kDLFloat, 32, 1}, bf16 = {kDLBfloat, 16, 1};
static int64_t all[] = {1, TOKENS, HEADS, DIM}, columns[] = {1, HEADS, DIM}, act_columns[] = {1, 1, HEADS, DIM},
               angles[] = {HEADS, DIM / 2};

/* What a call takes and gives. */
typedef struct memory {
    char *x, *g, *o; /* elements of float32 at most */
    float theta[COLUMNS / 2], given[COLUMNS], sums[COLUMNS];
} memory;

static DLTensor tensor_of(void *data, DLDataType type, int rank, int64_t *shape)
{
    return (DLTensor){data, cpu, rank, type, shape, NULL, 0};
}

static void run(int threads, const copes_op *op, const copes_args *args)
{
    copes_context *context = NULL;
    const copes_context_options options = {.threads = threads};
    size_t bytes = 0;
    ck_assert_msg(copes_context_create(cpu, &options, &context) == COPES_OK, "%s", copes_last_error());
    ck_assert_msg(copes_workspace_size(context, op, args, &bytes) == COPES_OK, "%s", copes_last_error());
    void *workspace = malloc(bytes + 1);
    ck_assert_msg(copes_run(context, op, args, workspace, bytes) == COPES_OK, "%s", copes_last_error());
    free(workspace);
    copes_context_destroy(context);
}

/* act's calls that read a sequence. */
static void run_act(int threads, memory *m, DLDataType type, int which)
{
    DLTensor x = tensor_of(m->x, type, 4, all), g = tensor_of(m->g, type, 4, all), o = tensor_of(m->o, type, 4, all);
    DLTensor given = tensor_of(m->given, f32, 4, act_columns), sums = tensor_of(m->sums, f32, 4, act_columns);
    copes_op op = {.kind = which < 3 ? COPES_ACT_FORWARD : COPES_ACT_BACKWARD,
                   .act = {.act = COPES_ACT_SOFTMAX, .dim = -3}};
    copes_args args = {0};
    switch (which) {
    case 0: args.act_forward = (copes_act_forward_slots){.x = &x, .o = &o}; break;
    case 1: args.act_forward = (copes_act_forward_slots){.x = &x, .lse = &sums}; break;
    case 2: args.act_forward = (copes_act_forward_slots){.x = &x, .lse_all = &given, .o = &o}; break;
    case 3: args.act_backward = (copes_act_backward_slots){.o = &x, .grad_o = &g, .grad_x = &o}; break;
    default: args.act_backward = (copes_act_backward_slots){.o = &x, .grad_o = &g, .delta = &sums};
    }
    run(threads, &op, &args);
}

/* lrpe's. The grid is far from 0, so that parts begin at positions of every kind. */
static void run_lrpe(int threads, memory *m, DLDataType type, int which)
{
    DLTensor x = tensor_of(m->x, type, 4, all), g = tensor_of(m->g, type, 4, all), o = tensor_of(m->o, type, 4, all);
    DLTensor theta = tensor_of(m->theta, f32, 2, angles);
    DLTensor given = tensor_of(m->given, f32, 3, columns), sums = tensor_of(m->sums, f32, 3, columns);
    copes_op op =
        {.kind = which < 3 ? COPES_LRPE_FORWARD : COPES_LRPE_BACKWARD,
         .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3, .grid_rank = 1, .grid = {TOKENS}, .offset = {123456789}}};
    copes_args args = {0};
    switch (which) {
    case 0: args.lrpe_forward = (copes_lrpe_forward_slots){.x = &x, .o = &o}; break;
    case 1: args.lrpe_forward = (copes_lrpe_forward_slots){.x = &x, .o = &o, .lse = &sums}; break;
    case 2: args.lrpe_forward = (copes_lrpe_forward_slots){.x = &x, .lse_all = &given, .o = &o}; break;
    case 3: args.lrpe_backward = (copes_lrpe_backward_slots){.x = &x, .grad_o = &g, .grad_x = &o}; break;
    case 4: args.lrpe_backward = (copes_lrpe_backward_slots){.x = &x, .grad_o = &g, .lse = &given, .grad_x = &o}; break;
    default: args.lrpe_backward = (copes_lrpe_backward_slots){.x = &x, .grad_o = &g, .lse = &given, .delta = &sums};
    }
    if (which < 3)
        args.lrpe_forward.theta = &theta;
    else
        args.lrpe_backward.theta = &theta;
    run(threads, &op, &args);
}

static void fill(char *to, DLDataType type, uint64_t *state)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const float value = (float)(16 * check_uniform(state) - 8);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t high = (uint16_t)(bits >> 16);
        if (type.bits == 16)
            memcpy(to + 2 * i, &high, sizeof high);
        else
            memcpy(to + 4 * i, &bits, sizeof bits);
    }
}

static memory open_memory(DLDataType type)
{
    uint64_t state = 1;
    memory m = {.x = calloc(ELEMENTS, 4), .g = calloc(ELEMENTS, 4), .o = calloc(ELEMENTS, 4)};
    fill(m.x, type, &state);
    fill(m.g, type, &state);
    for (int i = 0; i < COLUMNS; i++)
        m.given[i] = 16;
    for (int i = 0; i < COLUMNS / 2; i++)
        m.theta[i] = (float)check_uniform(&state);
    return m;
}

static void close_memory(memory *m)
{
    free(m->x);
    free(m->g);
    free(m->o);
}

/* Of one call: its results with many threads are those with one. */
static void check_call(void (*call)(int threads, memory *m, DLDataType type, int which), DLDataType type, int which)
{
    static const int threads[] = {2, 3, 16};
    memory one = open_memory(type);
    call(1, &one, type, which);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        memory many = open_memory(type);
        call(threads[i], &many, type, which);
        ck_assert_msg(memcmp(one.o, many.o, 4 * ELEMENTS) == 0 && memcmp(one.sums, many.sums, sizeof one.sums) == 0,
                      "call %d of %d bits, %d threads", which, type.bits, threads[i]);
        close_memory(&many);
    }
    close_memory(&one);
}

START_TEST(act_has_the_same_bits)
{
    for (int which = 0; which < 5; which++) {
        check_call(run_act, f32, which);
        check_call(run_act, bf16, which);
    }
}
END_TEST

START_TEST(lrpe_has_the_same_bits)
{
    for (int which = 0; which < 6; which++) {
        check_call(run_lrpe, f32, which);
        check_call(run_lrpe, bf16, which);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parts");
    TCase *tests = tcase_create("threads");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, act_has_the_same_bits);
    tcase_add_test(tests, lrpe_has_the_same_bits);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
