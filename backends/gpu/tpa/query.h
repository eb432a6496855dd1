/* What all kernels of tpa_decode need of a query token: the keys that it sees, the scales, and the places of its
 * results. */
#ifndef COPES_BACKENDS_GPU_TPA_QUERY_H
#define COPES_BACKENDS_GPU_TPA_QUERY_H

#include "backends/gpu/functions.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU::tpa
{

/* The keys that query tokens see. */
struct key_range {
    int64_t m, n, length_stride, first, stride, total;
    const int32_t *lengths; /* nullptr: all m keys */
    bool causal;

    key_range() = default;
    __host__ __device__ __forceinline__ explicit key_range(const copes_tpa_problem &problem)
        : m(problem.m), n(problem.n), length_stride(problem.kv_len.stride[0]), first(problem.kv_first),
          stride(problem.kv_stride), total(problem.kv_total),
          lengths(static_cast<const int32_t *>(problem.kv_len.data)), causal(problem.causal)
    {
    }

    /* Query token `token` of batch entry b sees keys 0 .. visible - 1. NEIGHBOURS: the stride is 1; without it a kernel keeps
     * registers for a division. */
    template <bool NEIGHBOURS = false> __device__ __forceinline__ int64_t visible(int64_t b, int64_t token) const
    {
        const int64_t left = end(b, token) - first;
        if (left <= 0)
            return 0;
        const int64_t before = NEIGHBOURS || stride == 1 ? left : (left - 1) / stride + 1;
        return before < m ? before : m;
    }
    /* Does it see any? */
    __device__ __forceinline__ bool any(int64_t b, int64_t token) const
    {
        return m > 0 && end(b, token) > first;
    }

  private:
    /* The place among all keys after the last one that it may see. */
    __device__ __forceinline__ int64_t end(int64_t b, int64_t token) const
    {
        int64_t end = total;
        if (lengths != nullptr) {
            const int64_t length = read_anywhere<int32_t>(lengths + b * length_stride);
            end = length < 0 ? 0 : length < end ? length : end;
        }
        return causal ? end - n + token + 1 : end;
    }
};

/* The address of the output of head h. */
template <typename T> DEVICE T *output_at(const copes_tpa_problem &problem, int64_t b, int64_t n, int64_t h)
{
    const int64_t *stride = problem.o.stride;
    return static_cast<T *>(problem.o.data) + b * stride[0] + n * stride[1] + h * stride[2];
}

/* The scale that turns q.k into a score, a logarithm to base 2. It is two numbers, since the rounding error of one
 * would be in every score. */
struct score_scale {
    float high, low;

    score_scale() = default;
    __host__ __device__ __forceinline__ explicit score_scale(const copes_tpa_problem &problem)
    {
        const double scale = problem.score_scale * 1.4426950408889634;
        high = (float)scale;
        low = (float)(scale - high);
    }
    /* x is clamped in the low product: an infinity times `low` might have the other sign. */
    __device__ __forceinline__ float apply(float x) const
    {
        return fmaf(x, high, fminf(fmaxf(x, -FLT_MAX), FLT_MAX) * low);
    }
};

/* x 2^exponent, rounded only where it leaves the range. Three factors, as a power of 2 ends at 2^127. */
DEVICE float scaled_by(float x, int exponent)
{
    const int all = exponent < -378 ? -378 : exponent > 378 ? 378 : exponent, third = all / 3;
    const float power = __int_as_float((third + 127) << 23);
    return x * power * power * __int_as_float((all - 2 * third + 127) << 23);
}

/* The scale that turns a sum over keys into an output. The weights in that sum have the factor weight_scale. The
 * weights in `sum`, the row's sum of weights, do not. */
struct output_scale {
    float factor;
    int exponent; /* 0, but for an extreme scale_v */

    __device__ __forceinline__ output_scale(const copes_tpa_problem &problem, float sum)
        : factor((float)problem.value_scale / (sum * problem.weight_scale)), exponent(problem.value_exponent)
    {
        if (exponent != 0) { /* 1 / weight_scale may leave the range before value_scale brings it back */
            factor = (float)problem.value_scale / sum;
            exponent += 127 - (int)(__float_as_uint(problem.weight_scale) >> 23);
        }
    }
    __device__ __forceinline__ float apply(float x) const
    {
        return exponent == 0 ? x * factor : scaled_by(x * factor, exponent);
    }
};

/* The state of a row: its largest score, a logarithm to base 2, and the sum of 2^(score - most). */
struct row_state {
    float most, sum;
};

/* The number subtracted from scores. It is 0 for a row of scores of -infinity alone, which must end as 0 / 0 and not
 * begin with infinity - infinity. */
DEVICE float shift_of(float most)
{
    return most == -INFINITY ? 0 : most;
}

/* The factors of two partial rows when they are merged. */
struct row_factors {
    float own, other;

    /* Merges `with` into a state. */
    __device__ __forceinline__ row_factors(row_state &state, row_state with)
    {
        const float most = fmaxf(state.most, with.most);
        own = exp2_term(state.most - shift_of(most)), other = exp2_term(with.most - shift_of(most));
        state = {most, fmaf(with.sum, other, state.sum * own)};
    }
    __device__ __forceinline__ float of(float x, float with) const
    {
        return fmaf(with, other, x * own);
    }
};

DEVICE void write_lse(const copes_tpa_problem &problem, int64_t b, int64_t n, int64_t h, row_state row)
{
    if (problem.lse.data == nullptr)
        return;
    const int64_t *stride = problem.lse.stride;
    const float value = fmaf(row.most, 0x1.62e430p-1f, logf(row.sum));
    write_anywhere(static_cast<float *>(problem.lse.data) + b * stride[0] + n * stride[1] + h * stride[2], value);
}

} // namespace COPES_GPU::tpa

#endif
