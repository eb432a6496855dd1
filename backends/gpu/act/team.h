/* Softmax over rows along the innermost axis, of any length and from any element on, each by a team of threads. They read vectors of 16
 * bytes, and single elements before the first whole vector and behind the last. */
#ifndef COPES_BACKENDS_GPU_ACT_TEAM_H
#define COPES_BACKENDS_GPU_ACT_TEAM_H

#include "backends/gpu/act/strides.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/softmax.h"

namespace COPES_GPU::act
{

inline constexpr int WARP = 32, MOST_THREADS = 1024;

/* Vectors that a thread holds of a tensor at most; backward has two tensors. */
template <bool BACKWARD> inline constexpr int MANY = BACKWARD ? 4 : 8;

/* Threads that have a row: neighbouring lanes, a power of two up to 32, or the block where `lanes` is 0. Every team says which of its
 * threads this is, `lane` of `size`; reduces numbers over its threads in a block; and knows what comes of all its blocks. */
struct block_team {
    float *memory; /* shared, a float for every 32 threads of the block */
    int lanes, lane, size;

    __device__ __forceinline__ block_team(float *shared, int of_lanes)
        : memory(shared), lanes(of_lanes), lane((int)threadIdx.x & (of_lanes - 1)),
          size(of_lanes > 0 ? of_lanes : (int)blockDim.x)
    {
    }
    __device__ __forceinline__ float max_of(float value) const
    {
        return lanes > 0 ? max_of_lanes(value, lanes) : max_of_block(value, memory);
    }
    __device__ __forceinline__ float sum_of(float value) const
    {
        return lanes > 0 ? sum_of_lanes(value, lanes) : sum_of_block(value, memory);
    }
    /* What terms relative to the block's largest element are multiplied with, which add up to `sum` in the block. */
    __device__ __forceinline__ float scale_of(float, float sum) const
    {
        return 1 / sum;
    }
    /* The sum of the blocks' sums. */
    __device__ __forceinline__ float sum_of_blocks(float sum) const
    {
        return sum;
    }
};

/* Where a thread is in its row: there are `head` elements, `units` vectors and `tail` elements. */
struct team_place {
    int lane, size, head, units, tail;

