/* The two matrix products of tpa_mma, for a warp: its 16 heads' query times a stage's rows of bk, and its weights
 * times the rows of bv. 16-bit storage is here, float32 below.
 * Registers of lane 4 g + t (h, i: 0 or 1):
 *                         16-bit                            float32
 *   scores[j][2 h + i]    head g + 8 h, key 8 j + 2t + i    the same
 *   outputs[j][2 h + i]   head g + 8 h,                     head g + 8 h,
 *                         feature 8 j + 2t + i              feature 32 (j / 4) + j % 4 + 8t + 4 i
 *   coefficients          as the scores                     as the scores
 * So the scores of two tiles of 8 keys are the operand A of the second product, without any exchange. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_PRODUCT_H
#define COPES_BACKENDS_CUDA_TPA_MMA_PRODUCT_H

#include "backends/cuda/tpa/mma/operand.h"

namespace COPES_GPU::tpa::mma
{

/* A warp's heads, from `first` on, the features of a value, and the lane's place. For ldmatrix, lane l names row
 * `at` of matrix 2 far + near. */
struct warp_place {
    int first, heads, features;
    int lane, g, t;
    int far, near, at; /* far = l / 16, near = l / 8 % 2, at = l % 8 */
};

DEVICE warp_place place_of_warp(int first, int heads, int features)
{
    const auto [lane, g, t] = place_of_lane();
    return {first, heads, features, lane, g, t, lane / 16, lane / 8 % 2, lane % 8};
}

