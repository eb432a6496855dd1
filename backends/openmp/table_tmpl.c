/* The kernels of this level and type. */
#include "backends/openmp/table.h"
#include "backends/openmp/template.h"

const copes_cpu_kernels TEMPLATE(kernels) = {
    .act = TEMPLATE(act),
    .lrpe = TEMPLATE(lrpe),
    .tpa = TEMPLATE(tpa),
    .lrpe_workspace = TEMPLATE(lrpe_workspace),
    .tpa_workspace = TEMPLATE(tpa_workspace),
};
