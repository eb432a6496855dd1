/* Elements in memory and in registers: the storage types, 16-byte vectors of them, and single elements at any
 * address. */
#ifndef COPES_BACKENDS_GPU_STORAGE_H
#define COPES_BACKENDS_GPU_STORAGE_H

#include "vendor.h"

#include "common/problem.h"

#include <string.h>

namespace COPES_GPU
{

typedef float f32;
struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};

/* A type of 16 bits, for rows that are whole vectors of 8 bytes, and not of 16: of 72 features, say, which turn as 36 pairs. */
template <typename T> struct narrow : T {
};

/* A storage type that is known at run time. One kernel of single elements then serves all types. */
struct any_type {
};

/* Elements of the widest access. */
template <typename T> inline constexpr int vector_length = 16 / (int)sizeof(T);
template <typename T> inline constexpr int vector_length<narrow<T>> = 8 / (int)sizeof(T);
template <> inline constexpr int vector_length<any_type> = 1;

template <typename T> inline constexpr bool is_narrow = false;
template <typename T> inline constexpr bool is_narrow<narrow<T>> = true;

template <typename T> struct storage;

/* unpack, pack: the elements of a word. larger: the larger element at each place of two words; where one is NaN, it is the other.
 * magnitudes: those of a word's elements. */
template <> struct storage<f32> {
    static constexpr copes_dtype dtype = COPES_F32;
    static constexpr int per_word = 1;
    DEVICE void unpack(uint32_t word, float *x)
    {
        x[0] = __uint_as_float(word);
    }
    DEVICE uint32_t pack(const float *x)
    {
        return __float_as_uint(x[0]);
    }
    DEVICE uint32_t larger(uint32_t a, uint32_t b)
    {
        return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
    }
    DEVICE uint32_t magnitudes(uint32_t word)
    {
        return __float_as_uint(fabsf(__uint_as_float(word)));
    }
};

template <> struct storage<bf16> {
    static constexpr copes_dtype dtype = COPES_BF16;
    static constexpr int per_word = 2;
    DEVICE void unpack(uint32_t word, float *x)
    {
        x[0] = __uint_as_float(word << 16);
        x[1] = __uint_as_float(word & 0xffff0000u);
    }
    DEVICE uint32_t pack(const float *x)
    {
        return pack_bf16(x[0], x[1]);
    }
    DEVICE uint32_t larger(uint32_t a, uint32_t b)
    {
        return larger_bf16(a, b);
    }
    DEVICE uint32_t magnitudes(uint32_t word)
    {
        return magnitudes_bf16(word);
    }
};

template <> struct storage<f16> {
    static constexpr copes_dtype dtype = COPES_F16;
    static constexpr int per_word = 2;
    DEVICE void unpack(uint32_t word, float *x)
    {
        const float2 pair = unpack_f16(word);
        x[0] = pair.x;
        x[1] = pair.y;
    }
    DEVICE uint32_t pack(const float *x)
    {
        return pack_f16(x[0], x[1]);
    }
    DEVICE uint32_t larger(uint32_t a, uint32_t b)
    {
        return larger_f16(a, b);
    }
    DEVICE uint32_t magnitudes(uint32_t word)
    {
        return magnitudes_f16(word);
    }
};

template <typename T> struct storage<narrow<T>> : storage<T> {
};

/* The larger magnitudes of two words; `most` holds magnitudes already. */
template <typename T> DEVICE uint32_t larger_magnitude(uint32_t most, uint32_t word)
{
    return storage<T>::larger(most, storage<T>::magnitudes(word));
}

/* V elements as they lie in memory: a vector, half a vector or, with V = 1, one element at any address. They are
 * unpacked later, so that nothing waits for a load that is under way. */
