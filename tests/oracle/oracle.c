/* The oracle's entry points: which function runs an operator, and by what rule its outputs are judged. */
#include "tests/oracle/internal.h"

#include <float.h>
#include <math.h>

int64_t oracle_count(const oracle_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        count *= tensor->shape[i];
    }
    return count;
}

static oracle_rule rule_of_qk(const copes_op *op, int slot)
{
    if (op->kind == COPES_QK_NORM_ROPE_BACKWARD && (slot == COPES_QK_GRAD_WQ || slot == COPES_QK_GRAD_WK)) {
        return ORACLE_BY_SUM;
    }
    return slot == COPES_QK_V_CACHE ? ORACLE_BY_TERM : ORACLE_BY_NORM;
}

oracle_rule oracle_rule_of(const copes_op *op, int slot)
{
    switch (op->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD:
        if (op->kind == COPES_ACT_FORWARD && slot == COPES_ACT_OUT_MASK) {
            return ORACLE_BY_TERM;
        }
        if (slot != COPES_ACT_OUT) {
            return op->kind == COPES_ACT_BACKWARD ? ORACLE_BY_SUM : ORACLE_BY_LSE;
        }
        return op->act.act == COPES_ACT_SOFTMAX ? ORACLE_BY_ROW : ORACLE_BY_TERM;
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD:
        if (slot != COPES_LRPE_OUT) {
            return op->kind == COPES_LRPE_BACKWARD ? ORACLE_BY_SUM : ORACLE_BY_LSE;
        }
        return op->lrpe.act == COPES_ACT_SOFTMAX ? ORACLE_BY_ROW : ORACLE_BY_TERM;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return rule_of_qk(op, slot);
    case COPES_ATTENTION_MERGE_FORWARD: return slot == COPES_MERGE_OUT_LSE ? ORACLE_BY_LSE : ORACLE_BY_SUM;
    case COPES_ATTENTION_MERGE_BACKWARD: return ORACLE_BY_SUM;
    case COPES_TPA_DECODE: break;
    }
    return slot == COPES_TPA_OUT_LSE ? ORACLE_BY_LSE : ORACLE_BY_ATTENTION;
}

void oracle_infer(const copes_op *op, const oracle_args *args, int slot, oracle_tensor *out)
{
    switch (op->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: {
        const oracle_tensor *like = args->in[op->kind == COPES_ACT_FORWARD ? COPES_ACT_X : COPES_ACT_GRAD_O];
        out->rank = like->rank;
        for (int i = 0; i < like->rank; i++) {
            out->shape[i] = like->shape[i];
        }
        if (op->kind == COPES_ACT_FORWARD && slot == COPES_ACT_OUT_MASK) {
            out->shape[out->rank - 1] = (out->shape[out->rank - 1] + 7) / 8;
        } else if (slot != COPES_ACT_OUT) {
            out->shape[out->rank + (op->act.dim == 0 ? -1 : op->act.dim)] = 1;
        }
        return;
    }
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: oracle_infer_lrpe(op, args, slot, out); return;
    case COPES_TPA_DECODE: oracle_infer_tpa(args, slot, out); return;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: oracle_infer_qk(op, args, slot, out); return;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: oracle_infer_merge(op, args, slot, out); return;
    }
}

int oracle_run(const copes_op *op, const oracle_args *args)
{
    switch (op->kind) {
    case COPES_ACT_FORWARD:
    case COPES_ACT_BACKWARD: return oracle_run_act(op, args);
    case COPES_LRPE_FORWARD:
    case COPES_LRPE_BACKWARD: return oracle_run_lrpe(op, args);
    case COPES_TPA_DECODE: return oracle_run_tpa(op, args);
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return oracle_run_qk(op, args);
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: return oracle_run_merge(op, args);
    }
    return -1;
}

double oracle_size(real size)
{
    return isfinite(size) && size > (real)DBL_MAX ? DBL_MAX : (double)size;
}

void oracle_store(const oracle_number *numbers, oracle_tensor *out)
{
    int64_t count = oracle_count(out);
    for (int64_t i = 0; i < count; i++) {
        out->value[i] = (double)numbers[i].value;
        out->term[i] = oracle_size(numbers[i].term);
        out->turn[i] = oracle_size(numbers[i].turn);
        if (out->room != NULL) {
            out->room[i] = oracle_size(numbers[i].room);
        }
    }
}
