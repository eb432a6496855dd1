/* The kernels of vectors whose tokens have positions, offsets or an amplitude: columns.cu's and passes.cu's, in a file of their own,
 * as either takes long enough to compile. */
#include "backends/gpu/sequence/columns_plan.h"

namespace COPES_GPU::sequence
{

COPES_ENCODINGS_ANYWHERE(, f32)
COPES_ENCODINGS_ANYWHERE(, f16)
COPES_ENCODINGS_ANYWHERE(, bf16)

} // namespace COPES_GPU::sequence
