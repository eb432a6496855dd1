/* A program of 0.2.0: it is compiled against that version's header, which lies beside it, and must go on with every later
 * library of 0.2. It calls every function and runs every kind of operator on the CPU. */
#include <copes/copes.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 1, N = 3, H = 2, D = 4, M = 5, COUNT = B * N * H * D, KEYS = M * H, TEXT = 512 };

static int failures;

static void expect(int right, const char *what)
{
    if (!right)
        printf("%s: \"%s\"\n", what, copes_last_error());
    failures += !right;
}

static void expect_near(const float *got, const float *wanted, int count, const char *what)
{
    int near = 1;
    for (int i = 0; i < count; i++)
        near = near && fabsf(got[i] - wanted[i]) <= 1e-5F * (1 + fabsf(wanted[i]));
    expect(near, what);
}

static const DLDevice cpu = {kDLCPU, 0};
static int64_t wide[] = {B, N, H, D}, angles[] = {1, D / 2}, columns[] = {B, H, D};
static float x[COUNT], g[COUNT], o[COUNT], saved[COUNT], wanted[COUNT], theta[D / 2] = {1, 0.01F}, lse[H * D];

static DLTensor view(float *data, int rank, int64_t *shape)
{
    return (DLTensor){.data = data, .device = cpu, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* Sizes, explains and runs a call. */
static void run(copes_context *context, const copes_op *op, const copes_args *args, const char *what)
{
    size_t size = 0, bound = 0;
    char text[TEXT];
    expect(copes_workspace_size(context, op, args, &size) == COPES_OK, what);
    expect(copes_workspace_bound(context, op, args, 1, &bound) == COPES_OK && bound == size, what);
    expect(copes_explain(context, op, args, text, sizeof text) == COPES_OK && strncmp(text, "variant: ", 9) == 0, what);
    void *workspace = malloc(size + 1);
    expect(workspace != NULL && copes_run(context, op, args, workspace, size) == COPES_OK, what);
    free(workspace);
}

static float silu(float value)
{
    return value / (1 + expf(-value));
}

static void try_act(copes_context *context)
{
    DLTensor x_view = view(x, 4, wide), g_view = view(g, 4, wide), o_view = view(o, 4, wide);
    const copes_args forward = {.act_forward = {.x = &x_view, .o = &o_view}};
    const copes_args backward = {.act_backward = {.x = &x_view, .grad_o = &g_view, .grad_x = &o_view}};
    const copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    const copes_op back = {.kind = COPES_ACT_BACKWARD, .act = {.act = COPES_ACT_RELU}};
    const copes_op softmax = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -4}};
    run(context, &op, &forward, "act_forward");
    for (int i = 0; i < COUNT; i++)
        wanted[i] = silu(x[i]);
    expect_near(o, wanted, COUNT, "silu");
    run(context, &back, &backward, "act_backward");
    for (int i = 0; i < COUNT; i++)
        wanted[i] = x[i] > 0 ? g[i] : 0;
    expect_near(o, wanted, COUNT, "relu's gradient");
    run(context, &softmax, &forward, "softmax over the batch, of which there is one");
    for (int i = 0; i < COUNT; i++)
        wanted[i] = 1;
    expect_near(o, wanted, COUNT, "softmax");
}

