/* The public header compiles by itself as C11, with every warning on; its constants are what they say. */
#include <copes/copes.h>

_Static_assert(sizeof(((copes_op *)0)->reserved) >= sizeof(copes_lrpe_attributes), "room for attributes to come");
_Static_assert((int)COPES_TPA_KV_LEN < (int)COPES_MAX_INPUTS, "slots fit copes_args");

copes_status header_as_c(copes_context *context, const copes_op *op, const copes_args *args);

copes_status header_as_c(copes_context *context, const copes_op *op, const copes_args *args)
{
    return copes_run(context, op, args, NULL, 0);
}
