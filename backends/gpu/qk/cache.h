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
    cache_rows keys, values;
    lrpe::tensor_rows v;
    divider vectors, heads; /* of a head of v, and of a token */
};

/* The slot of a token; -1 where it has none in the cache. */
DEVICE int find_slot(const cache_arguments &cache, const lrpe::block_place &place)
{
    const int64_t slot = cache.slots[place.entry * cache.slot_entry + place.token * cache.slot_token];
    return (uint64_t)slot < (uint64_t)cache.places ? (int)slot : -1;
}

/* The first element of a head in a slot's place. */
DEVICE int64_t find_cached(const cache_arguments &cache, const cache_rows &rows, int slot, int head)
{
    uint32_t place;
    const uint32_t block = divide((uint32_t)slot, cache.page, &place);
    return block * rows.block + place * rows.place + head * rows.head;
}

template <int V> struct float_vector {
    float x[V];
};

/* Stores a vector as float8, divided by its head's scale. It is no part of its caller, most of which have no such cache. */
template <int V> OUT_OF_LINE void write_float8(uint8_t *to, float_vector<V> vector, float scale)
{
    uint32_t words[V / 4];
#pragma unroll
    for (int i = 0; i < V; i += 4) {
        float four[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            four[j] = scale == 1 ? vector.x[i + j] : vector.x[i + j] / scale;
        words[i / 4] = pack_float8(four);
    }
    if constexpr (V == 8)
        *reinterpret_cast<uint2 *>(to) = make_uint2(words[0], words[1]);
    else
        *reinterpret_cast<uint32_t *>(to) = words[0];
}

/* Stores a vector of features from `place` on of a head, in a slot. */
template <typename T, int V>
DEVICE void write_cached(const cache_arguments &cache, const cache_rows &rows, int slot, int head, int place,
                         const float (&x)[V])
{
    const int64_t at = find_cached(cache, rows, slot, head) + place;
    if (!cache.float8) {
        raw<T, V>::write(static_cast<T *>(rows.data) + at, x);
        return;
    }
    float_vector<V> vector;
#pragma unroll
    for (int i = 0; i < V; i++)
        vector.x[i] = x[i];
    write_float8(static_cast<uint8_t *>(rows.data) + at, vector,
                 rows.scale == nullptr ? 1 : rows.scale[head * rows.scale_step]);
}

/* A vector of v on its way to the cache. */
template <typename T> struct cached_vector {
    static constexpr int V = vector_length<T>;
    raw<T, V> words;
    int slot, head, place;

    /* Vector `index` of a block's tokens, of which the last is `left` after place.token; slot is -1 past it. */
    DEVICE cached_vector read(const cache_arguments &cache, lrpe::block_place place, int left, uint32_t index)
    {
        uint32_t vector, head;
        const int token = (int)divide(divide(index, cache.vectors, &vector), cache.heads, &head);
        if (token > left)
            return {{}, -1, 0, 0};
        place.head = (int)head;
        place.token += token;
        const T *const row = lrpe::first_row<const T>(cache.v, place);
        return {raw<T, V>::read(row + vector * V), find_slot(cache, place), (int)head, (int)vector * V};
    }
    __device__ __forceinline__ void write(const cache_arguments &cache) const
    {
        float x[V];
        if (slot < 0)
            return;
        words.unpack(x);
        write_cached<T>(cache, cache.values, slot, head, place, x);
    }
};

} // namespace COPES_GPU::qk

#endif
