/* The cluster kernel's cut of a problem: what a thread has of a token, which slabs its cluster has, and the ring in shared
 * memory through which they pass. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_RING_H
#define COPES_BACKENDS_CUDA_SEQUENCE_RING_H

#include "backends/cuda/cluster.h"
#include "backends/gpu/sequence.h"

namespace COPES_GPU
{

/* Which features are turned together, if any. */
enum class coding { none, half, interleaved, cosine };

/* One instance of the kernel: a unit is a thread's part of a token, 16 bytes of columns, and LANES of them are a slab's
 * width. */
template <typename Type, coding CODING, role ROLE, int LANE_COUNT> struct unit_of {
    typedef Type T;
    static constexpr coding C = CODING;
    static constexpr role R = ROLE;
    static constexpr bool BACKWARD = R != role::forward, TURNED = C != coding::none;
    static constexpr encoding E = C == coding::cosine        ? encoding::cosine
                                  : C == coding::interleaved ? encoding::interleaved
                                                             : encoding::half;
    static constexpr int THREADS = 512, LANES = LANE_COUNT, ROWS = THREADS / LANES, WARPS = THREADS / 32;
    static constexpr int N = vector_length<T>, V = C == coding::cosine ? N : N / 2; /* columns, and their angles */
    static constexpr int COLUMNS = LANES * N;                                       /* of a slab */
    static constexpr int OPERANDS = !BACKWARD ? 1 : C == coding::cosine ? 3 : 2;
    static constexpr int BATCH = BACKWARD ? 1 : 2;      /* tokens of a step */
    static constexpr int AHEAD = OPERANDS == 3 ? 2 : 3; /* steps whose copies are under way */
    static constexpr uint32_t SLOT = BATCH * OPERANDS * 16 * THREADS;
    typedef std::conditional_t<BACKWARD, float4, float2> message; /* a column on its way between threads */
};

/* How the work is cut at run time. */
struct cluster_tiling {
    int ranks; /* blocks of a cluster */
    int steps; /* of a thread through a slab */
    int slots; /* of the ring: a slab's, those of copies under way, and those in which the cluster comes to agree */
    int tiles, slabs; /* slabs of a head, and of all heads */
    int clusters;
};

/* A block's dynamic shared memory: this, then the ring, the columns that each rank sends (two sets), and the turns from a
 * thread's first token to its others. */
template <typename U> struct block_memory {
    static constexpr int ANGLES = U::TURNED ? U::LANES * U::V : 1;
    static constexpr int SETS = U::BACKWARD ? 3 : 2; /* slabs whose turns are in use at once */
    static constexpr int STEP_SETS = 4;
    typedef typename U::message message;

    message warps[U::WARPS][U::COLUMNS]; /* each warp's columns */
    float finished[2][3][U::COLUMNS];    /* of every other slab: what to subtract, the factor, and the mean gradient */
    uint64_t mailbox[2];
    angle_step step[STEP_SETS][ANGLES];
    alignas(16) char ring[];

    static size_t bytes(const cluster_tiling &t)
    {
        return sizeof(block_memory) + (size_t)t.slots * U::SLOT + 2 * t.ranks * U::COLUMNS * sizeof(message) +
               SETS * turns_of(t) * sizeof(turn);
    }
    __host__ __device__ static int turns_of(const cluster_tiling &t)
    {
        return U::TURNED ? t.steps * U::BATCH * ANGLES : 0;
    }
    DEVICE block_memory *get()
    {
        return reinterpret_cast<block_memory *>(dynamic_shared());
    }
    DEVICE message *ranks(const cluster_tiling &t, uint32_t set)
    {
        return reinterpret_cast<message *>(get()->ring + t.slots * U::SLOT) + set * t.ranks * U::COLUMNS;
    }
    DEVICE turn *turns(const cluster_tiling &t, int set)
    {
        return reinterpret_cast<turn *>(ranks(t, 2)) + set * turns_of(t);
    }
};

struct slab_place {
    int b, h, tile;
};

