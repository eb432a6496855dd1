/* The query of tpa_decode as an operand of tensor cores, in parts. Warps that have the same heads form it together and
 * read it from shared memory: registers are scarcer, and a read serves a whole stage's keys. */
#ifndef COPES_BACKENDS_CUDA_TPA_MMA_OPERAND_H
#define COPES_BACKENDS_CUDA_TPA_MMA_OPERAND_H

#include "backends/cuda/tpa/mma/stage.h"
#include "backends/cuda/tpa/parts.h"
#include "backends/gpu/tpa/query.h"

namespace COPES_GPU::tpa::mma
{

/* The query of 16 heads in shared memory: a piece for each 16 features, its parts one after another, 16 bytes a lane.
 * float32 has parts of bf16, for its exponents. */
enum { PART_BYTES = 512 };

__host__ __device__ constexpr int query_bytes(int width, int parts)
{
    return width / 16 * parts * PART_BYTES;
}

/* Whose query: heads from `head` on of a query token. */
struct query_place {
    int64_t b, n;
    int head;
};

/* Two pieces of the query, or the first alone, of the 16 features from each of `features` on, of heads g and g + 8:
 * features 2t, 2t + 1 and 8 more, in the order in which `multiply` leaves them. Products of 16-bit numbers are exact in
 * float32, so tensor cores form it too. Everything is read before anything is used, and at places that exist, since a
 * wait for memory that the copies of the cache keep busy costs microseconds: only ranks past the last are then put
 * out. */
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
        uint16_t x[2][4], y[4][4]; /* of ranks 2t, 2t + 1, 2t + 8, 2t + 9: two heads, four times 8 features */
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

/* The same for float32, by multiply-adds: features 4t to 4t + 3 of each piece, which stand for 2t, 2t + 1 and 8
 * more. */
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

/* Is a lane's number j of a piece, which begins at feature `first`, one of the query's features? Those past the last are 0,
 * as the keys have zeros there, and an infinity times 0 would be NaN. */
template <typename T> DEVICE bool has_feature(const copes_tpa_problem &problem, int first, int j)
{
    return first + (is_single<T> ? 4 * place_of_lane().t : j / 4 * 8) < (int)problem.d;
}

DEVICE void write_words(uint32_t at, const uint32_t (&words)[4])
{
    st_shared_128(at, make_uint4(words[0], words[1], words[2], words[3]));
}

template <typename T> DEVICE void store_parts(uint32_t piece, int parts, float (&q)[2][4])
{
    for (int part = 0; part < parts; part++) {
        uint32_t packed[4];
        for (int i = 0; i < 4; i++)
            if constexpr (is_single<T>)
                packed[i] = take_query_pair(&q[i / 2][i % 2 * 2], part == parts - 1);
            else
                packed[i] = take_pair<T>(&q[i / 2][i % 2 * 2]);
        write_words(piece + part * PART_BYTES, packed);
    }
}

/* The warps that form a query together, and a float for each key group and head of the block, from the warp's first head
 * on. */
struct query_team {
    int key_group, key_groups, threads;
    float *tops;
    int heads;
};

/* What a warp has of the query. */
template <typename T, int WIDTH> struct warp_query {
    static constexpr int PIECES = WIDTH / 16;
    float unit[2]; /* scores of heads g and g + 8 are in this unit */
    uint32_t place;
    int parts;

    __device__ __forceinline__ uint32_t piece(int i) const
    {
        return place + i * parts * PART_BYTES;
    }

    /* Forms the query in shared memory from `shared` on. */
    __device__ __forceinline__ void form(const copes_tpa_problem &problem, const query_place &at, uint32_t shared,
                                         const query_team &team)
    {
        const score_scale scale(problem);
        place = shared + threadIdx.x % 32 * 16;
        parts = parts_of_query<T>(problem.lse.data != nullptr);
        unit[0] = unit[1] = 1;
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
                if (is_half<T>)
                    store_whole(pieces[k], q[k]);
                else
                    store_parts<T>(piece(pieces[k]), parts, q[k]);
            }
        }
        if (is_half<T>)
            normalize(top, team);
        barrier_sync(team.threads);
    }

    /* A piece's 32-bit numbers fill the places of two parts. */
    __device__ __forceinline__ void store_whole(int i, const float (&q)[2][4])
    {
        for (int k = 0; k < 2; k++) {
            const uint32_t words[4] = {__float_as_uint(q[k][0]), __float_as_uint(q[k][1]), __float_as_uint(q[k][2]),
                                       __float_as_uint(q[k][3])};
            write_words(piece(i) + k * PART_BYTES, words);
        }
    }

    /* Brings rows into f16's range and splits them. */
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
            unit[half] = __uint_as_float(exponent << 23);
            inverse[half] = __uint_as_float((254 - exponent) << 23);
        }
        for (int i = team.key_group; i < PIECES; i += team.key_groups) {
            float q[2][4];
            for (int k = 0; k < 2; k++) {
                uint32_t words[4];
                ld_shared(words, piece(i) + k * PART_BYTES);
                for (int j = 0; j < 4; j++)
                    q[k][j] = __uint_as_float(words[j]) * inverse[j / 2];
            }
            store_parts<T>(piece(i), parts, q);
        }
    }
};

} // namespace COPES_GPU::tpa::mma

#endif
