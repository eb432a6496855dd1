/* Hopper's own instructions (sm_90a): products of a warpgroup, that is of four warps, whose second factor tensor cores
 * read from shared memory, and copies of boxes of a tensor that one thread starts. Other targets leave them out. */
#ifndef COPES_BACKENDS_CUDA_WGMMA_H
#define COPES_BACKENDS_CUDA_WGMMA_H

#include "backends/cuda/mma.h"

#include <cuda.h>

namespace COPES_GPU
{

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define COPES_SM90A 1
#else
#define COPES_SM90A 0
#endif

/* Brings a tensor's description near. */
DEVICE void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Where a box begins in a tensor, the innermost axis first. */
struct box_place {
    int w, x, y, z;
};

/* Starts to copy a box of a tensor to shared memory, and tells the barrier when its bytes have come. Places outside of the
 * tensor come as zeros. */
DEVICE void copy_box(uint32_t to, const CUtensorMap *map, const box_place &at, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(map), "r"(at.w), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
        : "memory");
}

/* The same with bytes that follow each other, in sixteens. */
DEVICE void copy_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* What this thread wrote to shared memory comes before what tensor cores and copies do with it. */
DEVICE void fence_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A matrix in shared memory as products take it: pieces of 64 columns, whose rows of 128 bytes follow each other, with
 * their 16-byte chunks permuted as boxes come, from a multiple of 1024 bytes on; `pieces` bytes apart. */
struct shared_matrix {
    uint64_t descriptor;

    /* An address's upper bits tell the block of the cluster. */
    __device__ __forceinline__ shared_matrix(uint32_t address, uint32_t pieces)
        : descriptor((uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(pieces >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
                     (uint64_t)1 << 62)
    {
    }

    /* From so many bytes on. */
    __device__ __forceinline__ uint64_t at(uint32_t bytes) const
    {
        return descriptor + (bytes >> 4);
    }
};

/* Copies bytes, in sixteens, to the shared memory of a block of the cluster, and tells its mailbox when they are there;
 * both addresses are as they are here. */
DEVICE void send_bytes(uint32_t to, uint32_t from, uint32_t bytes, uint32_t mailbox, uint32_t rank)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     in_rank(to, rank)),
                 "r"(from), "r"(bytes), "r"(in_rank(mailbox, rank))
                 : "memory");
}

/* A warpgroup gives registers away, until each thread has so many, or waits until it can have so many. */
template <int EACH> DEVICE void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(EACH));
}

template <int EACH> DEVICE void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(EACH));
}

#if COPES_SM90A

/* Sums as operands of an instruction that changes them, and their places in its text. */
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

/* c = a b^T, or c += a b^T, of 64 x 16 and 64 x 16 elements in shared memory. Lane 4 g + t of warp w has c[4 j + 2 h + i]: row
 * 16 w + g + 8 h, column 8 j + 2t + i. */
#define COPES_MULTIPLY_COLUMNS(TYPE, NAME)                                                                             \
    DEVICE void multiply_columns(float(&c)[32], uint64_t a, uint64_t b, bool add, TYPE)                                \
    {                                                                                                                  \
        asm volatile(                                                                                                  \
            "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                                                         \
            "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" COPES_PLACES_32                           \
            "}, %32, %33, p, 1, 1, 0, 0;\n\t}"                                                                         \
            : COPES_SUMS_32(c, 0)                                                                                      \
            : "l"(a), "l"(b), "r"((int)add));                                                                          \
    }

/* c += a b, of 64 x 16 elements and 16 x 64 or 128 in shared memory. The lane has of a rows 16 w + g, + 8, + 0, + 8 and
 * columns 2t, 2t, 2t + 8, 2t + 8 and the next. It is a new a each time: one that stays in registers from turn to turn of a loop
 * is overwritten in code of nvcc 13.0. */
#define COPES_MULTIPLY_ROWS(SUMS, COLUMNS, FACTORS, TYPE, NAME)                                                        \
    DEVICE void multiply_rows(float(&c)[SUMS], const uint32_t(&a)[4], uint64_t b, TYPE)                                \
    {                                                                                                                  \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." NAME "." NAME " {" COPES_PLACES_##SUMS     \
                     "}, " FACTORS ", 1, 1, 1, 1;"                                                                     \
                     : COPES_SUMS_##SUMS(c, 0)                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }

#define COPES_PRODUCTS(TYPE, NAME)                                                                                     \
    COPES_MULTIPLY_COLUMNS(TYPE, NAME)                                                                                 \
    COPES_MULTIPLY_ROWS(32, "64", "{%32, %33, %34, %35}, %36", TYPE, NAME)                                             \
    COPES_MULTIPLY_ROWS(64, "128", "{%64, %65, %66, %67}, %68", TYPE, NAME)

COPES_PRODUCTS(bf16, "bf16")
COPES_PRODUCTS(f16, "f16")

/* c = a b^T, or c += a b^T, of 64 x 16 elements in registers, as above, and 32, 64 or 96 x 16 in shared memory. */
#define COPES_MULTIPLY_BY_COLUMNS(SUMS, COLUMNS, FACTORS, ADD)                                                         \
    DEVICE void multiply_columns(float(&c)[SUMS], const uint32_t(&a)[4], uint64_t b, bool add)                         \
    {                                                                                                                  \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " ADD                                                       \
                     ", 0;\n\t"                                                                                        \
                     "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32.bf16.bf16 {" COPES_PLACES_##SUMS             \
                     "}, " FACTORS ", p, 1, 1, 0;\n\t}"                                                                \
                     : COPES_SUMS_##SUMS(c, 0)                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));                             \
    }

COPES_MULTIPLY_BY_COLUMNS(16, "32", "{%16, %17, %18, %19}, %20", "%21")
COPES_MULTIPLY_BY_COLUMNS(32, "64", "{%32, %33, %34, %35}, %36", "%37")
COPES_MULTIPLY_BY_COLUMNS(48, "96", "{%48, %49, %50, %51}, %52", "%53")

/* Registers that products are to take are ready. */
DEVICE void begin_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Sums are there from here on, and not before. */
template <int N> DEVICE void bring_sums(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i]));
}

/* Waits for the products begun, and their sums. */
template <typename... Sums> DEVICE void end_products(Sums &...sums)
{
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    (bring_sums(sums), ...);
}

#endif

} // namespace COPES_GPU

#endif
