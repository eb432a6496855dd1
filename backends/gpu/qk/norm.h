/* RMSNorm of a block's rows: the weights, and the sums over a row or over all heads of a token. */
#ifndef COPES_BACKENDS_GPU_QK_NORM_H
#define COPES_BACKENDS_GPU_QK_NORM_H

#include "backends/gpu/qk/rows.h"
#include "backends/gpu/reduce.h"

namespace COPES_GPU::qk
{

/* How a norm's sums of squares meet: in a warp, or, of wide rows and of all heads, in shared memory. */
enum class norm { none, warp, block };

template <int V> DEVICE void read_floats(const float *from, float (&to)[V])
{
#pragma unroll
    for (int i = 0; i < V; i += 4)
        raw<f32, 4>::read(from + i).unpack(reinterpret_cast<float(&)[4]>(to[i]));
}

/* Writes them to where 16 bytes are aligned. */
template <int V> DEVICE void keep_floats(const float (&from)[V], float *to)
{
#pragma unroll
    for (int i = 0; i < V; i += 4)
        *reinterpret_cast<float4 *>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
}

DEVICE float inverse_length(const row_arguments &all, const head_group &group)
{
    return group.which == KEYS ? all.side[KEYS].inverse_length : all.side[QUERIES].inverse_length;
}

/* Reads a vector of weights. */
template <typename T, int V>
DEVICE void read_weights(const void *data, bool narrow, int place, float offset, float (&w)[V])
{
    if (narrow)
        raw<T, V>::read(static_cast<const T *>(data) + place).unpack(w);
    else
        read_floats(static_cast<const float *>(data) + place, w);
#pragma unroll
    for (int j = 0; j < V; j++)
        w[j] += offset;
}

/* Reads the weights of q's heads, then those of k's, into shared memory, where all heads of either have the same. Other threads read
 * k's than q's, so that no thread waits for a side's before it asks for the other's. */
template <typename T> DEVICE void read_shared_weights(const row_arguments &all, char *memory)
{
    constexpr int V = vector_length<T>;
    const norm_weights &q = all.side[QUERIES].weights, &k = all.side[KEYS].weights;
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    float *const to = reinterpret_cast<float *>(memory + all.rotation_bytes);
    for (int i = thread * V; i < 2 * all.d; i += threads * V) {
        const bool keys = i >= all.d;
        const void *const data = keys ? k.data : q.data;
        if (data == nullptr || (keys ? k.row : q.row) != 0)
            continue;
        float w[V];
        read_weights<T>(data, keys ? k.narrow : q.narrow, keys ? i - all.d : i, all.weight_offset, w);
#pragma unroll
        for (int j = 0; j < V; j++)
            to[i + j] = w[j];
    }
}

/* The weights of a thread's heads. */
template <typename T> struct unit_weights {
    static constexpr int V = vector_length<T>;
    const float *shared; /* of the unit, where all heads have the same */
    bool any, own;       /* own: each head has its own */

    __device__ __forceinline__ unit_weights(const row_arguments &all, const head_group &group,
                                            const lrpe::unit_places &at, const char *memory)
    {
        const norm_weights &q = all.side[QUERIES].weights, &k = all.side[KEYS].weights;
        shared = reinterpret_cast<const float *>(memory + all.rotation_bytes) + (group.which == KEYS ? all.d : 0) +
                 at.plain[0];
        any = (group.which == QUERIES ? q.data : group.which == KEYS ? k.data : nullptr) != nullptr;
        own = (group.which == QUERIES ? q.row : group.which == KEYS ? k.row : 0) != 0;
    }
    __device__ __forceinline__ void read_shared(const lrpe::unit_places &at, float (&w)[2][V]) const
    {
        read_floats(shared, w[0]);
        read_floats(shared + (at.plain[1] - at.plain[0]), w[1]);
    }
    /* Have their products with a rotation all bits of float32? Smaller weights' products can be subnormal. */
    __device__ __forceinline__ bool are_normal(const lrpe::unit_places &at) const
    {
        float w[2][V], least = 1;
        read_shared(at, w);
#pragma unroll
        for (int i = 0; i < 2 * V; i++)
            least = w[i / V][i % V] == 0 ? least : fminf(least, fabsf(w[i / V][i % V]));
        return least > 0x1p-80f;
    }
    /* Those of head i, which has its own. */
    __device__ __forceinline__ void read_own(const row_arguments &all, const head_group &group,
                                             const lrpe::unit_places &at, int i, float (&w)[2][V]) const
    {
        const norm_weights &weights = group.which == KEYS ? all.side[KEYS].weights : all.side[QUERIES].weights;
        const int row = (group.place.head + i * group.step) * weights.row;
        read_weights<T>(weights.data, weights.narrow, row + at.plain[0], all.weight_offset, w[0]);
        read_weights<T>(weights.data, weights.narrow, row + at.plain[1], all.weight_offset, w[1]);
    }
    /* Gives `turn` those of head i, where it has its own. */
    template <typename Turn>
    __device__ __forceinline__ void renew(const row_arguments &all, const head_group &group,
                                          const lrpe::unit_places &at, int i, Turn *turn) const
    {
        if (!own)
            return;
        float w[2][V];
        read_own(all, group, at, i, w);
        turn->hold(w);
    }
    /* Those of head i times its features. */
    __device__ __forceinline__ void weigh(const row_arguments &all, const head_group &group,
                                          const lrpe::unit_places &at, int i, const float (&x)[2][V],
                                          float (&weighed)[2][V]) const
    {
        if (own)
            read_own(all, group, at, i, weighed);
        else
            read_shared(at, weighed);
#pragma unroll
        for (int j = 0; j < 2 * V; j++)
            weighed[j / V][j % V] *= x[j / V][j % V];
    }
};

/* What weighs and turns a thread's unit in all of its heads. Mostly these are rotations times the weights of their pairs' first and
 * second features, so that a norm costs a head no more than its factor. Else, in the same registers, they are rotations and
 * weights for themselves. */
template <typename T, encoding E, norm NORM> struct unit_turn {
    static constexpr int V = vector_length<T>, SETS = NORM == norm::none ? 1 : 2;
    rotation of[SETS][V];
    bool weighted;

    /* Once the block's rotations and weights are there. */
    __device__ __forceinline__ unit_turn(const row_arguments &all, const lrpe::block_rotations<E, V> &made,
                                         const head_group &group, const lrpe::unit_places &at,
                                         const unit_weights<T> &weights, bool may_weigh)
        : weighted(may_weigh && at.rotated && weights.any && !weights.own)
    {
        made.read((unsigned)group.token, (unsigned)min((int)threadIdx.x, all.units - 1), of[0]);
        if constexpr (NORM != norm::none) {
            float w[2][V];
            weights.read_shared(at, w);
            hold(w);
#pragma unroll
            for (int i = 0; i < V; i++) {
                if (!weighted)
                    continue;
                const rotation turn = of[0][i], pair = of[1][i];
                of[0][i] = {pair.cosine * turn.cosine, pair.cosine * turn.sine};
                of[1][i] = {pair.sine * turn.cosine, pair.sine * turn.sine};
            }
        }
    }
    /* Takes weights, a pair's in the place of a rotation. */
    __device__ __forceinline__ void hold(const float (&w)[2][V])
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            const int first = pair_of<E, V>(i, 0), second = pair_of<E, V>(i, 1);
            of[SETS - 1][i] = {w[first / V][first % V], w[second / V][second % V]};
        }
    }
    /* Multiplies by the weights that it holds. */
    __device__ __forceinline__ void weigh(float (&x)[2][V]) const
    {
        for_pairs(x, [](float &a, float &b, const rotation &, const rotation &pair) {
            a *= pair.cosine;
            b *= pair.sine;
        });
    }
    __device__ __forceinline__ void weigh_and_turn(float (&x)[2][V]) const
    {
        for_pairs(x, [](float &a, float &b, const rotation &first, const rotation &second) {
            const float across = b * second.sine, along = b * second.cosine;
            b = fmaf(a, first.sine, along);
            a = fmaf(a, first.cosine, -across);
        });
    }
    /* The transpose, for a gradient. */
    __device__ __forceinline__ void turn_back_and_weigh(float (&g)[2][V]) const
    {
        for_pairs(g, [](float &a, float &b, const rotation &first, const rotation &second) {
            const float across = b * first.sine, along = b * second.cosine;
            b = fmaf(-a, second.sine, along);
            a = fmaf(a, first.cosine, across);
        });
    }

  private:
    template <typename Body> __device__ __forceinline__ void for_pairs(float (&x)[2][V], const Body &body) const
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            const int first = pair_of<E, V>(i, 0), second = pair_of<E, V>(i, 1);
            body(x[first / V][first % V], x[second / V][second % V], of[0][i], of[SETS - 1][i]);
        }
    }
};

