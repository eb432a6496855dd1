/* NVIDIA's instructions for tensor cores and for barriers that copies arrive at, under plain names. They are static, so
 * a kernel that leaves its body out where a target lacks them compiles for that target too. */
#ifndef COPES_BACKENDS_CUDA_MMA_H
#define COPES_BACKENDS_CUDA_MMA_H

#include "backends/cuda/cluster.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

/* An object at an address of dynamic shared memory. */
template <typename Object> DEVICE Object *at_shared(uint32_t address)
{
    return reinterpret_cast<Object *>(dynamic_shared() + (address - shared_address(dynamic_shared())));
}

DEVICE uint32_t read_shared_32(uint32_t address)
{
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

DEVICE void write_shared_32(uint32_t address, uint32_t value)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

DEVICE void read_words(uint32_t (&words)[4], uint32_t at)
{
    const uint4 four = read_shared(at);
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

DEVICE void read_words(uint32_t (&words)[2], uint32_t at)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(at));
}

DEVICE uint32_t read_shared_16(uint32_t address)
{
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
    return value;
}

/* Starts to copy the first `bytes` (0 to 16) of 16 bytes to shared memory; the others become 0. */
DEVICE void copy_async(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Starts to copy a word to shared memory. */
DEVICE void copy_word(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/* Barriers in shared memory, whose phase ends with its last arrival. */
DEVICE void open_barrier(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Arrives once the thread's copies so far have landed. */
DEVICE void arrive_after_copies(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits for the end of a phase of this parity; the first one has parity 0. */
DEVICE void await(uint32_t barrier, uint32_t parity)
{
    uint32_t done = 0;
    while (done == 0)
#if __CUDA_ARCH__ < 900 /* which has no wait that sleeps */
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
#endif
}

/* Meets `threads` of the block's threads, whole warps of them. */
DEVICE void synchronize_some(int threads)
{
    asm volatile("barrier.sync 1, %0;" ::"r"(threads) : "memory");
}

/* Lets them pass, and does not wait. */
DEVICE void pass_some(int threads)
{
    asm volatile("barrier.arrive 1, %0;" ::"r"(threads) : "memory");
}

/* Meets the threads of warpgroup `group`. */
DEVICE void synchronize_group(int group)
{
    asm volatile("barrier.sync %0, 128;" ::"r"(2 + group) : "memory");
}

/* The same, and tells them whether it holds for any. */
DEVICE bool any_of_group(int group, bool what)
{
    uint32_t any;
    asm volatile(
        "{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\t"
        "barrier.red.or.pred q, %2, 128, p;\n\tselp.u32 %0, 1, 0, q;\n\t}"
        : "=r"(any)
        : "r"((uint32_t)what), "r"(2 + group)
        : "memory");
    return any != 0;
}

/* Four 8 x 8 matrices of 16-bit elements, whose row i % 8 of matrix i / 8 begins at lane i's address: lane 4 g + t
 * receives elements 2t and 2t + 1 of each matrix's row g; transposed, of its column g. */
DEVICE void load_matrices(uint32_t (&m)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

DEVICE void load_transposed(uint32_t (&m)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

/* c += a b, of 16 x 16 and 16 x 8 elements. Lane 4 g + t has of a rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8,
 * 2t + 8 and the next; of b column g and rows 2t, 2t + 8 and the next; of c rows g, g, g + 8, g + 8, columns 2t, 2t +
 * 1. */
DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Meets the blocks of a cluster, or the threads of a block that is its own cluster. */
DEVICE void synchronize_blocks(int blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        __syncwarp(); /* which the barrier asks for */
        synchronize_cluster();
        return;
    }
#endif
    __syncthreads();
}

/* The two halves of a meeting that orders no memory: where a block of a cluster waits until none of the others uses its
 * shared memory any more. Every thread passes both, whole warps at a time. */
DEVICE void arrive_at_cluster(int blocks)
{
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    if (blocks > 1)
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

DEVICE void await_cluster(int blocks)
{
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    if (blocks > 1)
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

} // namespace COPES_GPU

#endif
