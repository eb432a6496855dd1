/* Tensor cores by warps: ldmatrix and mma.sync. The functions are static: where a target lacks the instructions, a
 * kernel may leave its body out, and compiles for that target too. */
#ifndef COPES_BACKENDS_CUDA_PTX_MMA_H
#define COPES_BACKENDS_CUDA_PTX_MMA_H

#include "backends/gpu/storage.h"

namespace COPES_GPU::ptx
{

/* Four 8 x 8 matrices of 16-bit elements, in shared memory. Row i % 8 of matrix i / 8 begins at lane i's address.
 * Lane 4 g + t receives, of each matrix:
 *   ldmatrix_x4          row g, elements 2t and 2t + 1
 *   ldmatrix_x4_trans    column g, elements 2t and 2t + 1 */
DEVICE void ldmatrix_x4(uint32_t (&m)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

DEVICE void ldmatrix_x4_trans(uint32_t (&m)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

/* c += a b, of 16 x 16 and 16 x 8 elements. A word of a or b has two elements: the one below and, in a, the next
 * column's, in b, the next row's. Lane 4 g + t has:
 *   a[0..3]   rows g, g + 8, g, g + 8           columns 2t, 2t, 2t + 8, 2t + 8
 *   b0, b1    column g                          rows 2t, 2t + 8
 *   c[0..3]   rows g, g, g + 8, g + 8           columns 2t, 2t + 1, 2t, 2t + 1 */
DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

} // namespace COPES_GPU::ptx

#endif