template <typename T, int V> struct raw {
    static constexpr int WORDS = V * (int)sizeof(T) / 4, N = storage<T>::per_word;
    static_assert(WORDS == 4 || WORDS == 2, "a vector is 16 or 8 bytes");
    typedef std::conditional_t<WORDS == 4, uint4, uint2> access;
    access words;

    DEVICE raw read(const T *p)
    {
        return {*reinterpret_cast<const access *>(p)};
    }
    __device__ __forceinline__ void unpack(float (&x)[V]) const
    {
        storage<T>::unpack(words.x, x);
        storage<T>::unpack(words.y, x + N);
        if constexpr (WORDS == 4) {
            storage<T>::unpack(words.z, x + 2 * N);
            storage<T>::unpack(words.w, x + 3 * N);
        }
    }
    /* The largest elements at each place of `most` and of all words. */
    __device__ __forceinline__ uint32_t largest(uint32_t most) const
    {
        most = storage<T>::larger(most, storage<T>::larger(words.x, words.y));
        if constexpr (WORDS == 4)
            most = storage<T>::larger(most, storage<T>::larger(words.z, words.w));
        return most;
    }
    /* The same of magnitudes. */
    __device__ __forceinline__ uint32_t largest_magnitude(uint32_t most) const
    {
        most = larger_magnitude<T>(larger_magnitude<T>(most, words.x), words.y);
        if constexpr (WORDS == 4)
            most = larger_magnitude<T>(larger_magnitude<T>(most, words.z), words.w);
        return most;
    }
    DEVICE raw pack(const float (&x)[V])
    {
        raw packed;
        packed.words.x = storage<T>::pack(x);
        packed.words.y = storage<T>::pack(x + N);
        if constexpr (WORDS == 4) {
            packed.words.z = storage<T>::pack(x + 2 * N);
            packed.words.w = storage<T>::pack(x + 3 * N);
        }
        return packed;
    }
    DEVICE void write(T *p, const float (&x)[V])
    {
        write_words(p, pack(x).words);
    }
};

/* An object at an address of any alignment. With UNALIGNED_ACCESS the hardware takes every address. */
template <typename Object> DEVICE Object read_anywhere(const void *p)
{
    if (!UNALIGNED_ACCESS && reinterpret_cast<uintptr_t>(p) % sizeof(Object) == 0)
        return *static_cast<const Object *>(p);
    Object object;
    if (UNALIGNED_ACCESS) {
        memcpy(&object, p, sizeof object);
        return object;
    }
    for (int i = 0; i < (int)sizeof object; i++)
        reinterpret_cast<char *>(&object)[i] = static_cast<const char *>(p)[i];
    return object;
}

template <typename Object> DEVICE void write_anywhere(void *p, Object object)
{
    if (UNALIGNED_ACCESS) {
        memcpy(p, &object, sizeof object);
        return;
    }
    if (reinterpret_cast<uintptr_t>(p) % sizeof(Object) == 0) {
        *static_cast<Object *>(p) = object;
        return;
    }
    for (int i = 0; i < (int)sizeof object; i++)
        static_cast<char *>(p)[i] = reinterpret_cast<const char *>(&object)[i];
}

template <typename T> struct raw<T, 1> {
    T element;

    DEVICE raw read(const T *p)
    {
        return {read_anywhere<T>(p)};
    }
    __device__ __forceinline__ uint32_t word() const
    {
        uint32_t word = 0;
        memcpy(&word, &element, sizeof element);
        return word;
    }
    __device__ __forceinline__ void unpack(float (&x)[1]) const
    {
        float both[2];
        storage<T>::unpack(word(), both);
        x[0] = both[0];
    }
    __device__ __forceinline__ uint32_t largest(uint32_t most) const
    {
        return storage<T>::larger(most, storage<T>::per_word == 2 ? word() * 0x10001u : word());
    }
    __device__ __forceinline__ uint32_t largest_magnitude(uint32_t most) const
    {
        return larger_magnitude<T>(most, word());
    }
    DEVICE raw pack(const float (&x)[1])
    {
        const float both[2] = {x[0], 0};
        const uint32_t word = storage<T>::pack(both);
        raw narrow;
        memcpy(&narrow.element, &word, sizeof narrow.element);
        return narrow;
    }
    DEVICE void write(T *p, const float (&x)[1])
    {
        write_anywhere(p, pack(x).element);
    }
};

/* The larger of a word's elements. */
template <typename T> DEVICE float largest_of_word(uint32_t word)
{
    float both[2] = {-INFINITY, -INFINITY};
    storage<T>::unpack(word, both);
    return fmaxf(both[0], both[1]);
}

/* One element, whatever its address. */
template <typename T> DEVICE float read_scalar(const T *p)
{
    float x[1];
    raw<T, 1>::read(p).unpack(x);
    return x[0];
}

template <typename T> DEVICE void write_scalar(T *p, float value)
{
    const float x[1] = {value};
    raw<T, 1>::write(p, x);
}

