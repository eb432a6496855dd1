/* Rows of attention_merge, each a (batch, token, head) of all shares: where they are, and the shares' weights there. */
#ifndef COPES_BACKENDS_GPU_MERGE_ROWS_H
#define COPES_BACKENDS_GPU_MERGE_ROWS_H

#include "backends/gpu/divide.h"
#include "backends/gpu/functions.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU::merge
{

/* What divides an index of 64 bits, as a divider does one of 31. */
struct wide_divider {
    uint64_t divisor;

    wide_divider() = default;
    explicit wide_divider(int64_t by) : divisor((uint64_t)by)
    {
    }
};

DEVICE uint64_t divide(uint64_t n, const wide_divider &d, uint64_t *rest)
{
    const uint64_t quotient = n / d.divisor;
    *rest = n - quotient * d.divisor;
    return quotient;
}

/* Do a view's rows follow each other at the distance of heads, whatever entry and token they are of? `axis` is that of B. */
inline bool is_joined(const copes_merge_problem &problem, const copes_view &view, int axis)
{
    const int64_t *stride = view.stride + axis;
    const uint64_t head = (uint64_t)stride[2], token = (uint64_t)problem.h * head; /* sums of strides may wrap here */
    return view.data == nullptr || ((problem.n == 1 || (uint64_t)stride[1] == token) &&
                                    (problem.b == 1 || (uint64_t)stride[0] == (uint64_t)problem.n * token));
}

/* The threads of a launch: `pieces` neighbours have a row. Index is an unsigned type that holds the number of all threads. */
template <typename Index> struct row_threads {
    typedef std::conditional_t<sizeof(Index) == 4, divider, wide_divider> divides;
    divides by_piece, by_head, by_token;
    Index count;
    bool joined; /* the rows of every tensor are joined: one multiplication finds a row */

    row_threads() = default;
    row_threads(const copes_merge_problem &problem, int64_t pieces)
        : by_piece(pieces), by_head(problem.h), by_token(problem.n),
          count((Index)(problem.b * problem.n * problem.h * pieces)),
          joined(is_joined(problem, problem.o_shares, 1) && is_joined(problem, problem.lse_shares, 1) &&
                 is_joined(problem, problem.row, 0) && is_joined(problem, problem.lse, 0) &&
                 is_joined(problem, problem.grad_o_shares, 1) && is_joined(problem, problem.grad_lse_shares, 1))
    {
    }
};

/* A kernel's argument. */
template <typename Index> struct row_arguments {
    copes_merge_problem problem;
    row_threads<Index> threads;
};

/* Of rows that are joined h is the row, and nothing else counts. */
struct row_place {
    bool joined;
    int64_t b, n, h;

    /* The element of a view at the row; `axis` is that of B. */
    __device__ __forceinline__ int64_t of(const copes_view &view, int axis) const
    {
        int64_t at = h * view.stride[axis + 2];
        if (!joined)
            at += b * view.stride[axis] + n * view.stride[axis + 1];
        return at;
    }
};

/* Where a row of all shares begins, in o and in lse: both by one condition. */
struct share_place {
    int64_t o, lse;

    __device__ __forceinline__ share_place(const copes_merge_problem &problem, const row_place &row)
        : o(row.h * problem.o_shares.stride[3]), lse(row.h * problem.lse_shares.stride[3])
    {
        if (row.joined)
            return;
        o += row.b * problem.o_shares.stride[1] + row.n * problem.o_shares.stride[2];
        lse += row.b * problem.lse_shares.stride[1] + row.n * problem.lse_shares.stride[2];
    }
};

/* The row of a thread, and which of the row's threads it is. */
template <typename Index> DEVICE row_place find_row(const row_threads<Index> &threads, Index thread, Index *piece)
{
    Index h = divide(thread, threads.by_piece, piece), n = 0, b = 0;
    if (!threads.joined)
        b = divide(divide(h, threads.by_head, &h), threads.by_token, &n);
    return {threads.joined, (int64_t)b, (int64_t)n, (int64_t)h};
}

/* Calls take(first) for the first of a block's threads; where there may be more of them than a launch has, for all that it has the
 * work of. A loop takes registers. */
template <bool LOOPS, typename Index, typename Take> DEVICE void for_block_threads(Index count, const Take &take)
{
    Index first = (Index)blockIdx.x * blockDim.x;
    if constexpr (!LOOPS)
        take(first);
    else
        for (; first < count; first += (Index)gridDim.x * blockDim.x)
            take(first);
}

/* The way from a row's start to its element `at`. The elements of a row of vectors are neighbours. */
template <int V> DEVICE int64_t to_feature(int64_t at, int64_t stride)
{
    return V > 1 ? at : at * stride;
}

/* Where vectors are read, floats are aligned. */
template <int V> DEVICE float read_float(const float *p)
{
    return V > 1 ? *p : read_scalar(p);
}

template <int V> DEVICE void write_float(float *p, float value)
{
    if (V > 1)
        *p = value;
    else
        write_scalar(p, value);
}

/* Kahan's sum; of an infinity nothing is lost. */
DEVICE void add_compensated(float &sum, float &lost, float term)
{
    const float corrected = term - lost, next = sum + corrected, rest = (next - sum) - corrected;
    lost = rest - rest == 0 ? rest : 0;
    sum = next;
}

inline constexpr float EMPTY = -1; /* in place of the weight of a share that is empty; others are 0 or more, or NaN */

DEVICE bool is_empty(float weight)
{
    return weight < 0;
}

/* The weights of a row's shares. The lse of AT_ONCE shares are read at a time, as each waits for memory of its own. Of no more
 * shares than those they are read once, before find() needs them, so that what is asked for between the two waits meanwhile. */
template <int V, int AT_ONCE, bool MORE> struct row_weights {
    const float *first;
    int64_t apart, shares;
    /* The lse of the shares read last, -inf where there are none. Of no more shares than AT_ONCE find() makes them terms, and
     * EMPTY of an empty share's. */
    float value[AT_ONCE];
    float most, scale, sum, inverse;

    __device__ __forceinline__ row_weights(const copes_merge_problem &problem, const share_place &at)
        : first(static_cast<const float *>(problem.lse_shares.data) + at.lse), apart(problem.lse_shares.stride[0]),
          shares(problem.shares), most(-INFINITY), scale(problem.base == COPES_LOG_BASE_2 ? 1 : LOG2_E), sum(0)
    {
        if (!MORE)
            read(0);
    }
    __device__ __forceinline__ void find()
    {
        float lost = 0;
        for_all([&](float &x) { most = !isinf(x) && (x > most || x != x) ? x : most; }); /* NaN stays */
        for_all([&](float &x) {
            const bool empty = isinf(x);
            const float own = empty ? 0 : term(x);
            if constexpr (MORE)
                add_compensated(sum, lost, own);
            else {
                sum += own;
                x = empty ? EMPTY : own;
            }
        });
        inverse = reciprocal(sum); /* it is 1 or more, or all shares are empty */
    }
    __device__ __forceinline__ void read(int64_t from)
    {
        const int left = (int)min(shares - from, (int64_t)AT_ONCE);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            value[i] = i < left ? read_float<V>(first + (from + i) * apart) : -INFINITY;
    }
    template <typename Take> __device__ __forceinline__ void for_all(Take take)
    {
        for (int64_t from = 0; from == 0 || (MORE && from < shares); from += AT_ONCE) {
            if (MORE)
                read(from);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                take(value[i]);
        }
    }
    /* Relative to that of the largest lse. */
    __device__ __forceinline__ float term(float x) const
    {
        return exp2_term((x - most) * scale);
    }
    __device__ __forceinline__ float weight_of(float lse) const
    {
        return isinf(lse) ? EMPTY : term(lse) * inverse;
    }
    /* Of share i of those that were read last. */
    __device__ __forceinline__ float weight(int i) const
    {
        if constexpr (MORE)
            return weight_of(value[i]);
        else
            return is_empty(value[i]) ? EMPTY : value[i] * inverse; /* which may be NaN */
    }
    __device__ __forceinline__ float log_sum() const
    {
        return sum == 0 ? -INFINITY : most + (scale == 1 ? log2f(sum) : logf(sum));
    }
};

} // namespace COPES_GPU::merge

#endif
