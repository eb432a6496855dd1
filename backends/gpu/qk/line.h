/* A thread of the kernel for heads on a line (line.cu): where it is, its token's position and rotations, and its weights. What it
 * reads it first has on its way, as it lies in memory. */
#ifndef COPES_BACKENDS_GPU_QK_LINE_H
#define COPES_BACKENDS_GPU_QK_LINE_H

#include "backends/gpu/qk/norm.h"

namespace COPES_GPU::qk
{

/* Threads of a team, and the teams and threads of a block. */
enum { TEAM = 32, FEW_TEAMS = 2, MOST_TEAMS = 8, LINE_THREADS = MOST_TEAMS * TEAM };

/* q, k or v. */
struct line_side {
    lrpe::tensor_rows src, dst; /* dst.data may be absent */
    norm_weights weights;
    cache_rows cache;
    int heads;
};

/* Angles of integers on a line, of lrpe::anywhere_plan what is of use here. Without positions a thread reads a word of theta in
 * their place and leaves it, so that no branch delays the read. */
struct line_angles {
    const void *positions; /* int64 or int32 */
    const float *theta;
    int64_t entry, token; /* strides of positions */
    int64_t offset;
    int step, end; /* theta's stride, and how many angles turn */
    float sign, amplitude;
    int prefix, length;
    bool wide, placed, counted; /* int64; are there positions; do tokens count? */

    __device__ __forceinline__ bool contains(int at) const
    {
        return !counted || (uint32_t)(at - prefix) < (uint32_t)length;
    }
    __device__ __forceinline__ float read_theta(unsigned k) const
    {
        return k < (unsigned)end ? theta[(int)k * step] : 0;
    }
};

/* What comes first in a kernel lies together: each 64 bytes of a launch's arguments are fetched when they are first used. */
struct line_arguments {
    divider tokens;   /* of a batch entry */
    divider splits;   /* the blocks that share a token's teams */
    int teams;        /* of a block */
    int keys, values; /* their first teams */
    int lanes, log_lanes, k;
    line_angles angles;
    line_side side[SIDES];
    cache_arguments cache;
    float eps, weight_offset, inverse_length;
    bool round_between;
    uint32_t blocks;
};

/* A team's shared memory has at least a rotation for each thread. */
DEVICE rotation *team_memory(const line_arguments &all)
{
    return reinterpret_cast<rotation *>(dynamic_shared()) + (int)(threadIdx.x / TEAM) * max(all.k, (int)TEAM);
}

/* A token's position, of which what is read stays as it is until it is waited for. */
struct raw_position {
    const uint32_t *from;
    uint32_t low, high;

    __device__ __forceinline__ raw_position(const line_angles &angles, const lrpe::block_place &place)
        : from(static_cast<const uint32_t *>(angles.positions)), high(0)
    {
        const int64_t at = place.entry * angles.entry + place.token * angles.token;
        if (angles.contains(place.token))
            from += angles.wide ? 2 * at : at;
    }
    __device__ __forceinline__ void read(const line_angles &angles)
    {
        low = from[0];
        if (angles.wide)
            high = from[1];
    }
    __device__ __forceinline__ int64_t find(const line_angles &angles, int token) const
    {
        if (!angles.contains(token))
            return 0;
        const uint64_t read = angles.wide ? (uint64_t)high << 32 | low : (uint64_t)(int64_t)(int32_t)low;
        return (int64_t)((angles.placed ? read : 0) + (uint64_t)angles.offset +
                         (angles.counted ? (uint64_t)(int64_t)(token - angles.prefix) : 0));
    }
};

/* A team's rotations in shared memory, in an order in which its reads have no bank conflicts. Each thread makes every 32nd, two at a
 * time. */
template <typename T, encoding E> struct team_rotations {
    static constexpr int V = vector_length<T>, N = 16 / (int)sizeof(rotation);
    static constexpr bool EXACTLY = sizeof(T) == 4;
    rotation *made;
    unsigned k, lanes;
    float theta[2];     /* on their way */
    angle_step step[2]; /* of their angles */

    __device__ __forceinline__ team_rotations(const line_arguments &all, rotation *memory)
        : made(memory), k((unsigned)all.k), lanes((unsigned)all.lanes)
    {
        read_thetas(all.angles, threadIdx.x % TEAM);
    }
    /* The steps of the two angles whose thetas were read last. Those of the first two are made while the position is under way. */
    __device__ __forceinline__ void find_steps(const line_angles &angles)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            step[i] = step_of(angles.sign * theta[i]);
            settle(step[i].high);
            settle(step[i].low);
        }
    }
    /* Every thread of the team must call this, once, after find_steps. */
    __device__ __forceinline__ void make(const line_angles &angles, int64_t position, bool turns)
    {
        if (position == (int32_t)position) {
#pragma unroll 1
            for (unsigned at = threadIdx.x % TEAM;;) {
                rotation two[2];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    two[i] = find_narrow_rotation<EXACTLY>(step[i], (int32_t)position, turns);
                if (at < k)
                    write(at, amplify(two[0], angles.amplitude));
                if (at + TEAM < k)
                    write(at + TEAM, amplify(two[1], angles.amplitude));
                at += 2 * TEAM;
                if (at >= k)
                    break;
                read_thetas(angles, at);
                find_steps(angles);
            }
        } else {
            make_wide(angles, *this, position, turns);
        }
        synchronize_warp();
    }
    __device__ __forceinline__ void read(unsigned unit, rotation (&to)[V]) const
    {
        const float4 *from = reinterpret_cast<const float4 *>(made) + unit;
#pragma unroll
        for (int i = 0; i < V; i += N, from += lanes) {
            const float4 both = *from;
            to[i] = rotation{both.x, both.y};
            to[i + 1] = rotation{both.z, both.w};
        }
    }

  private:
    __device__ __forceinline__ void write(unsigned at, const rotation &value) const
    {
        made[((at % V / N) * lanes + at / V) * N + at % N] = value;
    }
    __device__ __forceinline__ void read_thetas(const line_angles &angles, unsigned at)
    {
#pragma unroll
        for (int i = 0; i < 2; i++, at += TEAM)
            theta[i] = at < k ? angles.read_theta(angle_at(at)) : 0;
    }
    /* The angle at place `at` of all units'. */
    __device__ __forceinline__ unsigned angle_at(unsigned at) const
    {
        return lrpe::angle_of<E, V>(k, at / V, at % V);
    }
    /* The same at positions that do not fit 32 bits. */
    OUT_OF_LINE void make_wide(const line_angles &argument, team_rotations rotations, int64_t position, bool turns)
    {
        const line_angles &angles = read_again(argument);
        for (unsigned at = threadIdx.x % TEAM; at < rotations.k; at += TEAM)
            rotations.write(at, amplify(find_wide_rotation(angles.sign * angles.read_theta(rotations.angle_at(at)),
                                                           position, turns),
                                        angles.amplitude));
    }
};

