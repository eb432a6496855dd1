/* act: its attributes, checks, and the canonical problem with dimensions in memory order and merged. */
#include "common/family.h"

const copes_attribute_info *const copes_act_attribute_table[COPES_ACT_ATTRIBUTES] = {
    COPES_ATTRIBUTE("act", COPES_ATTRIBUTE_ENUM, 1, 0, offsetof(copes_op, act.act), -1,
                    "none|relu|sigmoid|silu|softmax", "none", "the activation"),
    COPES_ATTRIBUTE("dim", COPES_ATTRIBUTE_AXIS, 1, 0, offsetof(copes_op, act.dim), -1, NULL, "-1",
                    "softmax's axis, -1 the last one"),
};

static copes_status check_attributes(const copes_call *call, int rank)
{
    const copes_act_attributes *attributes = &call->op->act;
    if (attributes->act < COPES_ACT_NONE || attributes->act > COPES_ACT_SOFTMAX)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: act is %d; it must be COPES_ACT_NONE (0) to COPES_ACT_SOFTMAX (%d)", call->info->name,
                          (int)attributes->act, COPES_ACT_SOFTMAX);
    /* Also where no softmax uses it: whoever gives an axis that the tensor lacks means something else. */
    if (attributes->dim > 0 && attributes->dim < rank)
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: dim is %d; axes count from the end: of rank %d it must be %d",
                          call->info->name, attributes->dim, rank, attributes->dim - rank);
    if (attributes->dim < -rank || attributes->dim > 0)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "%s: dim is %d; with tensors of rank %d it must be %d to -1, or 0 for the last axis",
                          call->info->name, attributes->dim, rank, -rank);
    return COPES_OK;
}

/* May the backward take the forward's output in place of its input? */
static bool takes_either(copes_act act)
{
    return act == COPES_ACT_RELU || act == COPES_ACT_SIGMOID;
}

/* Refuses a backward that lacks what it needs besides grad_o. */
static copes_status require_saved(const copes_call *call, bool of_output)
{
    const copes_act act = call->op->act.act;
    if (of_output)
        return copes_require(call, call->in[COPES_ACT_O], "o", "the backward of softmax needs the forward's output");
    return copes_require(call, call->in[COPES_ACT_X], "x",
                         act == COPES_ACT_RELU
                             ? "the backward of relu needs x, o or mask: the forward's input, output or mask"
                         : takes_either(act) ? "the backward of sigmoid needs x or o: the forward's input or output"
                                             : "the backward of this activation needs the forward's input");
}

/* A bit for each element of the lead. */
static copes_spec mask_of(const copes_tensor *lead)
{
    copes_spec mask = {.dtype = COPES_U8, .rank = lead->rank};
    for (int i = 0; i < lead->rank; i++)
        mask.shape[i] = lead->shape[i];
    int64_t *last = &mask.shape[lead->rank - 1];
    *last = *last / 8 + (*last % 8 != 0);
    return mask;
}

/* relu's mask, which the forward is asked for or the backward is given. */
static copes_status check_mask(copes_call *call, const copes_tensor *lead)
{
    const copes_tensor *given = call->in[COPES_ACT_MASK];
    if (call->op->act.act != COPES_ACT_RELU &&
        (copes_present(given) || (!call->info->backward && copes_present(call->out[COPES_ACT_OUT_MASK]))))
        return copes_fail(COPES_ERROR_ATTRIBUTE, "%s: mask is given; it must be NULL but for relu", call->info->name);
    const copes_spec mask = mask_of(lead);
    if (!call->info->backward)
        call->spec[COPES_ACT_OUT_MASK] = mask;
    if (!copes_present(given))
        return COPES_OK;
    COPES_TRY(copes_check_dtype(call, given, mask.dtype, ""));
    return copes_check_shape(call, given, mask.rank, mask.shape, "as grad_o with a bit for each of its last axis");
}