template <typename T, int WIDTH> struct tensor_product {
    static constexpr int TILES = keys_of_stage(WIDTH * 2) / 8, ROW = WIDTH * 2;
    typedef float scores[TILES][4];
    typedef float outputs[WIDTH / 8][4];

    /* Reads the coefficients of 16 keys from `key` on. Word 2 k + h has head g + 8 h and keys 8 k + 2t, 8 k + 2t +
     * 1. */
    static __device__ __forceinline__ void read_coefficients(uint32_t (&a)[4], const warp_place &w, uint32_t piece,
                                                             int key, int rank, int r)
    {
        if (as_matrices<T>(w.heads, rank)) {
            const int chunk = ((key + w.far * 8 + w.at) * w.heads + w.first) / 8 + w.near;
            ldmatrix_x4_trans(a, piece + 16 * scattered(chunk));
            if (w.first + 8 >= w.heads) /* past the last head are coefficients of the next key */
                a[1] = a[3] = 0;
            return;
        }
        for (int i = 0; i < 4; i++) {
            const int wanted = w.first + w.g + i % 2 * 8, head = wanted < w.heads ? wanted : w.heads - 1;
            const int at = ((key + i / 2 * 8 + 2 * w.t) * w.heads + head) * rank + r;
            a[i] = ld_shared_16(piece + 2 * at) | ld_shared_16(piece + 2 * (at + w.heads * rank)) << 16;
        }
    }

    static __device__ __forceinline__ void coefficients(scores &x, const warp_place &w, uint32_t piece, int rank, int r)
    {
#pragma unroll
        for (int i = 0; i < TILES / 2; i++) {
            uint32_t a[4];
            read_coefficients(a, w, piece, 16 * i, rank, r);
            for (int k = 0; k < 4; k++)
                storage<T>::unpack(a[k], &x[2 * i + k / 2][k % 2 * 2]);
        }
    }

    /* The largest of a lane's coefficients of all ranks. An even number of ranks is read as words of two ranks,
     * since their order does not matter. */
    static __device__ __forceinline__ float largest_coefficient(const warp_place &w, uint32_t piece, int rank)
    {
        uint32_t most = 0;
        for (int r = 0; r < rank; r += rank % 2 == 0 ? 2 : 1) {
#pragma unroll 1
            for (int i = 0; i < TILES / 2; i++) {
                uint32_t a[4];
                if (rank % 2 > 0) {
                    read_coefficients(a, w, piece, 16 * i, rank, r);
                    for (int k = 0; k < 4; k++)
                        most = larger_magnitude<T>(most, a[k]);
                    continue;
                }
                for (int k = 0; k < 8; k++) {
                    const int wanted = w.first + w.g + k % 2 * 8, head = wanted < w.heads ? wanted : w.heads - 1;
                    const int key = 16 * i + k / 4 * 8 + 2 * w.t + k / 2 % 2;
                    most = larger_magnitude<T>(most, ld_shared_32(piece + 2 * ((key * w.heads + head) * rank + r)));
                }
            }
        }
        return largest_of_word<T>(most);
    }

    /* dot += the first two slices of the query times a stage's rows. Each slice has sums of its own, so that fewer
     * products wait for one another. */
    static __device__ __forceinline__ void multiply_keys(scores &dot, const warp_place &w,
                                                         const warp_query<T, WIDTH> &q, uint32_t rows)
    {
        const uint32_t row = rows + (w.far * 8 + w.at) * ROW, swizzle = (w.near ^ swizzle_of(w.at)) * 16;
        scores rest = {};
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) {
            uint32_t a[2][4];
            ld_shared(a[0], q.piece(i));
            ld_shared(a[1], q.piece(i) + SLICE_BYTES);
#pragma unroll
            for (int k = 0; k < TILES; k += 2) {
                uint32_t m[4];
                ldmatrix_x4(m, row + k * 8 * ROW + i / 4 * 128 + ((i % 4 * 32) ^ swizzle));
                mma_m16n8k16(dot[k], a[0], m[0], m[1], T{});
                mma_m16n8k16(dot[k + 1], a[0], m[2], m[3], T{});
                mma_m16n8k16(rest[k], a[1], m[0], m[1], T{});
                mma_m16n8k16(rest[k + 1], a[1], m[2], m[3], T{});
            }
        }
#pragma unroll
        for (int i = 0; i < TILES * 4; i++)
            dot[i / 4][i % 4] += rest[i / 4][i % 4];
    }

    /* The same for the third slice. */
    static __device__ __forceinline__ void multiply_keys_by_rest(scores &dot, const warp_place &w,
                                                                 const warp_query<T, WIDTH> &q, uint32_t rows)
    {
        const uint32_t row = rows + (w.far * 8 + w.at) * ROW, swizzle = (w.near ^ swizzle_of(w.at)) * 16;
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) {
            uint32_t a[4];
            ld_shared(a, q.piece(i) + 2 * SLICE_BYTES);
#pragma unroll
            for (int k = 0; k < TILES; k += 2) {
                uint32_t m[4];
                ldmatrix_x4(m, row + k * 8 * ROW + i / 4 * 128 + ((i % 4 * 32) ^ swizzle));
                mma_m16n8k16(dot[k], a, m[0], m[1], T{});
                mma_m16n8k16(dot[k + 1], a, m[2], m[3], T{});
            }
        }
    }

    /* o += weights times a stage's rows. */
    static __device__ __forceinline__ void multiply_values(outputs &o, const warp_place &w, const scores &weights,
                                                           uint32_t rows)
    {
        const uint32_t row = rows + (w.near * 8 + w.at) * ROW, swizzle = (w.far ^ swizzle_of(w.at)) * 16;
#pragma unroll
        for (int k = 0; k < TILES / 2; k++) {
            uint32_t a[4];
            for (int i = 0; i < 4; i++)
                a[i] = storage<T>::pack(&weights[2 * k + i / 2][i % 2 * 2]);
#pragma unroll
            for (int i = 0; i < WIDTH / 16; i++) {
                uint32_t m[4];
                ldmatrix_x4_trans(m, row + k * 16 * ROW + i / 4 * 128 + ((i % 4 * 32) ^ swizzle));
                mma_m16n8k16(o[2 * i], a, m[0], m[1], T{});
                mma_m16n8k16(o[2 * i + 1], a, m[2], m[3], T{});
            }
        }
    }

    /* The features of outputs 0 and 1, and of 2 and 3, of an item. */
    static __device__ __forceinline__ void features_of(int item, int t, int (&feature)[2])
    {
        feature[0] = 8 * item + 2 * t;
        feature[1] = feature[0] + 1;
    }
};

/* float32 in three slices of bf16, good to 2^-24. A lane reads 16 bytes of a row at once, and features take their
 * places in the operands accordingly. Tensor cores truncate their sums instead of rounding them. So a sum of tensor
 * cores has only the terms of one product of 16 features or 16 keys. */
