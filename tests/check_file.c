/* check_file IN OUT: whether OUT holds what `copes run lrpe_rotate --act silu` must make of IN, element for element,
 * within the suite's bounds of the oracle. tools/dev.sh asks it about the file that it has just written. */
#include "tests/harness/bounds.h"
#include "tools/safetensors.h"

#include <stdlib.h>

static const check_type types[] = {CHECK_F64, CHECK_F32, CHECK_F16, CHECK_BF16}; /* as safetensors_dtype has them */

/* The tensor of this name, widened; its value is NULL where the file has none of a floating-point type. */
static oracle_tensor widen(const safetensors_file *file, const char *name, check_type *type)
{
    oracle_tensor tensor = {.rank = 0};
    const safetensors_tensor *stored = safetensors_find(file, name);
    if (stored == NULL || stored->dtype > SAFETENSORS_BF16)
        return tensor;
    *type = types[stored->dtype];
    tensor.rank = stored->rank;
    for (int i = 0; i < stored->rank; i++)
        tensor.shape[i] = stored->shape[i];
    const int64_t count = oracle_count(&tensor);
    tensor.value = calloc((size_t)count + 1, sizeof *tensor.value);
    for (int64_t i = 0; i < count && tensor.value != NULL; i++)
        tensor.value[i] = check_decode(*type, (const char *)stored->data + i * check_type_of(*type)->size);
    return tensor;
}

/* Compares o with the oracle's; returns how many elements are past the bounds, -1 where memory ran out. */
static int64_t compare(const copes_op *op, oracle_args *args, const oracle_tensor *o, check_type type, double *worst)
{
    oracle_tensor wanted = {.rank = 0};
    oracle_infer(op, args, COPES_LRPE_OUT, &wanted);
    const size_t count = (size_t)oracle_count(&wanted);
    int64_t beyond = 0;
    double *memory = calloc(3 * count + 1, sizeof *memory);
    if (memory == NULL)
        return -1;
    wanted.value = memory;
    wanted.term = memory + count;
    wanted.turn = memory + 2 * count;
    args->out[COPES_LRPE_OUT] = &wanted;
    if (oracle_run(op, args) != 0)
        beyond = -1;
    for (size_t i = 0; i < count && beyond >= 0; i++) {
        const check_bound bound = check_bound_of(op, args, COPES_LRPE_OUT, type, (DLDevice){kDLCPU, 0});
        const check_verdict verdict =
            check_compare(bound, type, wanted.value[i], wanted.term[i], wanted.turn[i], o->value[i]);
        beyond += verdict.beyond;
        *worst = verdict.ulps > *worst ? verdict.ulps : *worst;
    }
    args->out[COPES_LRPE_OUT] = NULL;
    free(memory);
    return beyond;
}

static bool same_shape(const oracle_tensor *a, const oracle_tensor *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static int check_files(const safetensors_file *in, const safetensors_file *out)
{
    check_type type = CHECK_F32, theta_type = CHECK_F32, o_type = CHECK_TYPES;
    const copes_op op = {.kind = COPES_LRPE_FORWARD, .lrpe = {.variant = COPES_LRPE_ROTATE, .act = COPES_ACT_SILU}};
    oracle_tensor x = widen(in, "x", &type), theta = widen(in, "theta", &theta_type), o = widen(out, "o", &o_type);
    oracle_args args = {.in = {[COPES_LRPE_X] = &x, [COPES_LRPE_THETA] = &theta}};
    args.tiny = check_type_of(type == CHECK_F64 ? CHECK_F64 : CHECK_F32)->normal;
    int64_t beyond = -1;
    double worst = 0;
    if (x.value == NULL || theta.value == NULL || o.value == NULL || o_type != type || !same_shape(&x, &o))
        fprintf(stderr, "check_file: x, theta or o is missing, or o has not x's type and shape\n");
    else if ((beyond = compare(&op, &args, &o, type, &worst)) < 0)
        fprintf(stderr, "check_file: out of memory\n");
    else
        printf("%lld elements of %s checked against the oracle: %lld past the bounds, worst error %.3f ulp\n",
               (long long)oracle_count(&o), check_type_of(type)->name, (long long)beyond, worst);
    free(x.value);
    free(theta.value);
    free(o.value);
    return beyond != 0;
}

int main(int argc, char **argv)
{
    safetensors_file in, out;
    char reason[SAFETENSORS_REASON] = "usage: check_file IN OUT";
    if (argc != 3 || !safetensors_open(argv[1], &in, reason)) {
        fprintf(stderr, "check_file: %s\n", reason);
        return 2;
    }
    if (!safetensors_open(argv[2], &out, reason)) {
        fprintf(stderr, "check_file: %s\n", reason);
        safetensors_close(&in);
        return 2;
    }
    const int status = check_files(&in, &out);
    safetensors_close(&in);
    safetensors_close(&out);
    return status;
}