/* The sum of a unit's products a b, of features that there are. */
template <int V> DEVICE float sum_of_unit(const lrpe::unit_places &at, const float (&a)[2][V], const float (&b)[2][V])
{
    float sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[i] = fmaf(a[i][j], b[i][j], sum[i]);
    return (at.there ? sum[0] : 0) + (at.second ? sum[1] : 0);
}

/* Sums that meet in shared memory: COUNT numbers of each group of heads in the block and each of its warps. Those of even and of
 * odd heads lie apart, so that a barrier a head is enough. */
template <int COUNT> struct group_sums {
    float *memory;
    int parts; /* warps of a group */

    __device__ __forceinline__ group_sums(const row_arguments &all, char *block_memory)
        : memory(reinterpret_cast<float *>(block_memory + all.rotation_bytes) + 2 * all.d),
          parts(((int)blockDim.x + 31) / 32)
    {
    }
    /* From the sums of the thread's unit in its head i to those of all the head's lanes. Every thread of the block must call this,
     * head after head. */
    __device__ __forceinline__ void meet_lanes(int i, float (&sum)[COUNT]) const
    {
        meet(memory + i % 2 * (int)blockDim.y * parts * COUNT, (int)threadIdx.y, 1, sum);
    }
    /* From the sums of the thread's heads to those of all heads of its side. Every thread of the block must call this, once. */
    __device__ __forceinline__ void meet_heads(const row_arguments &all, const head_group &group,
                                               float (&sum)[COUNT]) const
    {
        const int side = group.token * all.groups + (group.which == KEYS ? all.side[QUERIES].groups : 0);
        meet(memory, side, group.step, sum);
    }

  private:
    /* Leaves the thread's sums at `to`, and adds up those of `groups` groups. */
    __device__ __forceinline__ void meet(float *to, int first, int groups, float (&sum)[COUNT]) const
    {
        sums_of_lanes(sum, min((int)blockDim.x, 32));
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (threadIdx.x % 32 == 0)
                to[((int)threadIdx.y * parts + (int)threadIdx.x / 32) * COUNT + i] = sum[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[i] = add_up(to + first * parts * COUNT + i, groups * parts);
    }
    /* What additions lose counts where there are many; an infinity has lost nothing. */
    __device__ __forceinline__ float add_up(const float *from, int count) const
    {
        float plain = 0;
        long_sum exact;
        for (int at = 0; at < count; at++) {
            plain += from[at * COUNT];
            exact.add(from[at * COUNT]);
        }
        return isfinite(plain) ? exact.sum : plain;
    }
};

/* From the sums of a thread's unit in its head i to those of the head. */
template <norm NORM, int COUNT> DEVICE void sum_head(const group_sums<COUNT> &sums, int i, float (&sum)[COUNT])
{
    if (NORM == norm::warp)
        sums_of_lanes(sum, (int)blockDim.x);
    else if (NORM == norm::block)
        sums.meet_lanes(i, sum);
}

/* Rounds a unit to its type and back. */
template <typename T> DEVICE void round_unit(float (&y)[2][vector_length<T>])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        raw<T, vector_length<T>>::pack(y[i]).unpack(y[i]);
}

/* RMSNorm's factor of features whose squares have this sum. */
DEVICE float norm_factor(float eps, float inverse_length, float squares)
{
    return reciprocal_root(fmaf(squares, inverse_length, eps));
}

/* From the gradient g of a unit's normed and weighed features to that of its features. `sum`: of x^2 and of x times its weighed gradient,
 * which are behind the norm. WEIGHTS: adds what they give to the gradient of their weights to `terms`. */
template <bool WEIGHTS, int V>
DEVICE void pass_norm(const row_arguments &all, const head_group &group, const float (&sum)[2], const float (&x)[2][V],
                      const float (&weighed)[2][V], float (&g)[2][V], float (&terms)[2][V])
{
    const float length = inverse_length(all, group), factor = norm_factor(all.eps, length, sum[0]);
    const float mean = factor * sum[1] * length;
#pragma unroll
    for (int j = 0; j < 2 * V; j++) {
        const float normed = x[j / V][j % V] * factor;
        if (WEIGHTS)
            terms[j / V][j % V] = fmaf(g[j / V][j % V], normed, terms[j / V][j % V]);
        g[j / V][j % V] = factor * fmaf(-normed, mean, weighed[j / V][j % V]);
    }
}

} // namespace COPES_GPU::qk

#endif
