/* Loads and stores of shared memory by its 32-bit address, and stores to global memory under a predicate. */
#ifndef COPES_BACKENDS_CUDA_PTX_MEMORY_H
#define COPES_BACKENDS_CUDA_PTX_MEMORY_H

#include "vendor.h"

namespace COPES_GPU::ptx
{

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The object at an address of dynamic shared memory. */
template <typename Object> DEVICE Object *at_shared(uint32_t address)
{
    return reinterpret_cast<Object *>(dynamic_shared() + (address - shared_address(dynamic_shared())));
}

DEVICE uint32_t ld_shared_16(uint32_t address)
{
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
    return value;
}

DEVICE uint32_t ld_shared_32(uint32_t address)
{
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

DEVICE uint4 ld_shared_128(uint32_t address)
{
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(address));
    return words;
}

/* 16 bytes whose halves lie apart. */
DEVICE uint4 ld_shared_128(uint32_t first, uint32_t second)
{
    uint4 words;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(first));
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.z), "=r"(words.w) : "r"(second));
    return words;
}

/* Reads as many words as the array has. */
DEVICE void ld_shared(uint32_t (&words)[4], uint32_t address)
{
    const uint4 four = ld_shared_128(address);
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

DEVICE void ld_shared(uint32_t (&words)[2], uint32_t address)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address));
}

DEVICE void st_shared_32(uint32_t address, uint32_t value)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

DEVICE void st_shared_128(uint32_t address, uint4 words)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
}

/* Predicated stores to global memory. A branch would make lanes of a warp wait for each other. */
DEVICE void st_global_if(bool predicate, void *address, uint4 words)
{
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
        "@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n\t}" ::"l"(address),
        "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"((uint32_t)predicate)
        : "memory");
}

DEVICE void st_global_if(bool predicate, void *address, uint32_t first, uint32_t second)
{
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
        "@p st.global.v2.u32 [%0], {%1, %2};\n\t}" ::"l"(address),
        "r"(first), "r"(second), "r"((uint32_t)predicate)
        : "memory");
}

} // namespace COPES_GPU::ptx

#endif
