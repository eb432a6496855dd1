/* Asking about a call on tensors that have no memory: copes_explain, and the variant that it names. */
#include "tests/harness/run.h"

#include <stdio.h>

void check_read_variant(copes_status status, const char *text, char name[CHECK_VARIANT])
{
    name[0] = '\0';
    if (status == COPES_OK)
        sscanf(text, "variant: %127[^\n]", name);
}

#define ADDRESS ((uintptr_t)1 << 40) /* of the first tensor, and from one to the next: further apart than any is long */

/* An input of check_explain's call. */
static void describe_input(const check_problem *problem, DLDevice device, size_t offset, int slot, check_buffer *pack,
                           check_buffer *in)
{
    const check_case *c = &problem->c;
    const oracle_tensor *tensor = problem->args.in[slot];
    const int64_t packed_head = check_packed_head(c, slot);
    if (packed_head >= 0)
        check_buffer_view(in, pack, packed_head, tensor->shape);
    else
        check_buffer_describe(in, device, problem->in_type[slot], tensor->rank, tensor->shape, check_layout_of(c, slot),
                              ADDRESS * (uintptr_t)(1 + slot) + offset);
}

copes_status check_explain(const check_problem *problem, copes_context *context, DLDevice device, size_t offset,
                           char text[CHECK_PLAN], size_t *workspace)
{
    const check_case *c = &problem->c;
    check_buffer in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS], pack;
    copes_args args = {.in = {NULL}};
    int64_t packed[4];
    if (check_packed_shape(c, packed))
        check_buffer_describe(&pack, device, c->type, 4, packed, check_layout_of(c, 0), ADDRESS + offset);
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (problem->args.in[slot] != NULL) {
            describe_input(problem, device, offset, slot, &pack, &in[slot]);
            args.in[slot] = &in[slot].tensor;
        }
    for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
        if (problem->args.out[slot] != NULL) {
            const oracle_tensor *tensor = problem->args.out[slot];
            const int replaced = check_replaced(c, slot);
            check_buffer_describe(&out[slot], device, problem->out_type[slot], tensor->rank, tensor->shape,
                                  c->out_layout, ADDRESS * (uintptr_t)(1 + COPES_MAX_INPUTS + slot) + offset);
            args.out[slot] = replaced >= 0 ? args.in[replaced] : &out[slot].tensor;
        }
    const copes_status status = copes_workspace_size(context, &c->op, &args, workspace);
    return status == COPES_OK ? copes_explain(context, &c->op, &args, text, CHECK_PLAN) : status;
}

void check_variant_of(const check_problem *problem, copes_context *context, DLDevice device, char name[CHECK_VARIANT])
{
    char text[CHECK_PLAN];
    size_t workspace;
    check_read_variant(check_explain(problem, context, device, 0, text, &workspace), text, name);
}
