/* A plan as text. */
#ifndef COPES_COMMON_PLAN_H
#define COPES_COMMON_PLAN_H

#include "backends/backend.h"

/* Writes lines, cut to `size` bytes: the variant, how it is launched, its workspace, and the variants that refused. */
void copes_plan_text(const copes_plan *plan, DLDevice device, char *text, size_t size);

#endif