    __device__ __forceinline__ int unit(int first, int p) const
    {
        return first + p * size + lane;
    }
    /* The first element of a vector. */
    template <int V, typename Index> __device__ __forceinline__ Index element(int first, int p) const
    {
        return (Index)(head + unit(first, 0) * V) + (Index)(size * V) * p;
    }
};

/* A thread's part of a tensor's row, packed as it lies in memory: vectors, and an element of the head and of the tail. Index counts its
 * elements: of 64 bits it saves the instructions of a cluster, and of 32 the registers of a block. */
template <typename T, int P, typename Index> struct team_part {
    static constexpr int V = vector_length<T>;
    raw<T, V> words[P];
    raw<T, 1> edge[2];

    __device__ __forceinline__ void read(const T *row, const team_place &at, int first)
    {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (at.unit(first, p) < at.units)
                words[p] = raw<T, V>::read(row + at.template element<V, Index>(first, p));
        if (first == 0 && at.lane < at.head)
            edge[0] = raw<T, 1>::read(row + at.lane);
        if (first == 0 && at.lane < at.tail)
            edge[1] = raw<T, 1>::read(row + at.head + at.units * V + at.lane);
    }
};

/* A row: the argument of softmax, or backward the gradient that arrives and the softmax. */
template <typename T, int P, bool BACKWARD, typename Index = int> struct team_row {
    static constexpr int V = vector_length<T>;
    const T *src, *saved;
    T *dst;
    team_place at;
    team_part<T, P, Index> x, y;

    template <typename Team>
    __device__ __forceinline__ team_row(const Team &team, const T *of_src, const T *of_saved, T *of_dst, int length)
        : src(of_src), saved(of_saved), dst(of_dst)
    {
        const int before = (int)((0 - reinterpret_cast<uintptr_t>(src)) % 16 / sizeof(T)), head = min(before, length);
        at = {team.lane, team.size, head, (length - head) / V, (length - head) % V};
        settle(at.head); /* else nvcc finds both again for each vector */
        settle(at.units);
    }
    /* Reads the part that begins with vector `first`; the head and the tail are of the first part. */
    __device__ __forceinline__ void read(int first)
    {
        x.read(src, at, first);
        if (BACKWARD)
            y.read(saved, at, first);
    }
    /* Calls take(x, y, place in the row) for each of the thread's vectors and elements in this part, y being those of `saved`. */
    template <typename Take> __device__ __forceinline__ void each(int first, Take take) const
    {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (at.unit(first, p) < at.units)
                take_unpacked(x.words[p], y.words[p], at.template element<V, Index>(first, p), take);
        if (first == 0 && at.lane < at.head)
            take_unpacked(x.edge[0], y.edge[0], at.lane, take);
        if (first == 0 && at.lane < at.tail)
            take_unpacked(x.edge[1], y.edge[1], at.head + at.units * V + at.lane, take);
    }
    template <int N, typename Take>
    DEVICE void take_unpacked(const raw<T, N> &of_x, const raw<T, N> &of_y, Index place, Take take)
    {
        float x[N], y[N] = {};
        of_x.unpack(x);
        if (BACKWARD)
            of_y.unpack(y);
        take(x, y, place);
    }
};

/* The largest element of a part of a thread's, or `most`. */
template <typename T, int P, typename Index>
DEVICE float max_of_part(const team_row<T, P, false, Index> &row, int first, float most)
{
    const float both[] = {-INFINITY, -INFINITY};
    uint32_t largest = storage<T>::pack(both);
#pragma unroll
    for (int p = 0; p < P; p++)
        if (row.at.unit(first, p) < row.at.units)
            largest = row.x.words[p].largest(largest);
    if (first == 0 && row.at.lane < row.at.head)
        largest = row.x.edge[0].largest(largest);
    if (first == 0 && row.at.lane < row.at.tail)
        largest = row.x.edge[1].largest(largest);
    return fmaxf(most, largest_of_word<T>(largest));
}

/* Adds a number for each vector and element of a part: the sum of term(x) or, backward, of g y. */
template <typename T, int P, typename Index, typename Sum, typename Term>
DEVICE void add_part(const team_row<T, P, false, Index> &row, int first, Sum add, Term term)
{
    row.each(first, [&]<int N>(const float(&x)[N], const float(&)[N], auto) {
        add(sum_of_strands<N>([&](float of, int i) { return of + term(x[i]); }));
    });
}

template <typename T, int P, typename Index, typename Sum>
DEVICE void add_part(const team_row<T, P, true, Index> &row, int first, Sum add)
{
    row.each(first, [&]<int N>(const float(&g)[N], const float(&y)[N], auto) {
        add(sum_of_strands<N>([&](float of, int i) { return fmaf(g[i], y[i], of); }));
    });
}

/* Writes result(x, y) of a part's elements. */
template <typename T, int P, bool BACKWARD, typename Index, typename Result>
DEVICE void write_part(const team_row<T, P, BACKWARD, Index> &row, int first, Result result)
{
    row.each(first, [&]<int N>(const float(&x)[N], const float(&y)[N], auto place) {
        float results[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            results[i] = result(x[i], y[i]);
        raw<T, N>::write(row.dst + place, results);
    });
}

/* A row that its team holds in registers. It is read once. */
template <typename Team, typename T, int P, typename Index>
DEVICE void softmax_of_row(const Team &team, team_row<T, P, false, Index> &row)
{
    float sum = 0;
    row.read(0);
    const float most = team.max_of(max_of_part(row, 0, -INFINITY));
    const softmax_terms<T> terms(shift_of(most));
    add_part(row, 0, [&](float of) { sum += of; }, [&](float x) { return terms.of(x); });
    const float scale = team.scale_of(most, team.sum_of(sum));
    write_part(row, 0, [&](float x, float) { return terms.of(x) * scale; });
}

template <typename Team, typename T, int P, typename Index>
DEVICE void softmax_of_row(const Team &team, team_row<T, P, true, Index> &row)
{
    float sum = 0;
    row.read(0);
    add_part(row, 0, [&](float of) { sum += of; });
    const float dot = team.sum_of_blocks(team.sum_of(sum));
    write_part(row, 0, [&](float g, float y) { return y * (g - dot); });
}

/* Do rows of two tensors begin at the same place of a vector? */
template <typename T> bool begin_alike(const copes_act_problem &problem, const copes_view &a, const copes_view &b)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(a.data), second = reinterpret_cast<uintptr_t>(b.data);
    if (a.data == nullptr || b.data == nullptr)
        return true;
    bool alike = first % 16 == second % 16;
    for (int i = 0; i < problem.rank; i++)
        alike = alike && (problem.shape[i] == 1 || (a.stride[i] - b.stride[i]) % vector_length<T> == 0);
    return alike;
}

/* Why teams do not take the rows of a problem; nullptr: they do. */
template <typename T> const char *refuse_team(const copes_act_problem &problem)
{
    const auto along = [&](const copes_view &v) { return v.data == nullptr || v.stride[problem.axis] == 1; };
    if (problem.shape[problem.axis] > 1 && (!along(problem.src) || !along(problem.saved) || !along(problem.dst)))
        return "the axis is not the innermost in memory";
    if (problem.shape[problem.axis] >= 1 << 30)
        return "a row has 2^30 elements or more";
    if (reinterpret_cast<uintptr_t>(problem.src.data) % sizeof(T) != 0)
        return "a tensor is not aligned to its elements";
    if (!begin_alike<T>(problem, problem.src, problem.saved) || !begin_alike<T>(problem, problem.src, problem.dst))
        return "rows of two tensors begin at different places of 16 bytes";
    return nullptr;
}

} // namespace COPES_GPU::act

#endif
