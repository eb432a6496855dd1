/* qk_norm_rope: what the caches, slots, values and scales must be. */
#include "common/qk.h"

static bool is_float8(copes_dtype dtype)
{
    return dtype == COPES_F8_E4M3 || dtype == COPES_U8;
}

static copes_status check_values(const copes_call *call)
{
    const copes_tensor *q = call->in[COPES_QK_Q], *k = call->in[COPES_QK_K], *v = call->in[COPES_QK_V];
    if (v->rank != 4) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE, "%s: v has shape %s; it must be (B, N, Hk, E)", call->info->name,
                          copes_shape_text(v->rank, v->shape, text));
    }
    const int64_t heads = copes_present(k) ? k->shape[2] : v->shape[2];
    const int64_t wanted[4] = {q->shape[0], q->shape[1], heads, v->shape[3]};
    COPES_TRY(copes_check_dtype(call, v, q->dtype, "q"));
    return copes_check_shape(call, v, 4, wanted, "to go with q and k");
}

static copes_status check_slots(const copes_call *call)
{
    const copes_tensor *slots = call->in[COPES_QK_SLOTS];
    COPES_TRY(copes_require(call, slots, "slots", "a cache needs each token's place"));
    COPES_TRY(copes_check_dtype(call, slots, COPES_I64, ""));
    return copes_check_shape(call, slots, 2, call->in[COPES_QK_Q]->shape, "(B, N) to go with the tokens");
}

/* Of float8 keys or values, one for all heads or one for each. */
static copes_status check_scale(const copes_call *call, int slot, const copes_tensor *cache, int64_t heads)
{
    const copes_tensor *scale = call->in[slot];
    if (!copes_present(scale))
        return COPES_OK;
    if (!is_float8(cache->dtype))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is given; with a cache of %s it must be NULL",
                          call->info->name, scale->name, copes_dtype_name(cache->dtype));
    COPES_TRY(copes_check_dtype(call, scale, COPES_F32, ""));
    if (scale->rank == 1 && (scale->shape[0] == 1 || scale->shape[0] == heads))
        return COPES_OK;
    char text[COPES_SHAPE_TEXT];
    return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be (1) or (%lld)", call->info->name, scale->name,
                      copes_shape_text(scale->rank, scale->shape, text), (long long)heads);
}

/* The cache that a source of keys or values, (B, N, heads, features), goes to. */
static copes_status check_cache(const copes_call *call, const copes_tensor *source, const copes_tensor *cache,
                                int scale_slot)
{
    if (cache->dtype != source->dtype && !is_float8(cache->dtype))
        return copes_fail(COPES_ERROR_DTYPE, "%s: %s has type %s; it must be %s, as %s, float8_e4m3fn, or uint8",
                          call->info->name, cache->name, copes_dtype_name(cache->dtype),
                          copes_dtype_name(source->dtype), source->name);
    const int64_t heads = source->shape[2], features = source->shape[3];
    if (cache->rank != 4 || cache->shape[2] != heads || cache->shape[3] != features) {
        char text[COPES_SHAPE_TEXT];
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has shape %s; it must be (blocks, page, %lld, %lld)",
                          call->info->name, cache->name, copes_shape_text(cache->rank, cache->shape, text),
                          (long long)heads, (long long)features);
    }
    return check_scale(call, scale_slot, cache, heads);
}

/* Both caches have the same places. */
static copes_status check_alike(const copes_call *call)
{
    const copes_tensor *k = call->out[COPES_QK_K_CACHE], *v = call->out[COPES_QK_V_CACHE];
    const int64_t wanted[4] = {k->shape[0], k->shape[1], v->shape[2], v->shape[3]};
    COPES_TRY(copes_check_shape(call, v, 4, wanted, "with k_cache's blocks and page"));
    if (is_float8(k->dtype) == is_float8(v->dtype))
        return COPES_OK;
    return copes_fail(COPES_ERROR_DTYPE, "%s: v_cache has type %s; it must be %s, as k_cache", call->info->name,
                      copes_dtype_name(v->dtype), copes_dtype_name(k->dtype));
}

/* What must be absent without the cache that it is for. */
static copes_status check_strays(const copes_call *call)
{
    const bool keys = copes_present(call->out[COPES_QK_K_CACHE]), values = copes_present(call->out[COPES_QK_V_CACHE]);
    const struct {
        int slot;
        bool used;
        const char *cache;
    } strays[] = {{COPES_QK_SLOTS, keys || values, "k_cache and v_cache"},
                  {COPES_QK_K_SCALE, keys, "k_cache"},
                  {COPES_QK_V, values, "v_cache"},
                  {COPES_QK_V_SCALE, values, "v_cache"}};
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++)
        if (copes_present(call->in[strays[i].slot]) && !strays[i].used)
            return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: %s is given; without %s it must be NULL", call->info->name,
                              call->in[strays[i].slot]->name, strays[i].cache);
    return COPES_OK;
}

copes_status copes_qk_check_caches(copes_call *call)
{
    const copes_tensor *k_cache = call->out[COPES_QK_K_CACHE], *v_cache = call->out[COPES_QK_V_CACHE];
    const copes_tensor *q = call->in[COPES_QK_Q], *v = call->in[COPES_QK_V];
    const bool keys = copes_present(k_cache), values = copes_present(v_cache);
    COPES_TRY(check_strays(call));
    call->idle = q->shape[0] == 0 || q->shape[1] == 0;
    if (!keys && !values)
        return COPES_OK;
    COPES_TRY(check_slots(call));
    if (keys)
        COPES_TRY(check_cache(call, call->in[COPES_QK_K], k_cache, COPES_QK_K_SCALE));
    if (values) {
        COPES_TRY(copes_require(call, v, "v", "v_cache is written from it"));
        COPES_TRY(check_values(call));
        COPES_TRY(check_cache(call, v, v_cache, COPES_QK_V_SCALE));
    }
    return keys && values ? check_alike(call) : COPES_OK;
}
