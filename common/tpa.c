/* tpa_decode: its attributes, checks and canonical problem. */
#include "common/family.h"
#include "common/size.h"

#include <math.h>

const copes_attribute_info *const copes_tpa_attribute_table[COPES_TPA_ATTRIBUTES] = {
    COPES_ATTRIBUTE("scale", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, tpa.scale), -1, NULL, "D^-1/2",
                    "factor of the scores"),
    COPES_ATTRIBUTE("scale_q", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, tpa.scale_q), -1, NULL, "1/Rq",
                    "factor of the queries"),
    COPES_ATTRIBUTE("scale_k", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, tpa.scale_k), -1, NULL, "1/Rk",
                    "factor of the keys"),
    COPES_ATTRIBUTE("scale_v", COPES_ATTRIBUTE_DOUBLE, 1, 0, offsetof(copes_op, tpa.scale_v), -1, NULL, "1/Rv",
                    "factor of the values"),
    COPES_ATTRIBUTE("causal", COPES_ATTRIBUTE_BOOL, 1, 0, offsetof(copes_op, tpa.causal), -1, NULL, "0",
                    "the last query sees the last key, each one before it a key less"),
    COPES_ATTRIBUTE("kv_first", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, tpa.kv_first), -1, NULL, "0",
                    "the first key's place among the keys of all shares"),
    COPES_ATTRIBUTE("kv_stride", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, tpa.kv_stride), -1, NULL, "1",
                    "places from one key to the next"),
    COPES_ATTRIBUTE("kv_total", COPES_ATTRIBUTE_INT64, 1, 0, offsetof(copes_op, tpa.kv_total), -1, NULL,
                    "those up to the last one", "keys of all shares"),
};

/* Sizes read off the six factors. */
typedef struct sizes {
    int64_t b, n, m, h, d, e, rq, rk, rv;
} sizes;

static copes_status check_attributes(const copes_call *call)
{
    const copes_tpa_attributes *attributes = &call->op->tpa;
    const double scales[4] = {attributes->scale, attributes->scale_q, attributes->scale_k, attributes->scale_v};
    for (int i = 0; i < 4; i++)
        if (!isfinite(scales[i]))
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is %g; it must be finite, or 0 for the default",
                              call->info->name, copes_tpa_attribute_table[i]->name, scales[i]);
    if (attributes->causal != 0 && attributes->causal != 1)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: causal is %d; it must be 0 or 1", call->info->name,
                          attributes->causal);
    const int64_t places[3] = {attributes->kv_first, attributes->kv_stride, attributes->kv_total};
    for (int i = 0; i < 3; i++)
        if (places[i] < 0)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is %lld; it must be 0 or more", call->info->name,
                              copes_tpa_attribute_table[5 + i]->name, (long long)places[i]);
    return COPES_OK;
}

static int64_t stride_of(const copes_tpa_attributes *attributes)
{
    return attributes->kv_stride > 0 ? attributes->kv_stride : 1;
}

/* The place after the share's last key; -1 where it does not fit 63 bits. */
static int64_t end_of_share(const copes_tpa_attributes *attributes, int64_t m)
{
    if (m == 0)
        return attributes->kv_first;
    return copes_add(copes_add(attributes->kv_first, copes_multiply(m - 1, stride_of(attributes))), 1);
}

static copes_status check_share(const copes_call *call, int64_t m)
{
    const copes_tpa_attributes *attributes = &call->op->tpa;
    const int64_t end = end_of_share(attributes, m), total = attributes->kv_total;
    if (end < 0)
        return copes_fail(COPES_ERROR_SIZE,
                          "%s: kv_first is %lld; with kv_stride %lld the places of %lld keys must fit 63 bits",
                          call->info->name, (long long)attributes->kv_first, (long long)stride_of(attributes),
                          (long long)m);
    if (m > 0 && total > 0 && end > total)
        return copes_fail(
            COPES_ERROR_ATTRIBUTE,
            "%s: kv_total is %lld; with kv_first %lld and kv_stride %lld the last of %lld keys is key %lld",
            call->info->name, (long long)total, (long long)attributes->kv_first, (long long)stride_of(attributes),
            (long long)m, (long long)(end - 1));
    return COPES_OK;
}

/* The rank axis of a factor sits at `axis`; a key's or value's may be left out. */
static copes_status check_rank(const copes_call *call, int slot, bool may_lack)
{
    const copes_tensor *tensor = call->in[slot];
    if (tensor->rank == 4 || (may_lack && tensor->rank == 3))
        return COPES_OK;
    char text[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be %s", call->info->name, tensor->name,
                      copes_shape_text(tensor->rank, tensor->shape, text), call->info->in[slot]->shape);
}

