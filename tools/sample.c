/* copes sample: a safetensors file of random tensors and RoPE's theta, to try `copes run` on. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/operators.h"
#include "tools/safetensors.h"
#include "tools/suggest.h"
#include "tools/theta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes sample OUT.safetensors [OP] [FLAG ...]\n"
    "\n"
    "Writes x (B, N, H, D) of normal random numbers, and theta (1, D / 2) of RoPE with base 10000 in float32. With OP it\n"
    "writes what `copes run OP` reads, the gradients of its backward, too; a cache has N tokens and a query is one, and\n"
    "attention_merge has 4 shares.\n"
    "  --batch B                   default 2\n"
    "  --n N                       default 1024\n"
    "  --head H                    default 12\n"
    "  --dim D                     default 128\n"
    "  --dtype f64|f32|f16|bf16    of random numbers; default bf16\n"
    "  --seed S                    the same seed gives the same file; default 0\n";

void help_sample(FILE *stream, const char *op)
{
    (void)op;
    fputs(help, stream);
}

enum { BATCH, N, HEAD, DIM };

typedef struct sample {
    const char *path;
    const char *operator; /* or NULL */
    int64_t shape[4];     /* BATCH, N, HEAD, DIM */
    int32_t dtype;        /* a safetensors_dtype: the choices are in its order */
    int64_t seed;
} sample;

/* SplitMix64 (Steele et al. 2014), as 53 bits of a number above 0 and below 1. */
static double next_uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller's normal numbers, one of each pair. */
static double next_normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(next_uniform(state)));
    return radius * cos(6.283185307179586 * next_uniform(state));
}

/* A float's upper half, rounded to nearest even. Not for infinities and NaN, which are not drawn. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* For magnitudes below 2^15: counts steps of the half's spacing there, 2^-24 for those below its normal range. */
static uint16_t to_f16(double value)
{
    int exponent;
    const double magnitude = fabs(value);
    frexp(magnitude, &exponent); /* 2^(exponent - 1) <= magnitude */
    exponent = magnitude < 0x1p-14 ? -13 : exponent;
    const long steps = lrint(ldexp(magnitude, 11 - exponent)); /* carries into the exponent by itself */
    const long bits = magnitude < 0x1p-14 ? steps : ((long)(exponent + 13) << 10) + steps;
    return (uint16_t)(bits | (signbit(value) ? 0x8000 : 0));
}

static void put(void *data, size_t index, int32_t dtype, double value)
{
    const float single = (float)value;
    const uint16_t half = dtype == SAFETENSORS_F16 ? to_f16(value) : to_bf16(single);
    switch (dtype) {
    case SAFETENSORS_F64: memcpy((char *)data + index * 8, &value, 8); break;
    case SAFETENSORS_F32: memcpy((char *)data + index * 4, &single, 4); break;
    default: memcpy((char *)data + index * 2, &half, 2); break;
    }
}

/* What is in the file for an operator (NULL: for none), in order. Lengths are letters: B, N, H and D as in the help, C is 2 D,
 * R the rank of a query, S shares. Theta is not random. */
static const struct {
    const char *operator, * name, *shape;
} tensors[] = {{NULL, "x", "BNHD"},
               {NULL, "theta", "1E"},
               {"act", "x", "BNHD"},
               {"act", "grad_o", "BNHD"},
               {"lrpe_rotate", "x", "BNHD"},
               {"lrpe_rotate", "theta", "1E"},
               {"lrpe_rotate", "grad_o", "BNHD"},
               {"lrpe_cosine", "x", "BNHD"},
               {"lrpe_cosine", "theta", "1D"},
               {"lrpe_cosine", "grad_o", "BNHC"},
               {"tpa_decode", "aq", "B1HR"},
               {"tpa_decode", "bq", "B1RD"},
               {"tpa_decode", "ak", "BNH"},
               {"tpa_decode", "bk", "BND"},
               {"tpa_decode", "av", "BNH"},
               {"tpa_decode", "bv", "BND"},
               {"qk_norm_rope", "q", "BNHD"},
               {"qk_norm_rope", "k", "BNHD"},
               {"qk_norm_rope", "theta", "1E"},
               {"qk_norm_rope", "wq", "D"},
               {"qk_norm_rope", "wk", "D"},
               {"qk_norm_rope", "grad_q_out", "BNHD"},
               {"qk_norm_rope", "grad_k_out", "BNHD"},
               {"attention_merge", "o_shares", "SBNHD"},
               {"attention_merge", "lse_shares", "SBNH"},
               {"attention_merge", "grad_o", "BNHD"},
               {"attention_merge", "grad_lse", "BNH"}};

enum { TENSORS = sizeof tensors / sizeof *tensors, MOST = 8, RANK = 16, SHARES = 4 };

