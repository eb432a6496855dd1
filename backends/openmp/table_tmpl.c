/* The kernels of this level and type. */
#include "backends/openmp/table.h"
#include "backends/openmp/template.h"

const copes_cpu_kernels TEMPLATE(kernels) = {
    .act = TEMPLATE(act),
    .lrpe = TEMPLATE(lrpe),
    .lrpe_workspace = TEMPLATE(lrpe_workspace),
};