/* What turns back what was turned is the backward, and the sequence's lse is what softmax has summed. */
static void try_lrpe(copes_context *context)
{
    DLTensor x_view = view(x, 4, wide), theta_view = view(theta, 2, angles), lse_view = view(lse, 3, columns);
    DLTensor saved_view = view(saved, 4, wide), o_view = view(o, 4, wide);
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.offset = {4096}}};
    run(context, &op, &(copes_args){.lrpe_forward = {.x = &x_view, .theta = &theta_view, .o = &saved_view}}, "rotate");
    for (int d = 0; d < D / 2; d++) {
        const double phi = 4097 * (double)theta[d];
        wanted[d] = (float)(x[H * D + d] * cos(phi) - x[H * D + d + D / 2] * sin(phi));
    }
    expect_near(saved + H * D, wanted, D / 2, "the second token, turned");
    op.kind = COPES_LRPE_BACKWARD;
    run(context, &op, &(copes_args){.lrpe_backward = {.theta = &theta_view, .grad_o = &saved_view, .grad_x = &o_view}},
        "rotate's gradient");
    expect_near(o, x, COUNT, "turned back");
    op = (copes_op){.kind = COPES_LRPE_FORWARD,
                    .lrpe = {.act = COPES_ACT_SOFTMAX,
                             .dim = -3,
                             .pairing = COPES_LRPE_INTERLEAVED,
                             .rotary_dim = 2,
                             .grid_rank = 1,
                             .grid = {1},
                             .prefix = 1,
                             .suffix = 1,
                             .pad_theta = 1}};
    angles[1] = 1;
    run(context, &op,
        &(copes_args){.lrpe_forward = {.x = &x_view, .theta = &theta_view, .o = &o_view, .lse = &lse_view}},
        "rotate after softmax over the sequence");
    angles[1] = D / 2;
    for (int i = 0; i < H * D; i++)
        wanted[i] = logf(expf(x[i]) + expf(x[H * D + i]) + expf(x[2 * H * D + i]));
    expect_near(lse, wanted, H * D, "lse");
}

/* A sequence that is one share of one: two calls each way are the whole. */
static void try_shares(copes_context *context)
{
    static float delta[H * D];
    DLTensor x_view = view(x, 4, wide), theta_view = view(theta, 2, angles), g_view = view(g, 4, wide);
    DLTensor o_view = view(o, 4, wide), saved_view = view(saved, 4, wide);
    DLTensor lse_view = view(lse, 3, columns), delta_view = view(delta, 3, columns);
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_ACT_SOFTMAX, .dim = -3}};
    copes_args args = {.lrpe_forward = {.x = &x_view, .theta = &theta_view, .o = &saved_view}};
    run(context, &op, &args, "softmax over the sequence");
    args.lrpe_forward.o = NULL;
    args.lrpe_forward.lse = &lse_view;
    run(context, &op, &args, "a share's lse");
    args.lrpe_forward.o = &o_view;
    args.lrpe_forward.lse = NULL;
    args.lrpe_forward.lse_all = &lse_view;
    run(context, &op, &args, "what all shares' lse makes of it");
    expect_near(o, saved, COUNT, "softmax in shares");
    op.kind = COPES_LRPE_BACKWARD;
    args = (copes_args){.lrpe_backward = {.x = &x_view, .theta = &theta_view, .grad_o = &g_view, .lse = &lse_view}};
    args.lrpe_backward.grad_x = &saved_view;
    run(context, &op, &args, "its gradient");
    args.lrpe_backward.grad_x = NULL;
    args.lrpe_backward.delta = &delta_view;
    run(context, &op, &args, "a share's delta");
    args.lrpe_backward.grad_x = &o_view;
    args.lrpe_backward.delta = NULL;
    args.lrpe_backward.delta_all = &delta_view;
    run(context, &op, &args, "what all shares' delta makes of it");
    expect_near(o, saved, COUNT, "the gradient in shares");
}

/* The same of softmax alone. */
static void try_act_shares(copes_context *context)
{
    static float sums[H * D];
    static int64_t along[] = {B, 1, H, D};
    DLTensor x_view = view(x, 4, wide), g_view = view(g, 4, wide), o_view = view(o, 4, wide);
    DLTensor saved_view = view(saved, 4, wide), sums_view = view(sums, 4, along);
    copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SOFTMAX, .dim = -3}};
    run(context, &op, &(copes_args){.act_forward = {.x = &x_view, .lse = &sums_view}}, "a share's lse");
    run(context, &op, &(copes_args){.act_forward = {.x = &x_view, .lse_all = &sums_view, .o = &saved_view}},
        "what all shares' lse makes of it");
    op.kind = COPES_ACT_BACKWARD;
    run(context, &op, &(copes_args){.act_backward = {.grad_o = &g_view, .o = &saved_view, .delta = &sums_view}},
        "a share's delta");
    run(context, &op,
        &(copes_args){
            .act_backward = {.grad_o = &g_view, .o = &saved_view, .delta_all = &sums_view, .grad_x = &o_view}},
        "what all shares' delta makes of it");
    for (int i = 0; i < COUNT; i++)
        wanted[i] = saved[i] * (g[i] - sums[i % (H * D)]);
    expect_near(o, wanted, COUNT, "softmax's gradient in shares");
}

