/* The query of tpa_mma as the operand A of mma.sync, in slices. The warps of the same heads form it together, and
 * read it from shared memory. Registers are scarce, and one read serves all keys of a stage. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_OPERAND_H
#define COPES_BACKENDS_CUDA_TPA_MMA_OPERAND_H

#include "backends/cuda/tpa/mma/stage.h"
#include "backends/cuda/tpa/slices.h"
#include "backends/gpu/tpa/query.h"

namespace COPES_GPU::tpa::mma
{

/* The query of 16 heads in shared memory is one piece for each 16 features. A piece has its slices one after
 * another, and a slice has the 4 words of each lane:
 *   word   rows (heads)   16-bit: features     float32: features
 *   0      g              2t, 2t + 1           4t, 4t + 1
 *   1      g + 8          2t, 2t + 1           4t, 4t + 1
 *   2      g              2t + 8, 2t + 9       4t + 2, 4t + 3
 *   3      g + 8          2t + 8, 2t + 9       4t + 2, 4t + 3
 * float32 orders its features so because a lane reads 16 bytes of a key's row at once (product.h). The slices of
 * float32 are bf16, which has its exponents. */
enum { SLICE_BYTES = 512 };

__host__ __device__ constexpr int query_bytes(int width, int slices)
{
    return width / 16 * slices * SLICE_BYTES;
}

/* Whose query: 16 heads from `head` on of a query token. */
struct query_place {
    int64_t b, n;
    int head;
};

/* Forms two pieces of the query, or the first alone, in the order of the table above. features: the first feature of
 * each. `q[piece][i][j]` is word 2 i + j / 2 before it is split. Products of 16-bit numbers are exact in float32, so
 * tensor cores form the query too.
 * A wait for memory costs microseconds while copies of the cache keep it busy. So all reads come before the first
 * use, and read places that exist. Only ranks past the last become 0. */
template <typename T>
DEVICE void form_pieces(const copes_tpa_problem &problem, const query_place &at, const int (&features)[2], bool both,
                        float (&q)[2][2][4])
{
    const auto [lane, g, t] = place_of_lane();
    const int64_t *as = problem.aq.stride, *bs = problem.bq.stride;
    const int heads = (int)problem.h, ranks = (int)problem.rq;
    const uint16_t *aq = static_cast<const uint16_t *>(problem.aq.data) + at.b * as[0] + at.n * as[1];
    const uint16_t *bq = static_cast<const uint16_t *>(problem.bq.data) + at.b * bs[0] + at.n * bs[1] + g;
    for (int rank = 2 * t; rank - 2 * t < ranks; rank += 16) {
        uint16_t x[2][4], y[4][4]; /* [head][rank 2t, 2t + 1, 2t + 8, 2t + 9], [8 features][the same] */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int wanted = rank + i / 2 * 8 + i % 2, r = wanted < ranks ? wanted : ranks - 1;
            for (int k = 0; k < 2; k++) {
                const int head = at.head + g + k * 8;
                x[k][i] = aq[(head < heads ? head : heads - 1) * as[2] + r * as[3]];
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int feature = features[k / 2] + k % 2 * 8;
                if (k < 2 || both)
                    y[k][i] = bq[r * bs[2] + (feature < problem.d ? feature : 0)];
            }
        }
        const auto pair = [=](const uint16_t(&z)[4], int i) {
            const int r = rank + i * 8;
            return (r < ranks ? (uint32_t)z[2 * i] : 0) | (r + 1 < ranks ? (uint32_t)z[2 * i + 1] << 16 : 0);
        };
        const uint32_t a[4] = {pair(x[0], 0), pair(x[1], 0), pair(x[0], 1), pair(x[1], 1)};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k < 2 || both)
                mma_m16n8k16(q[k / 2][k % 2], a, pair(y[k], 0), pair(y[k], 1), T{});
    }
}

/* The same for float32, by multiply-adds. */
template <>
__device__ __forceinline__ void form_pieces<f32>(const copes_tpa_problem &problem, const query_place &at,
                                                 const int (&features)[2], bool, float (&q)[2][2][4])
{
    const auto [lane, g, t] = place_of_lane();
    const int64_t *as = problem.aq.stride, *bs = problem.bq.stride;
    const int last = (int)problem.h - 1;
    const f32 *aq = static_cast<const f32 *>(problem.aq.data) + at.b * as[0] + at.n * as[1];
    const f32 *bq = static_cast<const f32 *>(problem.bq.data) + at.b * bs[0] + at.n * bs[1];
    const f32 *low = aq + (at.head + g < last ? at.head + g : last) * as[2];
    const f32 *high = aq + (at.head + g + 8 < last ? at.head + g + 8 : last) * as[2];
    const int place = 4 * t < problem.d - features[0] ? features[0] + 4 * t : 0;
    const int places[2] = {place, 4 * t < problem.d - features[1] ? features[1] + 4 * t : 0};
#pragma unroll 4
    for (int r = 0; r < problem.rq; r++) {
        const float a[2] = {low[r * as[3]], high[r * as[3]]};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float b = bq[r * bs[2] + places[i / 4] + i % 4];
            for (int half = 0; half < 2; half++) {
                float &x = q[i / 4][i % 4 / 2][half * 2 + i % 2];
                x = fmaf(a[half], b, x);
            }
        }
    }
}

