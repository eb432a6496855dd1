/* The environment variables COPES_GPU_ARCH, COPES_GPU_VARIANT and COPES_GPU_MODEL, as copes.h describes them. */
#ifndef COPES_BACKENDS_GPU_ENVIRONMENT_H
#define COPES_BACKENDS_GPU_ENVIRONMENT_H

#include "backends/gpu/queue.h"

namespace COPES_GPU
{

/* Narrows the choice of the planners for a device. */
copes_status read_choice(gpu_device *device);

/* Does COPES_GPU_MODEL describe a device? It then replaces all devices of the machine. */
bool is_modelled();

/* The device that COPES_GPU_MODEL describes. */
copes_status read_model(gpu_device *device);

} // namespace COPES_GPU

#endif