/* Positions of a tensor or from an offset on turn alike, and the inverse turns back, by twice the length. */
static void try_positions(copes_context *context)
{
    static int64_t far[] = {4000, 4001, 4002}, line[] = {B, N}, one[] = {B};
    static int32_t offsets[B] = {96};
    DLTensor x_view = view(x, 4, wide), theta_view = view(theta, 2, angles), saved_view = view(saved, 4, wide);
    DLTensor o_view = view(o, 4, wide), far_view = view(NULL, 2, line), offsets_view = view(NULL, 1, one);
    far_view.data = far;
    far_view.dtype = (DLDataType){kDLInt, 64, 1};
    offsets_view.data = offsets;
    offsets_view.dtype = (DLDataType){kDLInt, 32, 1};
    copes_args args = {.lrpe_forward = {.x = &x_view, .theta = &theta_view, .positions = &far_view, .o = &saved_view}};
    copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.offset = {96}}};
    run(context, &op, &args, "rotate by positions");
    args.lrpe_forward.positions = NULL;
    args.lrpe_forward.offsets = &offsets_view;
    args.lrpe_forward.o = &o_view;
    op.lrpe.offset[0] = 4000;
    run(context, &op, &args, "rotate from an offset on");
    expect_near(o, saved, COUNT, "the same positions");
    args.lrpe_forward.x = &saved_view;
    op.lrpe.inverse = 1;
    op.lrpe.amplitude = 2;
    run(context, &op, &args, "rotate back");
    for (int i = 0; i < COUNT; i++)
        wanted[i] = 2 * x[i];
    expect_near(o, wanted, COUNT, "turned back, twice as long");
}

/* Of one pair, the last two features. */
static void try_theta_gradient(copes_context *context)
{
    static float rate[1] = {0.5F}, slope[1];
    int64_t single[] = {1, 1};
    double sum = 0;
    DLTensor x_view = view(x, 4, wide), g_view = view(g, 4, wide), o_view = view(o, 4, wide);
    DLTensor theta_view = view(rate, 2, single), slope_view = view(slope, 2, single);
    const copes_op op = {.kind = COPES_LRPE_BACKWARD, .lrpe = {.rotary_begin = D - 2}};
    const copes_args args = {.lrpe_backward = {.x = &x_view,
                                               .theta = &theta_view,
                                               .grad_o = &g_view,
                                               .grad_x = &o_view,
                                               .grad_theta = &slope_view}};
    run(context, &op, &args, "theta's gradient");
    for (int i = 0; i < N * H; i++) {
        const float *y = x + i * D + D - 2, *grad = g + i * D + D - 2;
        const int token = i / H;
        const double p = token, cosine = cos(p / 2), sine = sin(p / 2);
        sum += p * (grad[1] * (y[0] * cosine - y[1] * sine) - grad[0] * (y[0] * sine + y[1] * cosine));
    }
    wanted[0] = (float)sum;
    expect_near(slope, wanted, 1, "theta's gradient");
}

