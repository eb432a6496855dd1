/* The fitted constants of tpa_decode's cost model. They were fitted to times on an H200. This command measures the
 * times again:
 *
 *     copes bench tpa_decode --device cuda --replay
 *
 * COPES_GPU_VARIANT=tpa_mma before it makes tpa_mma run where tpa_wgmma would. To refit a constant, change it, run
 * the command, and keep the value that gains rows and loses none. The constants change which cut a planner picks.
 * They change no kernel.
 *
 * The model counts in keys: one key is the time in which a multiprocessor reads a key's bytes at its share of the
 * memory's rate. A constant in bytes is divided by the bytes of a key. */
#ifndef COPES_BACKENDS_CUDA_TPA_FITTED_H
#define COPES_BACKENDS_CUDA_TPA_FITTED_H

namespace COPES_GPU::tpa::fitted
{

/* ---- cut.h: clusters and parts -------------------------------------------------------------------------------- */

/* The cost of a cluster's merging, in keys for each of its blocks. */
inline constexpr double KEYS_OF_CLUSTER_BLOCK = 4.0;

/* The cost of merging parts, in bytes. It is about 3 microseconds, the time of a second launch, which once merged
 * them. With two thirds of this value as many calls lose as gain. */
inline constexpr double BYTES_OF_MERGE = 1e5;

/* The limit of partial outputs: this share of the cache, or this number of bytes if it is larger. */
inline constexpr double MOST_PARTIALS = 0.01, LEAST_BYTES_OF_PARTIALS = 0x1p20;

/* ---- wgmma/plan.h -------------------------------------------------------------------------------- */

/* The time of a key's arithmetic, in bytes for each tile of 32 heads: a term for each feature of each rank, and a
 * constant. Measured: 14 clocks a key at 128 features and one tile. The bytes of such a key take 35 clocks. */
inline constexpr double WGMMA_BYTES_OF_FEATURE = 0.5, WGMMA_BYTES_OF_KEY = 128;

/* float32 multiplies this time by WGMMA_F32_SLOWDOWN. Measured: 52 to 57 clocks a key. The bytes of such a key take
 * 67 clocks. */
inline constexpr double WGMMA_F32_SLOWDOWN = 4.25;

/* The latency of a block, in bytes: it forms its query and finishes its outputs. Measured: 5,500 clocks, and 9,000
 * in float32. */
inline constexpr double WGMMA_BYTES_OF_BLOCK = 1e5, WGMMA_F32_BYTES_OF_BLOCK = 1.7e5;

/* ---- mma/plan.h -------------------------------------------------------------------------------- */

/* The time of a key's arithmetic, in bytes for each tile of 16 heads and each feature of each rank. A rank of the
 * keys counts twice. Measured: 26 clocks a key at two tiles, 128 features and rank 1. The bytes of such a key take
 * 35 clocks. */
inline constexpr double MMA_BYTES_OF_FEATURE = 0.625, MMA_F32_BYTES_OF_FEATURE = 3.5;

/* A factor of this time if consumers read every stage of the ring, so that no slot can be filled meanwhile. */
inline constexpr double MMA_SLOWDOWN_WITHOUT_SPARE_STAGE = 1.3;

/* The latency of a block, in keys for each tile of 16 heads. Measured: some 700 clocks a tile. */
inline constexpr double MMA_KEYS_OF_TILE = 20.0;

} // namespace COPES_GPU::tpa::fitted

#endif
