/* The resident kernel's cut of a problem: what a thread has of a token, which slabs its cluster has and in which order,
 * and what lies where in shared memory. */
#ifndef COPES_BACKENDS_CUDA_SEQUENCE_UNIT_H
#define COPES_BACKENDS_CUDA_SEQUENCE_UNIT_H

#include "backends/cuda/ptx/copies.h"
#include "backends/cuda/ptx/mbarrier.h"
#include "backends/cuda/ptx/memory.h"
#include "backends/cuda/sequence/methods.h"
#include "backends/gpu/sequence/column.h"

namespace COPES_GPU::sequence
{

using namespace ptx;

/* The blocks that have a slab together: those of a cluster, which write to each other's shared memory, or a group of any
 * number, up to all that the device runs at once, which tell each other through memory. */
enum class scope { cluster, group };

/* One instance of the kernel: a unit is a thread's part of a token, 16 bytes of columns, and LANES of them are a slab's
 * width. */
template <typename Type, coding CODING, role ROLE, int LANE_COUNT, scope SCOPE = scope::cluster> struct unit_of {
    typedef Type T;
    static constexpr coding C = CODING;
    static constexpr role R = ROLE;
    static constexpr bool GROUPED = SCOPE == scope::group;
    static constexpr bool BACKWARD = R != role::forward, ROTATED = C != coding::none;
    static constexpr bool TERMS = R != role::given, SUMMED = R == role::forward;
    static constexpr encoding E = C == coding::cosine        ? encoding::cosine
                                  : C == coding::interleaved ? encoding::interleaved
                                                             : encoding::half;
    /* Forward, rotations go through fewer and larger steps. */
    static constexpr bool STRIDES = !BACKWARD && ROTATED;
    static constexpr int LANES = LANE_COUNT;
    static constexpr int WARPS = !ROTATED ? (LANES < 8 ? 15 : 16) : STRIDES || GROUPED ? 8 : 11; /* that have tokens */
    static constexpr int OTHERS = GROUPED ? 3 : 1; /* warps that exchange */
    static constexpr int THREADS = 32 * WARPS, BLOCK = THREADS + 32 * OTHERS, ROWS = THREADS / LANES;
    static constexpr int N = vector_length<T>, V = C == coding::cosine ? N : N / 2; /* columns, and their angles */
    static constexpr int COLUMNS = LANES * N, ANGLES = ROTATED ? LANES * V : 1;     /* of a slab */
    /* What of a finished column is made of its sums: the factor, and the offset of a gradient times that. */
    static constexpr int SCALE = 0, OFFSET = TERMS, FINISHED = OFFSET + BACKWARD;
    static constexpr bool RECOMPUTES = TERMS || GROUPED;     /* slabs that it cannot agree on */
    static constexpr int WIDE = C == coding::cosine ? 2 : 1; /* pieces of a gradient's unit */
    static constexpr int KEPT = BACKWARD ? 1 + WIDE : 1;     /* pieces of a token */
    /* Gradients of pairs are turned back as they are read, as far as the thread's first token, and as they are written;
     * those of a cosine and a sine once, and lie where they were, in floats. */
    static constexpr bool PAIRED = BACKWARD && ROTATED && WIDE == 1, DECODED = BACKWARD && WIDE == 2;
    static constexpr int BATCH = GROUPED && R == role::given ? 1 : STRIDES ? 4 : 2; /* tokens of a step */
    static constexpr int SPAN = BACKWARD ? 1 : 2;  /* tokens with one advance for their rotations */
    static constexpr int AHEAD = KEPT > 1 ? 2 : 3; /* steps whose copies are under way */
    static constexpr uint32_t PIECE = 16 * THREADS, SLOT = BATCH * KEPT * PIECE;
};

/* A thread's way through a tensor, in bytes: from a token to its next, and from where that of a slab's last step would be
 * to the first of the next batch entry. */
struct thread_strides {
    int64_t token, entry;
};

/* How the work is cut at run time. The units of all heads, one head after the other, are shared out by LANES: a share is
 * called a pair, and has one slab for each batch entry. */
struct slab_tiling {
    int ranks; /* blocks of a cluster or group, and further down a group is a cluster, too */
    int steps; /* of a thread through a slab */
    int skew;  /* steps in which the cluster comes to agree */
    int slots; /* of the ring: a slab's steps, the skew, and those of copies under way */
    int units; /* of a head */
    int pairs, batch;
    int sets;    /* of rotations that may be in use at once */
    bool around; /* are the 128 bytes that a piece is of asked for at once? */
    int clusters;
    thread_strides x, g, to; /* x, what else is read, and the result */
    int whole, rounds;       /* pairs that a cluster takes through all of the batch, and its slabs of those */
    uint64_t *totals;        /* of what the blocks of groups find, in memory */
};

/* A block's dynamic shared memory: this, then the ring, the columns that each rank sends, and the rotations from a thread's first step to its others. */
template <typename U> struct block_memory {
    static constexpr int OPEN = U::GROUPED ? 4 : 1; /* slabs that are agreed on at once, at most */
    static constexpr int SETS = U::GROUPED ? 8 : 4; /* slabs whose references may be in use at once */
    static constexpr int MOST = 8192;               /* slabs of a cluster */

    float partial[U::WARPS][U::COLUMNS]; /* each warp's sums: of terms, backward of terms times gradients */
    float reference[SETS][U::COLUMNS];
    alignas(16) typename U::T limit[SETS][U::COLUMNS]; /* elements up to here are not too large for it */
    float finished[OPEN][U::FINISHED][U::COLUMNS];
    bool skipped[OPEN];        /* is a slab to be recomputed? */
    uint32_t unfit[MOST / 32]; /* a bit for each */
    uint64_t summed[1], taken[1], agreed[OPEN], prepared[SETS], done[OPEN], received[2];
    alignas(16) char rest[];

    static size_t bytes(const slab_tiling &t)
    {
        return sizeof(block_memory) + RING_ALIGNMENT + ring_bytes(t) +
               2 * sending_ranks(t) * U::COLUMNS * sizeof(float) +
               t.sets * (rotations_of(t) * sizeof(rotation) + steps_bytes());
    }
    static constexpr uint32_t RING_ALIGNMENT = 512;
    __host__ __device__ static int sending_ranks(const slab_tiling &t)
    {
        return U::GROUPED ? 0 : t.ranks;
    }
    __host__ __device__ static constexpr int steps_bytes()
    {
        return U::ROTATED ? (U::ANGLES * (int)sizeof(angle_step) + 15) / 16 * 16 : 0;
    }
    __host__ __device__ static int ring_bytes(const slab_tiling &t)
    {
        return t.slots * U::SLOT;
    }
    __host__ __device__ static int rotations_of(const slab_tiling &t)
    {
        return U::ROTATED ? t.steps * (U::BATCH / U::SPAN) * U::ANGLES : 0;
    }
    DEVICE block_memory *get()
    {
        return reinterpret_cast<block_memory *>(dynamic_shared());
    }
    DEVICE uint32_t ring()
    {
        return (shared_address(get()->rest) + RING_ALIGNMENT - 1) / RING_ALIGNMENT * RING_ALIGNMENT;
    }
    DEVICE float *ranks(const slab_tiling &t, uint32_t set)
    {
        return reinterpret_cast<float *>(get()->rest + RING_ALIGNMENT + ring_bytes(t)) +
               set * sending_ranks(t) * U::COLUMNS;
    }
    DEVICE rotation *rotations(const slab_tiling &t, int set)
    {
        return reinterpret_cast<rotation *>(ranks(t, 2)) + set * rotations_of(t);
    }
    DEVICE angle_step *steps(const slab_tiling &t, int set)
    {
        return reinterpret_cast<angle_step *>(reinterpret_cast<char *>(rotations(t, t.sets)) + set * steps_bytes());
    }
    __device__ __forceinline__ bool fits(int slab) const
    {
        return (unfit[slab / 32] >> slab % 32 & 1) == 0;
    }
};

/* Which cluster or group a block is of, and its number there. Groups take blocks in turn, so that neighbours on the device,
 * above all pairs of multiprocessors, have the same tokens of neighbouring slabs: lines of memory that are of two slabs
 * are much faster to read and write from one place. */
struct group_member {
    int cluster, rank;
};

template <typename U> DEVICE group_member find_block(const slab_tiling &t)
{
    const int block = (int)blockIdx.x;
    if (U::GROUPED)
        return {block % t.clusters, block / t.clusters};
    return {block / t.ranks, (int)cluster_rank()};
}

/* A cluster's way through its slabs. As long as there is a pair for every cluster they stay with it for the whole
 * batch, whose angles are the same; what is left they share slab by slab. At any time clusters work side by side in
 * memory. */
struct slab_walk {
    const slab_tiling &tiling;
    const int cluster;
    int slab, b, pair;

