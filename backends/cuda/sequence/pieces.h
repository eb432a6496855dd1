/* Pieces: 16 bytes of elements, in four words. They are converted to numbers and back, and compared as they are. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_PIECES_H
#define COPES_BACKENDS_CUDA_SEQUENCE_PIECES_H

#include "backends/gpu/storage.h"

namespace COPES_GPU::sequence
{

template <typename T> DEVICE void unpack16(uint4 words, float *x)
{
    constexpr int n = storage<T>::per_word;
    storage<T>::unpack(words.x, x);
    storage<T>::unpack(words.y, x + n);
    storage<T>::unpack(words.z, x + 2 * n);
    storage<T>::unpack(words.w, x + 3 * n);
}

template <typename T> DEVICE uint4 pack16(const float *x)
{
    constexpr int n = storage<T>::per_word;
    return make_uint4(storage<T>::pack(x), storage<T>::pack(x + n), storage<T>::pack(x + 2 * n),
                      storage<T>::pack(x + 3 * n));
}

/* Two elements of 16 bits in a word. */
template <typename T> using packed_of = std::conditional_t<storage<T>::dtype == COPES_F16, __half2, __nv_bfloat162>;

template <typename T> DEVICE packed_of<T> as_packed(const uint32_t &word)
{
    return *reinterpret_cast<const packed_of<T> *>(&word);
}

/* Not 0 if an element of a is larger than that of b. */
template <typename T> DEVICE uint32_t exceeds(uint32_t a, uint32_t b)
{
    if constexpr (storage<T>::dtype == COPES_F32)
        return __uint_as_float(a) > __uint_as_float(b);
    else
        return __hgt2_mask(as_packed<T>(a), as_packed<T>(b));
}

template <typename T> DEVICE uint4 larger16(uint4 a, uint4 b)
{
    return make_uint4(storage<T>::larger(a.x, b.x), storage<T>::larger(a.y, b.y), storage<T>::larger(a.z, b.z),
                      storage<T>::larger(a.w, b.w));
}

template <typename T> DEVICE uint32_t exceeds16(uint4 a, uint4 b)
{
    return exceeds<T>(a.x, b.x) | exceeds<T>(a.y, b.y) | exceeds<T>(a.z, b.z) | exceeds<T>(a.w, b.w);
}

} // namespace COPES_GPU::sequence

#endif
