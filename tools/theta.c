/* How many angles a head has follows from attributes that kinds keep in different places: they are found by name. */
#include "tools/theta.h"

#include "tools/operators.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An integer attribute, or element of a list of them; 0 where the kind has none of this name. */
static int64_t integer(const copes_op_info *info, const copes_op *op, const char *name, int index)
{
    for (int i = 0; i < info->attribute_count; i++) {
        const copes_attribute_info *attribute = info->attributes[i];
        int32_t small;
        int64_t large;
        if (strcmp(attribute->name, name) != 0)
            continue;
        if (attribute->type != COPES_ATTRIBUTE_INT64) {
            memcpy(&small, (const char *)op + attribute->offset, sizeof small);
            return small;
        }
        memcpy(&large, (const char *)op + attribute->offset + (size_t)index * sizeof large, sizeof large);
        return large;
    }
    return 0;
}

/* The length of the grid's list. */
static int32_t grid_rank(const copes_op_info *info, const copes_op *op)
{
    int32_t rank = 0;
    for (int i = 0; i < info->attribute_count; i++)
        if (strcmp(info->attributes[i]->name, "grid") == 0)
            memcpy(&rank, (const char *)op + info->attributes[i]->rank_offset, sizeof rank);
    return rank;
}

/* Dimensions of positions: the grid's, or those that a tensor has. What is wrong with them the library says. */
static int64_t count_dimensions(const copes_op_info *info, const copes_op *op, const copes_args *args)
{
    const int slot = operators_slot(info->in, COPES_MAX_INPUTS, "positions");
    const DLTensor *positions = slot >= 0 ? args->in[slot] : NULL;
    const int64_t given = positions != NULL && positions->ndim == 3 ? positions->shape[0] : 1;
    return positions == NULL ? grid_rank(info, op) : given > 0 && given <= COPES_MAX_GRID ? given : 1;
}

/* K where sections share the angles out or there is one dimension, else the least that makes K together. */
int64_t theta_angles(const copes_op_info *info, const copes_op *op, const copes_args *args)
{
    const DLTensor *lead = args->in[info->inplace - 1];
    const bool cosine = integer(info, op, "variant", 0) == COPES_LRPE_COSINE;
    if (lead->ndim == 0)
        return 0;
    const int64_t features = lead->shape[lead->ndim - 1] / (cosine && info->backward != 0 ? 2 : 1);
    const int64_t begin = integer(info, op, "rotary_begin", 0), wished = integer(info, op, "rotary_dim", 0);
    const int64_t left = begin >= 0 && begin < features ? features - begin : features;
    const int64_t rotary_dim = wished > 0 && wished < left ? wished : left;
    const int64_t angles = cosine ? features : rotary_dim / 2, dimensions = count_dimensions(info, op, args);
    bool shared = dimensions > 1;
    for (int i = 0; i < COPES_MAX_GRID; i++)
        shared = shared && integer(info, op, "sections", i) == 0;
    const int64_t each = shared ? (angles + dimensions - 1) / dimensions : angles;
    return each > 0 ? each : 1;
}

float *theta_make(int64_t angles, double base)
{
    float *theta = angles <= 1 << 24 ? malloc((size_t)angles * sizeof *theta) : NULL;
    for (int64_t i = 0; i < angles && theta != NULL; i++)
        theta[i] = (float)pow(base, -(double)i / (double)angles);
    return theta;
}