static int64_t length_of(const sample *wish, char letter)
{
    switch (letter) {
    case 'B': return wish->shape[BATCH];
    case 'N': return wish->shape[N];
    case 'H': return wish->shape[HEAD];
    case 'C': return 2 * wish->shape[DIM];
    case 'D': return wish->shape[DIM];
    case 'E': return wish->shape[DIM] / 2;
    case 'R': return RANK;
    case 'S': return SHARES;
    default: return 1;
    }
}

/* The tensor's numbers, or NULL with the complaint printed. */
static void *make_data(const safetensors_tensor *tensor, uint64_t *state)
{
    const bool theta = strcmp(tensor->name, "theta") == 0;
    void *data = theta ? theta_make(tensor->shape[1], 10000) : malloc(tensor->size + 1);
    if (data == NULL) {
        complain(EXIT_FAILED, "no memory for the %zu bytes of %s", tensor->size, tensor->name);
        return NULL;
    }
    for (size_t i = 0; !theta && i < tensor->size / safetensors_dtype_size(tensor->dtype); i++)
        put(data, i, tensor->dtype, next_normal(state));
    return data;
}

static int make_tensor(const sample *wish, const char *name, const char *shape, uint64_t *state,
                       safetensors_tensor *tensor)
{
    *tensor = (safetensors_tensor){.name = name, .dtype = (safetensors_dtype)wish->dtype, .rank = (int)strlen(shape)};
    const bool logarithm = strstr(name, "lse") != NULL && wish->dtype != SAFETENSORS_F64;
    if (logarithm || strcmp(name, "theta") == 0)
        tensor->dtype = SAFETENSORS_F32;
    for (int i = 0; i < tensor->rank; i++)
        tensor->shape[i] = length_of(wish, shape[i]);
    if (!safetensors_size(tensor, &tensor->size) || tensor->size == SIZE_MAX)
        return complain(EXIT_USAGE, "the size of %s in bytes does not fit 63 bits", name);
    tensor->data = make_data(tensor, state);
    return tensor->data != NULL ? 0 : EXIT_FAILED;
}

static int make_sample(const sample *wish)
{
    safetensors_tensor made[MOST];
    char reason[SAFETENSORS_REASON];
    uint64_t state = (uint64_t)wish->seed;
    size_t count = 0;
    int status = 0;
    for (size_t i = 0; i < TENSORS && status == 0; i++)
        if (wish->operator == NULL ? tensors[i].operator == NULL
                                   : tensors[i].operator != NULL && strcmp(tensors[i].operator, wish->operator) == 0)
            status = make_tensor(wish, tensors[i].name, tensors[i].shape, &state, &made[count++]);
    if (status == 0 && !safetensors_save(wish->path, made, count, reason))
        status = complain(EXIT_FAILED, "%s: %s", wish->path, reason);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)made[i].data);
    return status;
}

/* The second word. */
static bool read_operator(const char *word, sample *wish)
{
    copes_op op;
    wish->operator= word;
    return operators_find(word, false, &op) != NULL || operators_refuse(word) == 0;
}

static bool read_flag(arguments *walk, sample *wish)
{
    static const char *const lengths[] = {"batch", "n", "head", "dim"};
    for (int i = BATCH; i <= DIM; i++)
        if (strcmp(walk->flag, lengths[i]) == 0)
            return arguments_integer(walk, 1, INT32_MAX, &wish->shape[i]);
    if (strcmp(walk->flag, "seed") == 0)
        return arguments_integer(walk, INT64_MIN, INT64_MAX, &wish->seed);
    if (strcmp(walk->flag, "dtype") == 0)
        return arguments_choice(walk, "f64|f32|f16|bf16", &wish->dtype);
    suggestion nearest = suggest_for(walk->flag);
    suggest_flags(&nearest, help_sample, NULL);
    complain(EXIT_USAGE, "sample has no flag --%s; `copes sample --help` lists those it has%s", walk->flag,
             suggest_text(&nearest, "--"));
    return false;
}

int command_sample(int argc, char **argv)
{
    sample wish = {.shape = {2, 1024, 12, 128}, .dtype = SAFETENSORS_BF16};
    arguments walk = arguments_begin(argc, argv);
    for (arguments_kind kind = arguments_next(&walk); kind != ARGUMENTS_END; kind = arguments_next(&walk)) {
        if (kind == ARGUMENTS_FLAG && strcmp(walk.flag, "help") == 0)
            return fputs(help, stdout) < 0;
        if (kind == ARGUMENTS_WORD && wish.operator!= NULL)
            return complain(EXIT_USAGE, "\"%s\": sample takes one file and one operator", walk.word);
        if (kind == ARGUMENTS_WORD && wish.path == NULL)
            wish.path = walk.word;
        else if (kind == ARGUMENTS_WORD ? !read_operator(walk.word, &wish) : !read_flag(&walk, &wish))
            return EXIT_USAGE;
    }
    if (wish.path == NULL)
        return complain(EXIT_USAGE, "sample needs the file to write");
    if (wish.shape[DIM] % 2 != 0)
        return complain(EXIT_USAGE, "--dim is %lld; it must be even", (long long)wish.shape[DIM]);
    return make_sample(&wish);
}
