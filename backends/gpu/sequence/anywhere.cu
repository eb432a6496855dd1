/* The kernels of vectors whose tokens have positions, offsets or an amplitude: columns.cu's and passes.cu's, in a file of their own,
 * as either takes long enough to compile. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

#if COPES_VECTORS_ANYWHERE
COPES_ENCODINGS_ANYWHERE(, f32)
COPES_ENCODINGS_ANYWHERE(, f16)
COPES_ENCODINGS_ANYWHERE(, bf16)
#endif

} // namespace COPES_GPU::sequence
