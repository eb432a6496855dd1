/* What a `copes run` line asks for. Its flags are the operator's attributes and optional outputs, off the library's
 * table, and the few that concern files and devices. */
#ifndef COPES_TOOLS_REQUEST_H
#define COPES_TOOLS_REQUEST_H

#include <copes/copes.h>
#include <stdbool.h>

typedef struct request {
    const char *name; /* the operator's, as written */
    const copes_op_info *info;
    copes_op op;
    const char *in, *out; /* paths */
    DLDevice device;
    double theta_base;              /* 0: not given */
    uint32_t axes;                  /* bit i: attribute i is an axis that was given, 0 and more from the front */
    int32_t heads_first;            /* tensors of rank 4 are stored (B, H, N, D) */
    bool in_place;                  /* outputs take the memory of inputs that they may replace */
    bool wanted[COPES_MAX_OUTPUTS]; /* outputs to compute and write */
} request;

/* -1 where there is something to run, else the exit status: help was printed, or a complaint was. */
int request_read(int argc, char **argv, request *wish);

/* On a command line axes count from the front, too, as PyTorch's do; to the library they count from the end. What it
 * would refuse is refused here where its message would be about another count. `rank` is that of the input that shapes the
 * first output, 0 where there is none. An exit status. */
int request_resolve_axes(request *wish, int32_t rank);

#endif
