/* Rotations of this level and type, compiled with the flags that the kernels have. */
#include "tests/rotations.h"

#include "backends/openmp/angles.h"
#include "backends/openmp/template.h"

#include <stdlib.h>

void TEMPLATE(rotations)(const copes_lrpe_problem *problem, const int64_t *tokens, int64_t count, float *cosine,
                         float *sine)
{
    const bool products = by_products(problem);
    void *memory = malloc((size_t)angles_bytes(problem, 1, 1, products));
    angles a;
    TEMPLATE(angles_open)(&a, problem, 0, 1, 1, products, memory);
    for (int64_t token = 0; token < count; token++) {
        TEMPLATE(angles_make)(&a, problem, 0, tokens[token], 0, 1, 0);
        for (int64_t i = 0; i < problem->k; i++) {
            cosine[token * problem->k + i] = a.cosine[split_place(i)];
            sine[token * problem->k + i] = a.sine[split_place(i)];
        }
    }
    free(memory);
}