static copes_status check_factor(const copes_call *call, int slot, const int64_t shape[4], int rank_axis,
                                 const char *like)
{
    const copes_tensor *tensor = call->in[slot];
    int64_t wanted[4];
    int rank = 0;
    for (int i = 0; i < 4; i++)
        if (tensor->rank == 4 || i != rank_axis)
            wanted[rank++] = shape[i];
    return copes_check_shape(call, tensor, rank, wanted, like);
}

/* Length of a tensor's rank axis, 1 where it is left out. */
static int64_t rank_of(const copes_tensor *tensor, int axis)
{
    return tensor->rank == 4 ? tensor->shape[axis] : 1;
}

static sizes read_sizes(const copes_call *call)
{
    const copes_tensor *aq = call->in[COPES_TPA_AQ], *bq = call->in[COPES_TPA_BQ];
    const copes_tensor *ak = call->in[COPES_TPA_AK], *av = call->in[COPES_TPA_AV], *bv = call->in[COPES_TPA_BV];
    return (sizes){.b = aq->shape[0],
                   .n = aq->shape[1],
                   .m = ak->shape[1],
                   .h = aq->shape[2],
                   .d = bq->shape[3],
                   .e = bv->shape[bv->rank - 1],
                   .rq = aq->shape[3],
                   .rk = rank_of(ak, 3),
                   .rv = rank_of(av, 3)};
}

/* All six are named: with two batches among them there is no telling which one is wrong. */
static copes_status check_batch(const copes_call *call, int64_t b)
{
    char text[COPES_SHAPE_TEXT];
    int64_t batch[COPES_TPA_BV + 1];
    bool same = true;
    for (int slot = COPES_TPA_AQ; slot <= COPES_TPA_BV; slot++) {
        batch[slot] = call->in[slot]->shape[0];
        same = same && batch[slot] == b;
    }
    if (same)
        return COPES_OK;
    return copes_fail(COPES_ERROR_SHAPE, "%s: aq, bq, ak, bk, av and bv have batches %s; B must be the same in all",
                      call->info->name, copes_shape_text(COPES_TPA_BV + 1, batch, text));
}

static copes_status check_shapes(const copes_call *call, const sizes *s)
{
    const int64_t bq[4] = {s->b, s->n, s->rq, s->d};
    const int64_t ak[4] = {s->b, s->m, s->h, s->rk}, bk[4] = {s->b, s->m, s->rk, s->d};
    const int64_t av[4] = {s->b, s->m, s->h, s->rv}, bv[4] = {s->b, s->m, s->rv, s->e};
    COPES_TRY(check_batch(call, s->b));
    COPES_TRY(check_factor(call, COPES_TPA_BQ, bq, -1, "(B, N, Rq, D) to go with aq"));
    COPES_TRY(check_factor(call, COPES_TPA_AK, ak, 3, "(B, M, H, Rk) to go with aq"));
    COPES_TRY(check_factor(call, COPES_TPA_BK, bk, 2, "(B, M, Rk, D) to go with ak and bq"));
    COPES_TRY(check_factor(call, COPES_TPA_AV, av, 3, "(B, M, H, Rv) to go with ak"));
    COPES_TRY(check_factor(call, COPES_TPA_BV, bv, 2, "(B, M, Rv, E) to go with av"));
    if (s->rq < 1 || s->rk < 1 || s->rv < 1)
        return copes_fail(COPES_ERROR_SHAPE, "%s: aq, ak and av have ranks %lld, %lld and %lld; each must be 1 or more",
                          call->info->name, (long long)s->rq, (long long)s->rk, (long long)s->rv);
    if (s->d < 1 && s->h > 0)
        return copes_fail(COPES_ERROR_SHAPE, "%s: bq has %lld features; it must have 1 or more", call->info->name,
                          (long long)s->d);
    return COPES_OK;
}

static copes_status check(copes_call *call)
{
    COPES_TRY(check_attributes(call));
    const copes_tensor *aq = call->in[COPES_TPA_AQ];
    COPES_TRY(copes_check_floating(call, aq));
    call->accumulate_double = aq->dtype == COPES_F64;
    for (int slot = COPES_TPA_AQ; slot <= COPES_TPA_BV; slot++) {
        COPES_TRY(copes_check_dtype(call, call->in[slot], aq->dtype, "aq"));
        COPES_TRY(check_rank(call, slot, slot > COPES_TPA_BQ));
    }
    const sizes s = read_sizes(call);
    COPES_TRY(check_shapes(call, &s));
    COPES_TRY(check_share(call, s.m));
    const copes_tensor *kv_len = call->in[COPES_TPA_KV_LEN];
    if (copes_present(kv_len)) {
        COPES_TRY(copes_check_dtype(call, kv_len, COPES_I32, ""));
        COPES_TRY(copes_check_shape(call, kv_len, 1, &s.b, "(B)"));
    }
    call->spec[COPES_TPA_OUT] = (copes_spec){.dtype = aq->dtype, .rank = 4, .shape = {s.b, s.n, s.h, s.e}};
    call->spec[COPES_TPA_OUT_LSE] =
        (copes_spec){.dtype = call->accumulate_double ? COPES_F64 : COPES_F32, .rank = 3, .shape = {s.b, s.n, s.h}};
    return COPES_OK;
}