/* Where a thread is. */
template <typename U> struct worker {
    typedef typename U::T T;
    const copes_lrpe_problem &problem;
    const cluster_tiling &tiling;
    int rank, lane, row;
    int first, count; /* the cluster's slabs: one of every so many, so that clusters work side by side in memory */
    int tokens;       /* the thread's, of a slab */
    uint32_t mine;    /* the thread's first place in the ring */

    __device__ __forceinline__ worker(const copes_lrpe_problem &problem, const cluster_tiling &tiling)
        : problem(problem), tiling(tiling), rank((int)cluster_rank()), lane((int)threadIdx.x % U::LANES),
          row((int)threadIdx.x / U::LANES), mine(shared_address(block_memory<U>::get()->ring) + threadIdx.x * 16)
    {
        first = (int)blockIdx.x / tiling.ranks;
        count = (tiling.slabs - first + tiling.clusters - 1) / tiling.clusters;
        tokens = ((int)problem.n - first_token() + token_step() - 1) / token_step();
    }
    __device__ __forceinline__ int first_token() const
    {
        return rank * U::ROWS + row;
    }
    __device__ __forceinline__ int token_step() const
    {
        return tiling.ranks * U::ROWS;
    }
    __device__ __forceinline__ slab_place slab(int index) const
    {
        const int s = first + index * tiling.clusters, head = s / tiling.tiles, b = head / (int)problem.h;
        return {b, head - b * (int)problem.h, s - head * tiling.tiles};
    }
    /* The feature that column i of a lane's unit is. */
    __device__ __forceinline__ int64_t feature(int tile, int lane, int i) const
    {
        const int64_t unit = (int64_t)tile * U::LANES + lane;
        if (U::C != coding::half)
            return unit * U::N + i;
        return unit * U::V + (i < U::V ? i : problem.k + i - U::V);
    }
    /* The thread's unit of its first token in a slab. */
    __device__ __forceinline__ T *start(const copes_view &view, int index) const
    {
        const slab_place at = slab(index);
        return static_cast<T *>(view.data) + at.b * view.stride[0] + at.h * view.stride[2] +
               first_token() * view.stride[1] + feature(at.tile, lane, 0);
    }
    __device__ __forceinline__ float *lse_of(int index, int lane, int i) const
    {
        const slab_place at = slab(index);
        return static_cast<float *>(problem.lse.data) + at.b * problem.lse.stride[0] + at.h * problem.lse.stride[1] +
               feature(at.tile, lane, i) * problem.lse.stride[2];
    }
    __device__ __forceinline__ uint32_t place(int slot, int t, int operand) const
    {
        return mine + slot * U::SLOT + (t * U::OPERANDS + operand) * 16 * U::THREADS;
    }
};

/* 16 bytes of elements. */
template <typename T> DEVICE void unpack16(uint4 words, float *x)
{
    constexpr int n = storage<T>::per_word;
    storage<T>::unpack(words.x, x);
    storage<T>::unpack(words.y, x + n);
    storage<T>::unpack(words.z, x + 2 * n);
    storage<T>::unpack(words.w, x + 3 * n);
}

template <typename T> DEVICE uint4 pack16(const float *x)
{
    constexpr int n = storage<T>::per_word;
    return make_uint4(storage<T>::pack(x), storage<T>::pack(x + n), storage<T>::pack(x + 2 * n),
                      storage<T>::pack(x + 3 * n));
}

/* The larger elements of two words: a number, where one of two is NaN. */
template <typename T> DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
    if constexpr (storage<T>::dtype == COPES_F32) {
        return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
    } else {
        typedef std::conditional_t<storage<T>::dtype == COPES_F16, __half2, __nv_bfloat162> pair;
        const pair most = __hmax2(*reinterpret_cast<const pair *>(&a), *reinterpret_cast<const pair *>(&b));
        return *reinterpret_cast<const uint32_t *>(&most);
    }
}

template <typename T> DEVICE uint4 larger16(uint4 a, uint4 b)
{
    return make_uint4(larger<T>(a.x, b.x), larger<T>(a.y, b.y), larger<T>(a.z, b.z), larger<T>(a.w, b.w));
}

/* Copies steps of tokens into the ring, slab after slab. A token past the end adds nothing to a column. */
template <typename U> struct loader {
    typedef typename U::T T;
    const worker<U> &w;
    int slab = 0, step = 0;
    const T *x = nullptr, *g = nullptr; /* the next token */
    int64_t x_step, g_step;

    __device__ __forceinline__ explicit loader(const worker<U> &w)
        : w(w), x_step(U::BACKWARD ? w.token_step() * w.problem.x.stride[1] : 0),
          g_step(w.token_step() * w.problem.src.stride[1])
    {
        open();
    }
    __device__ __forceinline__ void open()
    {
        if (slab >= w.count)
            return;
        if (U::BACKWARD)
            x = w.start(w.problem.x, slab);
        g = w.start(w.problem.src, slab);
    }
    __device__ __forceinline__ void copy(uint32_t to, const T *from) const
    {
        if (U::C == coding::half) {
            copy_ahead<8>(to, from);
            copy_ahead<8>(to + 8, from + w.problem.k);
        } else {
            copy_ahead<16>(to, from);
        }
    }
    __device__ __forceinline__ void fill(int slot, int t) const
    {
        const float masked[2] = {-INFINITY, -INFINITY};
        const uint32_t word = U::R == role::given ? 0 : storage<T>::pack(masked);
        write_shared(w.place(slot, t, 0), make_uint4(word, word, word, word));
        for (int i = 1; i < U::OPERANDS; i++)
            write_shared(w.place(slot, t, i), make_uint4(0, 0, 0, 0));
    }
    __device__ __forceinline__ void next(int slot)
    {
        if (slab < w.count) {
#pragma unroll
            for (int t = 0; t < U::BATCH; t++) {
                if (step * U::BATCH + t < w.tokens) {
                    if (U::BACKWARD)
                        copy(w.place(slot, t, 0), x);
                    copy(w.place(slot, t, U::BACKWARD), g);
                    if (U::OPERANDS == 3)
                        copy(w.place(slot, t, 2), g + w.problem.d);
                } else {
                    fill(slot, t);
                }
                x += x_step;
                g += g_step;
            }
            if (++step == w.tiling.steps) {
                step = 0;
                slab++;
                open();
            }
        }
        end_copies();
    }
};

} // namespace COPES_GPU

#endif
