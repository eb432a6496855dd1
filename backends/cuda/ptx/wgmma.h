/* wgmma (sm_90a): products by a warpgroup of four warps. Tensor cores read the second factor from shared memory.
 * Other targets have no such functions. */
#ifndef COPES_BACKENDS_CUDA_PTX_WGMMA_H
#define COPES_BACKENDS_CUDA_PTX_WGMMA_H

#include "backends/gpu/storage.h"

namespace COPES_GPU::ptx
{

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define COPES_SM90A 1
#else
#define COPES_SM90A 0
#endif

/* dec: the warpgroup gives registers away, down to COUNT for each thread. inc: it waits until each thread can have
 * COUNT. */
template <int COUNT> DEVICE void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> DEVICE void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* A matrix in shared memory as wgmma reads it (128-byte swizzle). Pieces of 64 columns lie `pieces` bytes apart. A
 * piece begins at a multiple of 1024 bytes. Its rows of 128 bytes follow each other. Their 16-byte chunks are
 * permuted as by tensor maps with CU_TENSOR_MAP_SWIZZLE_128B. */
struct matrix_descriptor {
    uint64_t descriptor;

    /* The mask drops an address's upper bits, which are the block's rank in its cluster. */
    __device__ __forceinline__ matrix_descriptor(uint32_t address, uint32_t pieces)
        : descriptor((uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(pieces >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
                     (uint64_t)1 << 62)
    {
    }

    /* The descriptor of the matrix that begins so many bytes later. */
    __device__ __forceinline__ uint64_t at(uint32_t bytes) const
    {
        return descriptor + (bytes >> 4);
    }
};

#if COPES_SM90A

/* Sums as operands of an instruction that changes them, and the operands' numbers in its text. */
#define COPES_SUMS_8(c, i)                                                                                             \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
        "+f"(c[i + 7])
#define COPES_SUMS_16(c, i) COPES_SUMS_8(c, i), COPES_SUMS_8(c, i + 8)
#define COPES_SUMS_32(c, i) COPES_SUMS_16(c, i), COPES_SUMS_16(c, i + 16)
#define COPES_SUMS_48(c, i) COPES_SUMS_32(c, i), COPES_SUMS_16(c, i + 32)
#define COPES_SUMS_64(c, i) COPES_SUMS_32(c, i), COPES_SUMS_32(c, i + 32)
#define COPES_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define COPES_PLACES_32                                                                                                \
    COPES_PLACES_16                                                                                                    \
    ", "                                                                                                               \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define COPES_PLACES_48                                                                                                \
    COPES_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define COPES_PLACES_64                                                                                                \
    COPES_PLACES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* c = a b^T, or with `add` c += a b^T, of 64 x 16 and 64 x 16 elements in shared memory. Lane 4 g + t of warp w has
 * of c:
 *   c[4 j + 2 h + i]   row 16 w + g + 8 h, column 8 j + 2t + i */
#define COPES_WGMMA_ABT_SS(TYPE, NAME)                                                                                 \
    DEVICE void wgmma_abt(float(&c)[32], uint64_t a, uint64_t b, bool add, TYPE)                                       \
    {                                                                                                                  \
        asm volatile(                                                                                                  \
            "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                                                         \
            "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" COPES_PLACES_32                           \
            "}, %32, %33, p, 1, 1, 0, 0;\n\t}"                                                                         \
            : COPES_SUMS_32(c, 0)                                                                                      \
            : "l"(a), "l"(b), "r"((int)add));                                                                          \
    }

/* c += a b, of 64 x 16 elements in registers and 16 x 64 or 128 in shared memory. Lane 4 g + t of warp w has c as
 * above, and of a, an element and the next column's in each word:
 *   a[0..3]   rows 16 w + g, 16 w + g + 8, 16 w + g, 16 w + g + 8   columns 2t, 2t, 2t + 8, 2t + 8
 * A caller makes a new a for each product: nvcc 13.0 overwrites an a that stays in registers from one iteration of a
 * loop to the next. */
#define COPES_WGMMA_AB_RS(SUMS, COLUMNS, FACTORS, TYPE, NAME)                                                          \
    DEVICE void wgmma_ab(float(&c)[SUMS], const uint32_t(&a)[4], uint64_t b, TYPE)                                     \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." NAME "." NAME " {" COPES_PLACES_##SUMS     \
                     "}, " FACTORS ", 1, 1, 1, 1;"                                                                     \
                     : COPES_SUMS_##SUMS(c, 0)                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }

#define COPES_WGMMA_PRODUCTS(TYPE, NAME)                                                                               \
    COPES_WGMMA_ABT_SS(TYPE, NAME)                                                                                     \
    COPES_WGMMA_AB_RS(32, "64", "{%32, %33, %34, %35}, %36", TYPE, NAME)                                               \
    COPES_WGMMA_AB_RS(64, "128", "{%64, %65, %66, %67}, %68", TYPE, NAME)

COPES_WGMMA_PRODUCTS(bf16, "bf16")
COPES_WGMMA_PRODUCTS(f16, "f16")

/* c = a b^T, or with `add` c += a b^T, of 64 x 16 elements in registers, as above, and 32, 64 or 96 x 16 in shared
 * memory. */
#define COPES_WGMMA_ABT_RS(SUMS, COLUMNS, FACTORS, ADD)                                                                \
    DEVICE void wgmma_abt(float(&c)[SUMS], const uint32_t(&a)[4], uint64_t b, bool add)                                \
    {                                                                                                                  \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " ADD                                                       \
                     ", 0;\n\t"                                                                                        \
                     "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32.bf16.bf16 {" COPES_PLACES_##SUMS             \
                     "}, " FACTORS ", p, 1, 1, 0;\n\t}"                                                                \
                     : COPES_SUMS_##SUMS(c, 0)                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));                             \
    }

COPES_WGMMA_ABT_RS(16, "32", "{%16, %17, %18, %19}, %20", "%21")
COPES_WGMMA_ABT_RS(32, "64", "{%32, %33, %34, %35}, %36", "%37")
COPES_WGMMA_ABT_RS(48, "96", "{%48, %49, %50, %51}, %52", "%53")

/* Orders the thread's writes to registers before products that read them. */
DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The compiler must not read the sums before this point. */
template <int N> DEVICE void pin_registers(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i]));
}

/* Waits until all products that have begun are complete. Their sums may be read then. */
template <typename... Sums> DEVICE void wgmma_commit_and_wait(Sums &...sums)
{
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    (pin_registers(sums), ...);
}

#endif

} // namespace COPES_GPU::ptx

#endif
