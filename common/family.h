/* A family of operators as common/ knows it: how its descriptor is checked and turned into a problem. Adding an
 * operator is filling one of these and an entry of the table in ops.c. */
#ifndef COPES_COMMON_FAMILY_H
#define COPES_COMMON_FAMILY_H

#include "common/slots.h"
#include "common/status.h"
#include "common/tensor.h"

/* The sizes of an lrpe call, read off its tensors and attributes. */
typedef struct copes_lrpe_shape {
    int rank;           /* of x: 3 or 4 */
    int64_t b, n, h, d; /* of x */
    int64_t k, e;       /* angles of a head; features of theta */
    int64_t length;     /* tokens in the grid */
    int grid_rank;      /* dimensions of positions, at least 1 */
    int64_t grid[COPES_MAX_GRID];
    bool sectioned, mixed; /* mixed: theta has a row for each dimension, and angles are sums over them */
} copes_lrpe_shape;

/* A call under examination. Its tensors are elsewhere, as one call's may serve another and a stack may be small; there is one for
 * each slot, and a slot without a tensor has copes_absent. */
typedef struct copes_call {
    const copes_op *op;
    const copes_op_info *info;
    const copes_tensor *in[COPES_MAX_INPUTS];
    const copes_tensor *out[COPES_MAX_OUTPUTS];
    copes_spec spec[COPES_MAX_OUTPUTS]; /* what each output must be; filled by check */
    bool infers;                        /* outputs may be there that `out` lacks, as in copes_infer */
    bool accumulate_double;             /* T is float64 */
    copes_passes passes;                /* filled by check, of families that have a softmax in shares */
    copes_lrpe_shape lrpe;              /* filled by lrpe's check, for its plan; of qk's, by its check, that of q */
    bool idle;                          /* set by check: no element of an output is to be written */
} copes_call;

/* What most slots take, as messages say it. */
#define COPES_FLOATING_TYPES "float32, float16 or bfloat16 (on the CPU also float64)"

typedef struct copes_family {
    /* Attributes and inputs: are they right, and what do they make the outputs? May drop an input that the attributes
     * do not need, by putting copes_absent in its place. Of outputs only those that are updated have more than a name by then. */
    copes_status (*check)(copes_call *call);
    /* The problem of a call that passed every check and has something to compute. */
    void (*plan)(const copes_call *call, copes_problem *problem);
    /* The types that input and output slots take, as messages say them; NULL, for a slot or for all: COPES_FLOATING_TYPES. */
    const char *const *types, *const *out_types;
    size_t reserved; /* where the reserved bytes of its attributes begin in copes_op; they go on to its end */
} copes_family;

extern const copes_family copes_family_act, copes_family_lrpe, copes_family_tpa, copes_family_qk, copes_family_merge;

/* An entry of a table of attributes or slots, each in memory of its own, as clients do not know its size. */
#define COPES_ATTRIBUTE(...)                                                                                           \
    &(const copes_attribute_info)                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define COPES_OUT_INFO(slot, extent, may_lack, text, input, exists)                                                    \
    &(const copes_slot_info)                                                                                           \
    {                                                                                                                  \
        .name = slot, .shape = extent, .optional = may_lack, .summary = text, .replaces = input, .updated = exists     \
    }
#define COPES_SLOT_INFO(slot, extent, may_lack, text) COPES_OUT_INFO(slot, extent, may_lack, text, 0, 0)

extern const copes_attribute_info *const copes_act_attribute_table[],
    *const copes_lrpe_attribute_table[], *const copes_tpa_attribute_table[], *const copes_qk_attribute_table[],
                                                                                 *const copes_merge_attribute_table[];
enum {
    COPES_ACT_ATTRIBUTES = 2,
    COPES_LRPE_ATTRIBUTES = 14,
    COPES_TPA_ATTRIBUTES = 8,
    COPES_QK_ATTRIBUTES = 15,
    COPES_MERGE_ATTRIBUTES = 1
};

/* The table's entry of a kind and its family; NULL for an unknown kind. */
const copes_op_info *copes_op_find(copes_kind kind, const copes_family **family);

/* Refusals that families share; all are messages of the form "op: slot ...". */
copes_status copes_require(const copes_call *call, const copes_tensor *tensor, const char *slot, const char *reason);
copes_status copes_check_floating(const copes_call *call, const copes_tensor *tensor);
copes_status copes_check_dtype(const copes_call *call, const copes_tensor *tensor, copes_dtype dtype, const char *like);
copes_status copes_check_shape(const copes_call *call, const copes_tensor *tensor, int rank, const int64_t *shape,
                               const char *like);

/* A softmax in shares: slots of the sums that one pass alone is given or gives. */
typedef struct copes_share_slots {
    int given, made;   /* among inputs, and among outputs */
    bool taken;        /* the softmax is one that may lie in shares */
    const char *where; /* else, as messages say it: which may */
    bool byproduct;    /* the sums may be asked for beside the first output, in one call of both passes */
} copes_share_slots;

/* Which passes the call has, into call->passes; and whether the sums that are given are as `sums` says. */
copes_status copes_check_shares(copes_call *call, const copes_share_slots *slots, const copes_spec *sums,
                                const char *extent);

/* No slot has a tensor. */
static inline void copes_call_clear(copes_call *call)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        call->in[i] = &copes_absent;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        call->out[i] = &copes_absent;
}

static inline bool copes_present(const copes_tensor *tensor)
{
    return tensor->name != NULL;
}

/* Where a tensor's view begins: NULL where the tensor is absent, somewhere where it has no data: as it has no elements,
 * or as the size of a workspace is asked for. NULL would be no address to step from, were it by 0. */
void *copes_view_data(const copes_tensor *tensor);

/* A view of all its dimensions. */
copes_view copes_view_of(const copes_tensor *tensor);

#endif