/* With values that are all 1, o is 1 whatever the keys. */
static void try_tpa(copes_context *context)
{
    static float ones[KEYS * D];
    static int32_t lengths[B] = {6};
    int64_t aq[] = {B, 1, H, 1}, bq[] = {B, 1, 1, D}, ak[] = {B, M, H}, bk[] = {B, M, D}, out[] = {B, 1, H, D},
            one[] = {B};
    for (int i = 0; i < KEYS * D; i++)
        ones[i] = wanted[i % COUNT] = 1;
    DLTensor aq_view = view(x, 4, aq), bq_view = view(g, 4, bq), ak_view = view(x, 3, ak), bk_view = view(g, 3, bk);
    DLTensor av_view = view(ones, 3, ak), bv_view = view(ones, 3, bk), o_view = view(o, 4, out),
             length_view = view(NULL, 1, one);
    length_view.data = lengths;
    length_view.dtype = (DLDataType){kDLInt, 32, 1};
    const copes_op op =
        {.kind = COPES_TPA_DECODE,
         .tpa = {.scale = 0.5, .scale_v = 1, .causal = 1, .kv_first = 2, .kv_stride = 1, .kv_total = 8}};
    const copes_args args = {.tpa_decode = {.aq = &aq_view,
                                            .bq = &bq_view,
                                            .ak = &ak_view,
                                            .bk = &bk_view,
                                            .av = &av_view,
                                            .bv = &bv_view,
                                            .kv_len = &length_view,
                                            .o = &o_view}};
    run(context, &op, &args, "tpa_decode");
    expect_near(o, wanted, H * D, "a mean of ones");
}

/* Of two shares with the weights 1/4 and 3/4, and an empty one; and back, where both have the same o, so that lse has none. */
static void try_merge(copes_context *context)
{
    static float shares[3 * H * D], lses[3 * H], merged[H * D], back[3 * H * D], slopes[3 * H];
    int64_t all[] = {3, 1, 1, H, D}, row[] = {1, 1, H, D};
    for (int i = 0; i < 3 * H * D; i++)
        shares[i] = i < H * D ? x[i] : i < 2 * H * D ? x[i - H * D] + 4 : NAN;
    for (int i = 0; i < 3 * H; i++)
        lses[i] = i < H ? 5 : i < 2 * H ? 5 + log2f(3) : -INFINITY;
    DLTensor shares_view = view(shares, 5, all), lses_view = view(lses, 4, all), merged_view = view(merged, 4, row);
    DLTensor g_view = view(g, 4, row), lse_view = view(lse, 3, row), back_view = view(back, 5, all);
    DLTensor slopes_view = view(slopes, 4, all);
    copes_op op = {.kind = COPES_ATTENTION_MERGE_FORWARD, .merge = {.base = COPES_LOG_BASE_2}};
    run(context, &op,
        &(copes_args){.attention_merge_forward =
                          {.o_shares = &shares_view, .lse_shares = &lses_view, .o = &merged_view, .lse = &lse_view}},
        "attention_merge_forward");
    for (int i = 0; i < H * D; i++)
        wanted[i] = x[i] + 3;
    expect_near(merged, wanted, H * D, "a weighted mean");
    for (int i = 0; i < H; i++)
        wanted[i] = 7;
    expect_near(lse, wanted, H, "the logarithm of 4 to the base 2, from 5 on");
    for (int i = 0; i < 2 * H * D; i++)
        shares[i] = x[i % (H * D)];
    op.kind = COPES_ATTENTION_MERGE_BACKWARD;
    run(context, &op,
        &(copes_args){.attention_merge_backward = {.o_shares = &shares_view,
                                                   .lse_shares = &lses_view,
                                                   .grad_o = &g_view,
                                                   .grad_lse = &lse_view,
                                                   .grad_o_shares = &back_view,
                                                   .grad_lse_shares = &slopes_view}},
        "attention_merge_backward");
    for (int i = 0; i < 3 * H * D && i < COUNT; i++)
        wanted[i] = i < H * D ? g[i] / 4 : i < 2 * H * D ? g[i - H * D] * 3 / 4 : 0;
    expect_near(back, wanted, COUNT, "the shares' parts of a gradient");
    for (int i = 0; i < 3 * H; i++)
        wanted[i] = i < H ? 1.75F : i < 2 * H ? 5.25F : 0;
    expect_near(slopes, wanted, 3 * H, "the shares' parts of lse's gradient");
}