/* The tensor that the backward needs besides grad_o; drops the one that it does not. */
static copes_status check_saved(copes_call *call, const copes_tensor *lead)
{
    const copes_act act = call->op->act.act;
    const bool of_output = act == COPES_ACT_SOFTMAX || (takes_either(act) && copes_present(call->in[COPES_ACT_O]));
    if (of_output || act == COPES_ACT_NONE)
        call->in[COPES_ACT_X] = &copes_absent;
    if (!of_output)
        call->in[COPES_ACT_O] = &copes_absent;
    if (copes_present(call->in[COPES_ACT_MASK]))
        call->in[COPES_ACT_X] = call->in[COPES_ACT_O] = &copes_absent;
    if (act == COPES_ACT_NONE || copes_present(call->in[COPES_ACT_MASK]))
        return COPES_OK;
    COPES_TRY(require_saved(call, of_output));
    const copes_tensor *saved = call->in[of_output ? COPES_ACT_O : COPES_ACT_X];
    COPES_TRY(copes_check_dtype(call, saved, lead->dtype, "grad_o"));
    return copes_check_shape(call, saved, lead->rank, lead->shape, "as grad_o");
}

/* Of the softmax's rows in shares: as the lead, with 1 along the axis. */
static copes_spec sums_of(const copes_call *call, const copes_tensor *lead)
{
    copes_spec sums = {.dtype = lead->dtype == COPES_F64 ? COPES_F64 : COPES_F32, .rank = lead->rank};
    const int32_t dim = call->op->act.dim;
    for (int i = 0; i < lead->rank; i++)
        sums.shape[i] = lead->shape[i];
    sums.shape[lead->rank + (dim != 0 ? dim : -1)] = 1;
    return sums;
}

static copes_status check_shares(copes_call *call, const copes_tensor *lead)
{
    const copes_share_slots slots = {.given = call->info->backward ? COPES_ACT_DELTA_ALL : COPES_ACT_LSE_ALL,
                                     .made = COPES_ACT_OUT_LSE,
                                     .taken = call->op->act.act == COPES_ACT_SOFTMAX,
                                     .where = "softmax"};
    call->spec[COPES_ACT_OUT_LSE] = sums_of(call, lead);
    return copes_check_shares(call, &slots, &call->spec[COPES_ACT_OUT_LSE],
                              call->info->backward ? "as grad_o with 1 along dim" : "as x with 1 along dim");
}

static copes_status check(copes_call *call)
{
    const copes_tensor *lead = call->in[call->info->backward ? COPES_ACT_GRAD_O : COPES_ACT_X];
    COPES_TRY(copes_check_floating(call, lead));
    if (lead->rank < 1)
        return copes_fail(COPES_ERROR_SHAPE, "%s: %s has rank 0; it must be 1 to %d", call->info->name, lead->name,
                          COPES_MAX_RANK);
    COPES_TRY(check_attributes(call, lead->rank));
    COPES_TRY(check_mask(call, lead));
    if (call->info->backward)
        COPES_TRY(check_saved(call, lead));
    call->spec[COPES_ACT_OUT] = (copes_spec){.dtype = lead->dtype, .rank = lead->rank};
    for (int i = 0; i < lead->rank; i++)
        call->spec[COPES_ACT_OUT].shape[i] = lead->shape[i];
    return check_shares(call, lead);
}

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

enum { TENSORS = 5 };

/* Appends dimension `from` of the tensors to the problem; the sums have nothing along the axis. */
static void append(copes_act_problem *problem, const copes_tensor *const tensors[TENSORS], int from, bool is_axis)
{
    copes_view *const views[TENSORS] = {&problem->src, &problem->saved, &problem->dst, &problem->sums, &problem->mask};
    problem->shape[problem->rank] = tensors[0]->shape[from];
    for (int i = 0; i < TENSORS; i++)
        views[i]->stride[problem->rank] = tensors[i]->stride[from];
    if (is_axis && problem->act == COPES_ACT_SOFTMAX) {
        problem->sums.stride[problem->rank] = 0;
        problem->axis = problem->rank;
    } else if (is_axis) {
        problem->mask_axis = problem->rank;
    }
    problem->rank++;
}

/* Does the mask step through two dimensions as through one? A row then has whole bytes, and one that has a single byte takes no
 * step of its own: the merged dimension has the outer one's. */
static bool mask_merges(const copes_act_problem *problem, int outer, int inner)
{
    const copes_view *mask = &problem->mask;
    const bool along_bits = inner == problem->mask_axis;
    const int64_t steps = along_bits ? problem->shape[inner] / 8 : problem->shape[inner];
    if (outer == problem->mask_axis || (along_bits && problem->shape[inner] % 8 != 0))
        return false;
    return (along_bits && steps == 1) || mask->stride[outer] == mask->stride[inner] * steps;
}

