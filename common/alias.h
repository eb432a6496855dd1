/* What of a call may share memory with what. */
#ifndef COPES_COMMON_ALIAS_H
#define COPES_COMMON_ALIAS_H

#include "common/family.h"

/* ALIAS where an output overlaps another tensor, unless it replaces an input as the operator allows. Tensors without
 * data overlap nothing: for the size of a workspace they need none yet. */
copes_status copes_check_aliases(const copes_call *call);

/* ALIAS where the `size` bytes at `workspace`, which the backend uses, overlap a tensor. */
copes_status copes_check_workspace(const copes_call *call, void *workspace, size_t size);

/* ALIAS where what copes_infer writes (an output's DLTensor and the lengths of call->spec) overlaps another tensor's
 * DLTensor, shape or strides: the input would then describe memory that it does not have. */
copes_status copes_check_descriptions(const copes_call *call, const copes_args *args);

#endif