    __device__ __forceinline__ slab_walk(const slab_tiling &tiling, int cluster) : tiling(tiling), cluster(cluster)
    {
        restart();
    }
    __device__ __forceinline__ void restart()
    {
        slab = b = 0;
        pair = cluster;
        if (tiling.rounds == 0)
            share();
    }
    __device__ __forceinline__ int count() const
    {
        const int shared = (tiling.pairs - tiling.whole) * tiling.batch;
        return tiling.rounds + (shared - cluster + tiling.clusters - 1) / tiling.clusters;
    }
    __device__ __forceinline__ void share()
    {
        const int at = (slab - tiling.rounds) * tiling.clusters + cluster, rest = tiling.pairs - tiling.whole;
        b = rest > 0 ? at / rest : 0;
        pair = tiling.whole + at - b * rest;
    }
    /* The slabs from here on that are known to be of the same pair, one batch entry after another. */
    __device__ __forceinline__ int following() const
    {
        return slab < tiling.rounds ? tiling.batch - b : 1;
    }
    /* True where the next is one of them. */
    __device__ __forceinline__ bool next()
    {
        if (__builtin_expect(++slab >= tiling.rounds, 0)) {
            share();
            return false;
        }
        if (__builtin_expect(++b < tiling.batch, 1))
            return true;
        b = 0;
        pair += tiling.clusters;
        return false;
    }
    /* To the first that is not. */
    __device__ __forceinline__ void leave_pair()
    {
        const int others = following() - 1;
        slab += others;
        b += others;
        next();
    }
};

/* Waits at the mbarrier of a slab, of some that slabs take turns at. */
template <int COUNT> DEVICE void wait_for_slab(const uint64_t (&mbarriers)[COUNT], int slab)
{
    mbarrier_wait(shared_address(&mbarriers[(uint32_t)slab % COUNT]), (uint32_t)slab / COUNT % 2);
}
template <int COUNT> DEVICE void arrive_for_slab(const uint64_t (&mbarriers)[COUNT], int slab)
{
    mbarrier_arrive(shared_address(&mbarriers[(uint32_t)slab % COUNT]));
}

/* Which of a head's units a lane of a slab has. */
struct head_unit {
    int head, unit;
};

/* Where a thread is. It is held by value: the compiler loses sight of what is behind references, and would read the
 * kernel's arguments from memory in every step. Units whose halves lie apart are copied to shared memory in pieces of 16
 * bytes all the same, by two neighbouring threads for each other: the first halves of a warp's units, then the second,
 * in an order in which neither the copies nor the reading meets a bank twice. */
template <typename U> struct worker {
    typedef typename U::T T;
    static constexpr uint32_t APART = 256 + 64; /* the bits in which the second half's place differs from the first's */
    const copes_lrpe_problem &problem;
    const slab_tiling &tiling;
    group_member block;
    int lane, row;
    int count;       /* slabs */
    int tokens;      /* the thread's, of a slab */
    uint32_t mine;   /* the thread's first piece in the ring */
    uint32_t apart;  /* from there to the other half, if it lies apart */
    uint32_t copied; /* the first piece that the thread copies there */

    __device__ __forceinline__ worker(const copes_lrpe_problem &problem, const slab_tiling &tiling)
        : problem(problem), tiling(tiling), block(find_block<U>(tiling)), lane((int)threadIdx.x % U::LANES),
          row((int)threadIdx.x / U::LANES), count(walk().count())
    {
        const uint32_t warp = block_memory<U>::ring() + threadIdx.x / 32 * 512, pair = threadIdx.x % 32 / 2;
        const bool odd = threadIdx.x % 2 != 0;
        mine = U::C == coding::half ? warp + pair * 16 + odd * 8 : warp + threadIdx.x % 32 * 16;
        apart = (mine ^ APART) - mine;
        copied = U::C == coding::half ? (warp + pair * 16) ^ (odd ? APART : 0) : mine;
        tokens = ((int)problem.n - first_token() + token_step() - 1) / token_step();
    }
    /* From the first slab on. */
    __device__ __forceinline__ slab_walk walk() const
    {
        return slab_walk(tiling, block.cluster);
    }
    __device__ __forceinline__ int first_token() const
    {
        return block.rank * U::ROWS + row;
    }
    __device__ __forceinline__ int token_step() const
    {
        return tiling.ranks * U::ROWS;
    }
    __device__ __forceinline__ head_unit find(int pair, int lane) const
    {
        const int at = pair * U::LANES + lane, head = at / tiling.units;
        return {head, at - head * tiling.units};
    }
    /* The feature that column i of a unit is. */
    __device__ __forceinline__ int64_t feature(int unit, int i) const
    {
        if (U::C != coding::half)
            return (int64_t)unit * U::N + i;
        return (int64_t)unit * U::V + (i < U::V ? i : problem.k + i - U::V);
    }
    /* Column i of a lane's unit in a slab's first token. */
    __device__ __forceinline__ T *column(const copes_view &view, const slab_walk &at, int lane, int i) const
    {
        const head_unit u = find(at.pair, lane);
        return static_cast<T *>(view.data) + at.b * view.stride[0] + u.head * view.stride[2] + feature(u.unit, i);
    }
    /* The thread's unit of its first token in a slab, and the piece of it, or of its neighbour's, that it copies. */
    __device__ __forceinline__ T *unit(const copes_view &view, const slab_walk &at) const
    {
        return column(view, at, lane, 0) + first_token() * view.stride[1];
    }
    __device__ __forceinline__ const T *piece(const copes_view &view, const slab_walk &at) const
    {
        const bool odd = U::C == coding::half && lane % 2 != 0;
        return column(view, at, lane - odd, odd ? U::V : 0) + first_token() * view.stride[1];
    }
    __device__ __forceinline__ float *lse(const slab_walk &at, int lane, int i) const
    {
        const head_unit u = find(at.pair, lane);
        return static_cast<float *>(problem.lse.data) + at.b * problem.lse.stride[0] + u.head * problem.lse.stride[1] +
               feature(u.unit, i) * problem.lse.stride[2];
    }
};

/* Column i of a unit's gradient, turned back, is its own element times the cosine and its partner's times the sine, or the
 * opposite. */
template <typename U> struct rotated_column {
    __host__ __device__ static constexpr int partner(int i)
    {
        return U::C == coding::interleaved ? i ^ 1 : (i + U::V) % U::N;
    }
    __host__ __device__ static constexpr int angle(int i)
    {
        return U::C == coding::interleaved ? i / 2 : i % U::V;
    }
    DEVICE float sine(int i, const rotation &by)
    {
        const bool opposite = U::C == coding::interleaved ? i % 2 != 0 : i >= U::V;
        return opposite ? -by.sine : by.sine;
    }
};

/* The place in the ring after another. */
template <typename U> DEVICE uint32_t next_slot(const slab_tiling &t, uint32_t slot)
{
    return slot + U::SLOT == t.slots * U::SLOT ? 0 : slot + U::SLOT;
}

/* Waits for the warp, where neighbours copy for each other. */
template <typename U> DEVICE void pair_sync()
{
    if (U::C == coding::half)
        __syncwarp();
}

/* The thread's unit, some whole pieces after its first. */
template <typename U> DEVICE uint4 read_unit(const worker<U> &w, uint32_t pieces)
{
    const uint32_t place = w.mine + pieces;
    return U::C == coding::half ? ld_shared_128(place, place + w.apart) : ld_shared_128(place);
}

} // namespace COPES_GPU::sequence

#endif