/* Merges the last two dimensions where every tensor steps through them as through one. */
static bool merge_last(copes_act_problem *problem)
{
    const int outer = problem->rank - 2, inner = problem->rank - 1;
    copes_view *const views[TENSORS - 1] = {&problem->src, &problem->saved, &problem->dst, &problem->sums};
    if (outer < 0 || outer == problem->axis || inner == problem->axis)
        return false;
    for (int i = 0; i < TENSORS - 1; i++)
        if (views[i]->data != NULL && views[i]->stride[outer] != views[i]->stride[inner] * problem->shape[inner])
            return false;
    if (problem->mask.data != NULL && !mask_merges(problem, outer, inner))
        return false;
    if (inner != problem->mask_axis || problem->shape[inner] > 8)
        problem->mask.stride[outer] = problem->mask.stride[inner];
    problem->mask_axis = inner == problem->mask_axis ? outer : problem->mask_axis;
    problem->shape[outer] *= problem->shape[inner];
    for (int i = 0; i < TENSORS - 1; i++)
        views[i]->stride[outer] = views[i]->stride[inner];
    problem->rank--;
    return true;
}

/* What one pass alone gives or is given. */
static const copes_tensor *sums_tensor(const copes_call *call)
{
    const int given = call->info->backward ? COPES_ACT_DELTA_ALL : COPES_ACT_LSE_ALL;
    return call->passes == COPES_SECOND_PASS ? call->in[given] : call->out[COPES_ACT_OUT_LSE];
}

static void plan(const copes_call *call, copes_problem *out)
{
    copes_act_problem *problem = &out->act;
    const copes_tensor *src = call->in[call->info->backward ? COPES_ACT_GRAD_O : COPES_ACT_X];
    const bool saves_x = call->info->backward && copes_present(call->in[COPES_ACT_X]);
    const copes_tensor *saved = call->in[saves_x ? COPES_ACT_X : COPES_ACT_O], *dst = call->out[COPES_ACT_OUT];
    const copes_tensor *mask = call->info->backward ? call->in[COPES_ACT_MASK] : call->out[COPES_ACT_OUT_MASK];
    const copes_tensor *sums = sums_tensor(call), *ordered = copes_present(dst) ? dst : src;
    *problem = (copes_act_problem){.act = call->op->act.act,
                                   .passes = call->passes,
                                   .backward = call->info->backward,
                                   .of_output = copes_present(call->in[COPES_ACT_O]),
                                   .dtype = src->dtype,
                                   .axis = -1,
                                   .mask_axis = -1,
                                   .src.data = copes_view_data(src),
                                   .saved.data = copes_view_data(saved),
                                   .dst.data = copes_view_data(dst),
                                   .sums.data = copes_view_data(sums),
                                   .mask.data = copes_view_data(mask)};
    const copes_tensor *const tensors[TENSORS] = {src, saved, dst, sums, mask};
    const int rank = src->rank, axis = rank + (call->op->act.dim != 0 ? call->op->act.dim : -1);
    bool used[COPES_MAX_RANK] = {false};
    for (int round = 0; round < rank; round++) {
        int next = -1;
        for (int i = 0; i < rank; i++)
            if (!used[i] && (next < 0 || magnitude(ordered->stride[i]) > magnitude(ordered->stride[next])))
                next = i;
        used[next] = true;
        const bool is_axis = copes_present(mask) ? next == rank - 1 : problem->act == COPES_ACT_SOFTMAX && next == axis;
        if (src->shape[next] == 1 && !is_axis && (problem->rank > 0 || round + 1 < rank))
            continue;
        append(problem, tensors, next, is_axis);
        while (merge_last(problem)) {
        }
    }
}

static const char *const types[COPES_MAX_INPUTS] = {[COPES_ACT_MASK] = "uint8"};
static const char *const out_types[COPES_MAX_OUTPUTS] = {[COPES_ACT_OUT_MASK] = "uint8"};

const copes_family copes_family_act = {check, plan, types, out_types, offsetof(copes_op, act.reserved)};