template <int WIDTH> struct tensor_product<f32, WIDTH> {
    static constexpr int TILES = keys_of_stage(WIDTH * 4) / 8, ROW = WIDTH * 4;
    typedef float scores[TILES][4];
    typedef float outputs[WIDTH / 8][4];

    static __device__ __forceinline__ void coefficients(scores &x, const warp_place &w, uint32_t piece, int rank, int r)
    {
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) {
            const int wanted = w.first + w.g + i % 4 / 2 * 8, head = wanted < w.heads ? wanted : w.heads - 1;
            const int key = i / 4 * 8 + 2 * w.t + i % 2;
            x[i / 4][i % 4] = __uint_as_float(ld_shared_32(piece + 4 * ((key * w.heads + head) * rank + r)));
        }
    }

    /* The rest of a number beside its high slice. The rest of an infinity is 0. */
    static __device__ __forceinline__ uint32_t rest_of(uint32_t word, uint32_t high)
    {
        return high == word ? 0 : __float_as_uint(__uint_as_float(word) - __uint_as_float(high));
    }

    /* Splits two numbers into three slices of 8 bits. Each word of slices has a pair of bf16. */
    static __device__ __forceinline__ void split(uint32_t x, uint32_t y, uint32_t (&slices)[3])
    {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            slices[i] = __byte_perm(x, y, 0x7632);
            x = rest_of(x, x & 0xffff0000u);
            y = rest_of(y, y & 0xffff0000u);
        }
    }

    /* sum += a b. Products of low slices come first, so that the large ones are truncated once. The products left
     * out are below 2^-24. */
    static __device__ __forceinline__ void multiply_slices(float (&sum)[4], const uint32_t (&a)[3][4],
                                                           const uint32_t (&b)[2][3])
    {
        float product[4] = {};
#pragma unroll
        for (int both = 2; both >= 0; both--)
#pragma unroll
            for (int i = 0; i <= both; i++)
                mma_m16n8k16(product, a[i], b[0][both - i], b[1][both - i], bf16{});
        for (int i = 0; i < 4; i++)
            sum[i] += product[i];
    }

    static __device__ __forceinline__ void multiply_keys(scores &dot, const warp_place &w,
                                                         const warp_query<f32, WIDTH> &q, uint32_t rows)
    {
        const uint32_t row = rows + w.g * ROW, swizzle = (w.t ^ swizzle_of(w.g)) * 16;
#pragma unroll 2
        for (int j = 0; j < WIDTH / 16; j++) {
            uint32_t a[3][4];
            for (int i = 0; i < 3; i++)
                ld_shared(a[i], q.piece(j) + i * SLICE_BYTES);
#pragma unroll
            for (int k = 0; k < TILES; k++) {
                uint32_t m[4], b[2][3];
                ld_shared(m, row + k * 8 * ROW + j / 2 * 128 + ((j % 2 * 64) ^ swizzle));
                split(m[0], m[1], b[0]);
                split(m[2], m[3], b[1]);
                multiply_slices(dot[k], a, b);
            }
        }
    }

    /* o += weights times a stage's rows. */
    static __device__ __forceinline__ void multiply_values(outputs &o, const warp_place &w, const scores &weights,
                                                           uint32_t rows)
    {
#pragma unroll
        for (int k = 0; k < TILES; k += 2) {
            uint32_t a[3][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float rest[2] = {weights[k + i / 2][i % 2 * 2], weights[k + i / 2][i % 2 * 2 + 1]};
                for (int slice = 0; slice < 3; slice++)
                    a[slice][i] = take_pair<bf16>(rest);
            }
#pragma unroll
            for (int j = 0; j < WIDTH / 32; j++) {
                if (j * 32 >= w.features)
                    break;
                uint32_t m[4][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = 2 * w.t + i % 2;
                    ld_shared(m[i], rows + ((k + i / 2) * 8 + key) * ROW + j * 128 + (w.g ^ swizzle_of(key)) * 16);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t b[2][3];
                    split(m[0][i], m[1][i], b[0]);
                    split(m[2][i], m[3][i], b[1]);
                    multiply_slices(o[4 * j + i], a, b);
                }
            }
        }
    }

    static __device__ __forceinline__ void features_of(int item, int t, int (&feature)[2])
    {
        feature[0] = item / 4 * 32 + 8 * t + item % 4;
        feature[1] = feature[0] + 4;
    }
};

} // namespace COPES_GPU::tpa::mma

#endif