/* Does the query have the feature of a lane's number j of a piece? `first`: the first feature of the piece. Other
 * numbers must be 0: keys have zeros there, and an infinity times 0 is NaN. */
template <typename T> DEVICE bool has_feature(const copes_tpa_problem &problem, int first, int j)
{
    return first + (is_f32<T> ? 4 * place_of_lane().t : j / 4 * 8) < (int)problem.d;
}

DEVICE void write_words(uint32_t at, const uint32_t (&words)[4])
{
    st_shared_128(at, make_uint4(words[0], words[1], words[2], words[3]));
}

template <typename T> DEVICE void store_slices(uint32_t piece, int slices, float (&q)[2][4])
{
    for (int slice = 0; slice < slices; slice++) {
        uint32_t packed[4];
        for (int i = 0; i < 4; i++)
            if constexpr (is_f32<T>)
                packed[i] = take_query_pair(&q[i / 2][i % 2 * 2], slice == slices - 1);
            else
                packed[i] = take_pair<T>(&q[i / 2][i % 2 * 2]);
        write_words(piece + slice * SLICE_BYTES, packed);
    }
}

/* The warps that form a query together. tops: a float for each key group and each head of the block, from the warp's
 * first head on. */
struct query_team {
    int key_group, key_groups, threads;
    float *tops;
    int heads;
};

/* A warp's query in shared memory. */
template <typename T, int WIDTH> struct warp_query {
    static constexpr int PIECES = WIDTH / 16;
    float descale[2]; /* factors of the scores of heads g and g + 8; 1 but for f16 */
    uint32_t place;
    int slices;

    __device__ __forceinline__ uint32_t piece(int i) const
    {
        return place + i * slices * SLICE_BYTES;
    }

    /* Forms the query in shared memory at `shared`. */
    __device__ __forceinline__ void form(const copes_tpa_problem &problem, const query_place &at, uint32_t shared,
                                         const query_team &team)
    {
        const score_scale scale(problem);
        place = shared + threadIdx.x % 32 * 16;
        slices = slices_of_query<T>(problem.lse.data != nullptr);
        descale[0] = descale[1] = 1;
        float top[2] = {0, 0};
        for (int i = team.key_group; i < PIECES; i += 2 * team.key_groups) {
            const int pieces[2] = {i, i + team.key_groups}, features[2] = {16 * i, 16 * (i + team.key_groups)};
            float q[2][2][4] = {};
            form_pieces<T>(problem, at, features, pieces[1] < PIECES, q);
            for (int k = 0; k < 2 && pieces[k] < PIECES; k++) {
                for (int j = 0; j < 8; j++) {
                    float &x = q[k][j / 4][j % 4];
                    x = has_feature<T>(problem, features[k], j) ? scale.apply(x) : 0;
                    top[j % 4 / 2] = fmaxf(top[j % 4 / 2], fabsf(x));
                }
                if (is_f16<T>)
                    store_whole(pieces[k], q[k]);
                else
                    store_slices<T>(piece(pieces[k]), slices, q[k]);
            }
        }
        if (is_f16<T>)
            normalize(top, team);
        barrier_sync(team.threads);
    }

    /* Stores a piece's 32-bit numbers, in the places of two slices, until the largest of a row is known. */
    __device__ __forceinline__ void store_whole(int i, const float (&q)[2][4])
    {
        for (int k = 0; k < 2; k++) {
            const uint32_t words[4] = {__float_as_uint(q[k][0]), __float_as_uint(q[k][1]), __float_as_uint(q[k][2]),
                                       __float_as_uint(q[k][3])};
            write_words(piece(i) + k * SLICE_BYTES, words);
        }
    }

    /* Divides rows by a power of 2, so that f16 holds them, and splits them. */
    __device__ __forceinline__ void normalize(float (&top)[2], const query_team &team)
    {
        float inverse[2], *tops = team.tops + place_of_lane().g;
        for (int half = 0; half < 2; half++) {
            top[half] = fmaxf(top[half], shuffle_xor(top[half], 1));
            top[half] = fmaxf(top[half], shuffle_xor(top[half], 2));
            tops[team.key_group * team.heads + half * 8] = top[half];
        }
        barrier_sync(team.threads);
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < team.key_groups; i++)
                top[half] = fmaxf(top[half], tops[i * team.heads + half * 8]);
            const uint32_t exponent = query_exponent(top[half]);
            descale[half] = __uint_as_float(exponent << 23);
            inverse[half] = __uint_as_float((254 - exponent) << 23);
        }
        for (int i = team.key_group; i < PIECES; i += team.key_groups) {
            float q[2][4];
            for (int k = 0; k < 2; k++) {
                uint32_t words[4];
                ld_shared(words, piece(i) + k * SLICE_BYTES);
                for (int j = 0; j < 4; j++)
                    q[k][j] = __uint_as_float(words[j]) * inverse[j / 2];
            }
            store_slices<T>(piece(i), slices, q);
        }
    }
};

} // namespace COPES_GPU::tpa::mma

#endif