/* A place among elements of a type that is known at run time; steps are counted in elements. */
struct any_pointer {
    char *byte;
    copes_dtype dtype;

    __device__ __forceinline__ any_pointer operator+(int64_t elements) const
    {
        return {byte + (dtype == COPES_F32 ? 4 : 2) * elements, dtype};
    }
    __device__ __forceinline__ operator const void *() const
    {
        return byte;
    }
};

template <> struct raw<any_type, 1> {
    uint32_t word;
    copes_dtype dtype;

    DEVICE raw read(any_pointer p)
    {
        return {p.dtype == COPES_F32 ? read_anywhere<uint32_t>(p.byte) : read_anywhere<uint16_t>(p.byte), p.dtype};
    }
    __device__ __forceinline__ void unpack(float (&x)[1]) const
    {
        float both[2];
        switch (dtype) {
        case COPES_F16: storage<f16>::unpack(word, both); break;
        case COPES_BF16: storage<bf16>::unpack(word, both); break;
        default: storage<f32>::unpack(word, both);
        }
        x[0] = both[0];
    }
    DEVICE raw pack(copes_dtype dtype, float x)
    {
        const float both[2] = {x, 0};
        switch (dtype) {
        case COPES_F16: return {storage<f16>::pack(both), dtype};
        case COPES_BF16: return {storage<bf16>::pack(both), dtype};
        default: return {storage<f32>::pack(both), dtype};
        }
    }
    DEVICE void write(any_pointer p, const float (&x)[1])
    {
        const uint32_t word = pack(p.dtype, x[0]).word;
        if (p.dtype == COPES_F32)
            write_anywhere(p.byte, word);
        else
            write_anywhere(p.byte, (uint16_t)word);
    }
};

DEVICE float read_scalar(any_pointer p)
{
    float x[1];
    raw<any_type, 1>::read(p).unpack(x);
    return x[0];
}

DEVICE void write_scalar(any_pointer p, float value)
{
    const float x[1] = {value};
    raw<any_type, 1>::write(p, x);
}

/* One element of theta, by branches, as registers are few where it is read. */
DEVICE float read_narrow(copes_dtype dtype, const void *base, int64_t at)
{
    switch (dtype) {
    case COPES_F16: return read_scalar(static_cast<const f16 *>(base) + at);
    case COPES_BF16: return read_scalar(static_cast<const bf16 *>(base) + at);
    default: return read_scalar(static_cast<const f32 *>(base) + at);
    }
}

/* The number that an element of a type would hold. */
DEVICE float round_to(copes_dtype dtype, float value)
{
    float x[1];
    raw<any_type, 1>::pack(dtype, value).unpack(x);
    return x[0];
}

/* Where a tensor's elements begin. */
template <typename T> DEVICE auto elements_of(const copes_view &view, [[maybe_unused]] copes_dtype dtype)
{
    if constexpr (std::is_same_v<T, any_type>)
        return any_pointer{static_cast<char *>(view.data), dtype};
    else
        return static_cast<T *>(view.data);
}

template <typename T> using element_pointer = decltype(elements_of<T>(copes_view(), COPES_F32));

/* The view with an aligned address, if the tensor is present: for decisions that must depend on strides alone. */
inline copes_view aligned(copes_view view)
{
    if (view.data != nullptr)
        view.data = reinterpret_cast<void *>(16);
    return view;
}

/* May a tensor be read and written in whole vectors, of `vector` elements and `bytes`? Its last dimension must then be contiguous, its
 * address aligned to a vector, and every other stride a whole number of vectors. A dimension of length 1 may have any stride. */
inline bool in_vectors(const copes_view &view, const int64_t *lengths, int rank, int vector, uintptr_t bytes = 16)
{
    if (view.data == nullptr)
        return true;
    bool fits = reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
    for (int i = 0; i < rank; i++)
        fits = fits && (lengths[i] == 1 || (i == rank - 1 ? view.stride[i] == 1 : view.stride[i] % vector == 0));
    return fits;
}

template <typename T> inline bool in_vectors(const copes_view &view, const int64_t *lengths, int rank)
{
    return in_vectors(view, lengths, rank, vector_length<T>, vector_length<T> * sizeof(T));
}

} // namespace COPES_GPU

#endif
