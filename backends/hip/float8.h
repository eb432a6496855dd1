/* Numbers to float8_e4m3fn, as common/float8.h has it. */
#ifndef COPES_BACKENDS_HIP_FLOAT8_H
#define COPES_BACKENDS_HIP_FLOAT8_H

#include "vendor.h"

#include "common/float8.h"

namespace COPES_GPU
{

/* Four of them, the first in the lowest byte. */
DEVICE uint32_t pack_float8(const float (&x)[4])
{
    return copes_float8_word(x);
}

} // namespace COPES_GPU

#endif