static void try_refusals(copes_context *context)
{
    int64_t room[COPES_MAX_RANK];
    DLTensor x_view = view(x, 4, wide), o_view = {.shape = room};
    copes_args args = {.act_forward = {.x = &x_view, .o = &o_view}};
    copes_op op = {.kind = COPES_ACT_FORWARD, .act = {.act = COPES_ACT_SILU}};
    expect(copes_infer(&op, &args) == COPES_OK && o_view.ndim == 4 && room[3] == D && o_view.dtype.bits == 32,
           "copes_infer");
    op.act.reserved[sizeof op.act.reserved / sizeof op.act.reserved[0] - 1] = 1;
    expect(copes_infer(&op, &args) == COPES_ERROR_ATTRIBUTE && strstr(copes_last_error(), "reserved") != NULL,
           "reserved");
    op = (copes_op){.kind = (copes_kind)1000000};
    expect(copes_infer(&op, &args) == COPES_ERROR_OP, "an unknown kind");
    expect(strcmp(copes_status_name(COPES_ERROR_BACKEND), "COPES_ERROR_BACKEND") == 0, "copes_status_name");
    expect(copes_context_set_stream(context, NULL) == COPES_OK, "copes_context_set_stream");
}

/* The table's first five kinds are those of this version, and each attribute that it knew is where it was. */
static void try_tables(void)
{
    static const char *const names[] = {"act_forward", "act_backward", "lrpe_forward", "lrpe_backward", "tpa_decode"};
    char text[TEXT];
    expect(copes_op_count() >= 5 && copes_op_at(copes_op_count()) == NULL, "copes_op_count");
    for (size_t i = 0; i < 5; i++)
        expect(strcmp(copes_op_at(i)->name, names[i]) == 0 && (size_t)copes_op_at(i)->kind == i + 1, names[i]);
    const copes_op_info *lrpe = copes_op_at(2);
    expect(strcmp(lrpe->family, "lrpe") == 0 && lrpe->backward == 0 && lrpe->inplace == 1, "lrpe_forward's row");
    expect(strcmp(lrpe->in[1]->name, "theta") == 0 && lrpe->in[2]->optional == 1 && lrpe->out[1]->optional == 1,
           "its slots");
    int found = 0;
    for (int i = 0; i < lrpe->attribute_count; i++) {
        const copes_attribute_info *each = lrpe->attributes[i];
        found += strcmp(each->name, "rotary_dim") == 0 && each->type == COPES_ATTRIBUTE_INT64 &&
                 each->offset == offsetof(copes_op, lrpe.rotary_dim);
        found += strcmp(each->name, "dim") == 0 && each->type == COPES_ATTRIBUTE_AXIS && each->axes == 4;
    }
    expect(found == 2, "its attributes");
    expect(copes_backend_count() >= 1 && strcmp(copes_backend_at(0)->name, "cpu") == 0 &&
               copes_backend_at(0)->device_type == kDLCPU && copes_device_count(kDLCPU) == 1,
           "backends");
    expect(copes_device_summary(cpu, text, sizeof text) == COPES_OK && text[0] != '\0', "copes_device_summary");
    expect(copes_variants(kDLCPU, NULL, 0) > 0, "copes_variants");
    expect(strncmp(copes_version(), "0.2.", 4) == 0, "copes_version");
}

int main(void)
{
    const copes_context_options options = {.threads = 2};
    copes_context *context = NULL;
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i * 7 % 11) / 4 - 1;
        g[i] = (float)(i * 5 % 13) / 8 - 0.5F;
    }
    expect(copes_context_create(cpu, &options, &context) == COPES_OK, "copes_context_create");
    if (context == NULL)
        return 1;
    try_act(context);
    try_lrpe(context);
    try_shares(context);
    try_act_shares(context);
    try_positions(context);
    try_theta_gradient(context);
    try_tpa(context);
    try_merge(context);
    try_refusals(context);
    try_tables();
    copes_context_destroy(context);
    return failures != 0;
}