/* The weights of a thread's unit, as they lie in memory until they are waited for. */
template <typename T> struct line_weights {
    static constexpr int V = vector_length<T>, PARTS = V / 4; /* parts of float32 */
    uint4 words[2][PARTS];

    __device__ __forceinline__ void read(const norm_weights &weights, int head, const int (&place)[2])
    {
        const int row = head * weights.row;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (weights.narrow)
                words[i][0] = raw<T, V>::read(static_cast<const T *>(weights.data) + (row + place[i])).words;
            else
#pragma unroll
                for (int part = 0; part < PARTS; part++)
                    words[i][part] =
                        raw<f32, 4>::read(static_cast<const float *>(weights.data) + (row + place[i] + 4 * part)).words;
        }
    }
    __device__ __forceinline__ void unpack(bool narrow, float offset, float (&w)[2][V]) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (narrow)
                raw<T, V>{words[i][0]}.unpack(w[i]);
            else
#pragma unroll
                for (int part = 0; part < PARTS; part++)
                    raw<f32, 4>{words[i][part]}.unpack(reinterpret_cast<float(&)[4]>(w[i][4 * part]));
            if (offset != 0) /* an instruction that a thread passes over costs less than one for each weight */
#pragma unroll
                for (int j = 0; j < V; j++)
                    w[i][j] += offset;
        }
    }
};

/* RMSNorm of a unit of a head whose squares have the sum `squares`. */
template <typename T, int V>
DEVICE void norm_unit(const line_arguments &all, float squares, const float (&w)[2][V], float (&y)[2][V])
{
    const float factor = norm_factor(all.eps, all.inverse_length, squares);
#pragma unroll
    for (int i = 0; i < 2 * V; i++)
        y[i / V][i % V] = y[i / V][i % V] * factor * w[i / V][i % V];
    if (all.round_between)
#pragma unroll
        for (int i = 0; i < 2; i++)
            raw<T, V>::pack(y[i]).unpack(y[i]);
}

/* Where a thread is: the side, its unit's two vectors, and the first of its HEADS heads, of which the next is `step` on. */
template <int V, int HEADS> struct line_place {
    lrpe::block_place row;
    int which, unit, step, vector[2];

    __device__ __forceinline__ explicit line_place(const line_arguments &all)
    {
        uint32_t split, token;
        const uint32_t entry = divide(divide(blockIdx.x, all.splits, &split), all.tokens, &token);
        const int team = (int)split * all.teams + (int)(threadIdx.x / TEAM), lane = (int)(threadIdx.x % TEAM);
        which = team >= all.values ? VALUES : team >= all.keys ? KEYS : QUERIES;
        unit = lane & (all.lanes - 1);
        step = TEAM >> all.log_lanes;
        const int first = which == VALUES ? all.values : which == KEYS ? all.keys : 0;
        row = {(team - first) * HEADS * step + (lane >> all.log_lanes), (int)token, (int)entry};
        vector[0] = unit * V;
        vector[1] = vector[0] + all.k;
    }
};

} // namespace COPES_GPU::qk

#endif
