/* The paged cache: where a token's keys and values go, and how they are stored. */
#ifndef COPES_BACKENDS_GPU_QK_CACHE_H
#define COPES_BACKENDS_GPU_QK_CACHE_H

#include "float8.h"

#include "backends/gpu/divide.h"
#include "backends/gpu/lrpe/rows.h"
namespace COPES_GPU::qk
{

/* The cache of keys or of values, whose strides are in elements; without data there is none. */
struct cache_rows {
    void *data;
    int64_t block, place, head;
    const float *scale; /* of float8; nullptr: 1 */
    int64_t scale_step;
};

struct cache_arguments {
    const int64_t *slots; /* nullptr: there is no cache */
    int64_t slot_entry, slot_token;
    int64_t places; /* of all blocks */
    divider page;
    bool float8;
};

/* A choice between values, as between the sides in rows.h. */
DEVICE cache_rows choose_cache(bool second, const cache_rows &a, const cache_rows &b)
{
    return {second ? b.data : a.data, second ? b.block : a.block, second ? b.place : a.place,
            second ? b.head : a.head, second ? b.scale : a.scale, second ? b.scale_step : a.scale_step};
}

/* The slot of a token; -1 where it has none in the cache. */
DEVICE int find_slot(const cache_arguments &cache, const lrpe::block_place &place)
{
    if (cache.slots == nullptr)
        return -1;
    const int64_t slot = cache.slots[place.entry * cache.slot_entry + place.token * cache.slot_token];
    return (uint64_t)slot < (uint64_t)cache.places ? (int)slot : -1;
}

/* The first element of a slot's place. */
DEVICE int64_t find_cached(const cache_arguments &cache, const cache_rows &rows, int slot)
{
    uint32_t place;
    const uint32_t block = divide((uint32_t)slot, cache.page, &place);
    return block * rows.block + place * rows.place;
}

/* Division by a head's scale, to the same bits as `x / scale` and without its branches: Markstein, Computation of elementary
 * functions on the IBM RISC System/6000 processor (1990). `factor` keeps what follows in the normal range. */
struct scale_divider {
    float factor, divisor, reciprocal;

    __device__ __forceinline__ explicit scale_divider(float scale)
        : factor(fabsf(scale) < 0x1p-64f  ? 0x1p64f
                 : fabsf(scale) > 0x1p64f ? 0x1p-64f
                                          : 1),
          divisor(scale * factor), reciprocal(1 / divisor)
    {
    }
    __device__ __forceinline__ float divide(float x) const
    {
        x *= factor;
        const float near = x * reciprocal, rest = fmaf(-near, divisor, x);
        /* of zeros and infinities, `near` alone has the value */
        return fabsf(rest) > 0 && fabsf(near) < INFINITY ? fmaf(rest, reciprocal, near) : near;
    }
};

/* Stores a vector of a head, from feature `at` on. `scale`: of its float8. */
template <typename T, int V>
DEVICE void write_cached(const cache_arguments &cache, char *head, int at, float scale, const float (&x)[V])
{
    if (!cache.float8) {
        raw<T, V>::write(reinterpret_cast<T *>(head) + at, x);
        return;
    }
    float stored[V];
#pragma unroll
    for (int j = 0; j < V; j++)
        stored[j] = x[j];
    if (scale != 1) {
        const scale_divider by(scale);
#pragma unroll
        for (int j = 0; j < V; j++)
            stored[j] = by.divide(x[j]);
    }
    uint32_t words[V / 4];
#pragma unroll
    for (int i = 0; i < V; i += 4)
        words[i / 4] = pack_float8(reinterpret_cast<const float(&)[4]>(stored[i]));
    if constexpr (V == 8)
        write_words(head + at, make_uint2(words[0], words[1]));
    else
        *reinterpret_cast<uint32_t *>(head + at) = words[0];
}

/* A head in a slot. */
struct cached_head {
    char *data;
    float scale; /* of its float8 */

    template <typename T>
    static __device__ __forceinline__ cached_head find(const cache_arguments &cache, const cache_rows &rows, int slot,
                                                       int head)
    {
        const int64_t size = cache.float8 ? 1 : (int)sizeof(T);
        return {static_cast<char *>(rows.data) + (find_cached(cache, rows, slot) + head * rows.head) * size,
                !cache.float8 || rows.scale == nullptr ? 1 : rows.scale[head * rows.scale_step]};
    }
};

/* Stores both vectors of a unit of a head. */
template <typename T, int V>
DEVICE void write_cached_head(const cache_arguments &cache, const cache_rows &rows, int slot, int head,
                              const int (&place)[2], const float (&y)[2][V])
{
    const cached_head to = cached_head::find<T>(cache, rows, slot, head);
    write_cached<T>(cache, to.data, place[0], to.scale, y[0]);
    write_cached<T>(cache, to.data, place[1], to.scale, y[1]);
}

} // namespace COPES_GPU::qk

#endif
