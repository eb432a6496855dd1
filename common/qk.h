/* What the files of qk_norm_rope in common/ share. */
#ifndef COPES_COMMON_QK_H
#define COPES_COMMON_QK_H

#include "common/lrpe.h"

/* The slot of the tensor that a side turns: q or k, or the gradient of what became of it. */
static inline int copes_qk_source(const copes_call *call, int side)
{
    return (call->info->backward ? COPES_QK_GRAD_Q_OUT : COPES_QK_Q) + side;
}

/* The rotation of side 0, q, or 1, k, as a call of lrpe. `op` must live as long as `rotation`. */
void copes_qk_rotation(const copes_call *call, int side, copes_op *op, copes_call *rotation);

/* qk_cache.c: the caches, and what goes with them. Notes in call->idle that no token, or no feature, is to be written. */
copes_status copes_qk_check_caches(copes_call *call);

/* qk_plan.c */
void copes_qk_plan(const copes_call *call, copes_problem *out);

#endif
