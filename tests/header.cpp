/* The public header compiles by itself as C++17, and its functions keep C's names. */
#include <copes/copes.h>

copes_status header_as_cpp(copes_context *context);

copes_status header_as_cpp(copes_context *context)
{
    copes_op op{};
    op.kind = COPES_LRPE_FORWARD;
    op.lrpe.act = COPES_ACT_SILU;
    copes_args args = {};
    copes_status (*run)(copes_context *, const copes_op *, const copes_args *, void *, size_t) = copes_run;
    return run(context, &op, &args, nullptr, 0);
}
