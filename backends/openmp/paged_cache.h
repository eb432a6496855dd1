/* A paged cache of keys or values: where a token's heads go, and rows on their way there. */
#ifndef COPES_BACKENDS_OPENMP_PAGED_CACHE_H
#define COPES_BACKENDS_OPENMP_PAGED_CACHE_H

#include "backends/openmp/blocks.h"
#include "common/float8.h"

/* A token's place in a cache, of its heads' rows; without data where there is none. */
static inline copes_view cache_place(const copes_qk_problem *problem, const copes_qk_cache *cache, block_place at)
{
    const copes_view *slots = &problem->slots;
    copes_view place = cache->data;
    int64_t slot;
    if (place.data == NULL)
        return place;
    memcpy(&slot, (const char *)slots->data + (at.b * slots->stride[0] + at.n * slots->stride[1]) * 8, sizeof slot);
    if (slot < 0 || problem->page == 0 || slot / problem->page >= problem->blocks)
        return (copes_view){0};
    place.data =
        (char *)place.data + (slot / problem->page * place.stride[0] + slot % problem->page * place.stride[1]) *
                                 copes_dtype_size(problem->cache_dtype);
    return place;
}

/* A head's divisor of float8. */
static inline real cache_scale(const copes_qk_cache *cache, int64_t head)
{
    const char *scale = cache->scale.data;
    return scale == NULL ? 1 : (real)copes_load_narrow(COPES_F32, scale + head * cache->scale.stride[0] * 4);
}

/* A double passes through a float that has an odd last bit where it is not exact, so that rounding it once more is as
 * rounding once. */
static inline uint8_t float8_of(real value)
{
    float narrow = (float)value;
#ifdef COPES_TYPE_F64
    if (value == value && (double)narrow != value) {
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        bits = (bits - (fabs((double)narrow) > fabs(value))) | 1;
        memcpy(&narrow, &bits, sizeof bits);
    }
#endif
    return copes_float8_of(narrow);
}

/* The first `count` features of a pair of vectors, divided by their head's scale. */
static inline void store_float8(const real part[PAIR], real scale, uint8_t *to, int64_t stride, int64_t count)
{
    uint32_t narrow[PAIR]; /* as wide as what a vector's lanes compute it from */
    for (int i = 0; i < PAIR; i++)
        narrow[i] = float8_of(part[i] / scale);
    for (int64_t i = 0; i < count; i++)
        to[i * stride] = (uint8_t)narrow[split_place(i)];
}

/* A row of reals, in the layout's order. */
static inline void write_float8(const row_layout *layout, const real *y, real scale, uint8_t *to, int64_t stride)
{
    for (int part = 0; part < layout->parts; part++) {
        const int64_t begin = layout->begin[part], count = layout->begin[part + 1] - begin;
        for (int64_t i = 0; i < count; i += PAIR)
            store_float8(y + layout->at[part] + i, scale, to + (begin + i) * stride, stride,
                         count - i < PAIR ? count - i : PAIR);
    }
}

/* A head's values. */
static inline void copy_value(const storage *v, int64_t stride, storage *to, int64_t to_stride, int64_t count)
{
    if (stride == 1 && to_stride == 1)
        memcpy((void *)to, (const void *)v, (size_t)count * sizeof *v);
    else
        for (int64_t i = 0; i < count; i++)
            memcpy((void *)(to + i * to_stride), (const void *)(v + i * stride), sizeof *v);
}

static inline void narrow_value(const storage *v, int64_t stride, real scale, uint8_t *to, int64_t to_stride,
                                int64_t count)
{
    for (int64_t i = 0; i < count; i += PAIR) {
        const int64_t left = count - i < PAIR ? count - i : PAIR;
        storage line[PAIR] = {0};
        real part[PAIR];
        gather(v + i * stride, stride, line, left);
        store_real_pair(part, load_split(line));
        store_float8(part, scale, to + i * to_stride, to_stride, left);
    }
}

/* A token's values, of all heads. */
static NOINLINE void store_values(const copes_qk_problem *problem, block_place at)
{
    const copes_qk_cache *cache = &problem->v_cache;
    const copes_view place = cache_place(problem, cache, at);
    for (at.h = 0; at.h < problem->v_heads && place.data != NULL; at.h++) {
        const storage *v = (const storage *)problem->v.data + view_at(&problem->v, at);
        const int64_t stride = problem->v.stride[3], to = at.h * place.stride[2];
        if (problem->cache_dtype != COPES_F8_E4M3) {
            copy_value(v, stride, (storage *)place.data + to, place.stride[3], problem->e);
            continue;
        }
        narrow_value(v, stride, cache_scale(cache, at.h), (uint8_t *)place.data + to, place.stride[3], problem->e);
    }
}

#endif