/* A rank-4 view of a factor whose rank axis, at `axis`, may be left out. */
static copes_view factor_view(const copes_tensor *tensor, int axis)
{
    copes_view view = {.data = copes_view_data(tensor)};
    for (int i = 0, from = 0; i < 4; i++)
        view.stride[i] = tensor->rank == 3 && i == axis ? 0 : tensor->stride[from++];
    return view;
}

/* A scale as a number of ordinary size, from 2^least to 2^64 in magnitude, or else as one from 1/8 to 1 with an exponent,
 * so that float32 holds either. */
typedef struct split_scale {
    double number;
    int exponent;
} split_scale;

static split_scale split_product(const double *scales, int count, int least)
{
    split_scale split = {1, 0};
    for (int i = 0; i < count; i++) {
        int exponent;
        split.number *= frexp(scales[i], &exponent);
        split.exponent += exponent;
    }
    return split.exponent > least && split.exponent <= 64 ? (split_scale){ldexp(split.number, split.exponent), 0}
                                                          : split;
}

/* The bits by which a sum over the keys can pass a scaled value: of the keys, of weights of 2^8, of a scale_v below 1. The
 * scale is no smaller than 2^-100, as a weight is multiplied by it. float16's values never come near float32's largest. */
static float weight_scale_of(copes_dtype dtype, int64_t keys, split_scale scale)
{
    int bits = 9, exponent;
    frexp(scale.number, &exponent);
    exponent += scale.exponent;
    for (; keys > 0; keys /= 2)
        bits++;
    bits += exponent < 1 ? 1 - exponent : 0;
    return dtype == COPES_F16 ? 1 : (float)ldexp(1, bits < 100 ? -bits : -100);
}

static void plan(const copes_call *call, copes_problem *out)
{
    const sizes s = read_sizes(call);
    const copes_tpa_attributes *attributes = &call->op->tpa;
    const double scales[3] = {attributes->scale != 0 ? attributes->scale : 1 / sqrt((double)s.d),
                              attributes->scale_q != 0 ? attributes->scale_q : 1 / (double)s.rq,
                              attributes->scale_k != 0 ? attributes->scale_k : 1 / (double)s.rk};
    const double scale_v = attributes->scale_v != 0 ? attributes->scale_v : 1 / (double)s.rv;
    const split_scale of_scores = split_product(scales, 3, -64), of_values = split_product(&scale_v, 1, -24);
    const copes_dtype dtype = call->in[COPES_TPA_AQ]->dtype;
    out->tpa = (copes_tpa_problem){
        .dtype = dtype,
        .b = s.b,
        .n = s.n,
        .m = s.m,
        .h = s.h,
        .d = s.d,
        .e = s.e,
        .rq = s.rq,
        .rk = s.rk,
        .rv = s.rv,
        .score_scale = of_scores.number,
        .value_scale = of_values.number,
        .score_exponent = of_scores.exponent,
        .value_exponent = of_values.exponent,
        .weight_scale = weight_scale_of(dtype, s.m, of_values),
        .causal = attributes->causal,
        .kv_first = attributes->kv_first,
        .kv_stride = stride_of(attributes),
        .kv_total = attributes->kv_total > 0 ? attributes->kv_total : end_of_share(attributes, s.m),
        .aq = copes_view_of(call->in[COPES_TPA_AQ]),
        .bq = copes_view_of(call->in[COPES_TPA_BQ]),
        .ak = factor_view(call->in[COPES_TPA_AK], 3),
        .bk = factor_view(call->in[COPES_TPA_BK], 2),
        .av = factor_view(call->in[COPES_TPA_AV], 3),
        .bv = factor_view(call->in[COPES_TPA_BV], 2),
        .kv_len = copes_view_of(call->in[COPES_TPA_KV_LEN]),
        .o = copes_view_of(call->out[COPES_TPA_OUT]),
        .lse = copes_view_of(call->out[COPES_TPA_OUT_LSE]),
    };
}

static const char *const types[COPES_MAX_INPUTS] = {[COPES_TPA_KV_LEN] = "int32"};

const copes_family copes_family_tpa = {check, plan, types, NULL, offsetof(copes_op, tpa.reserved)};
