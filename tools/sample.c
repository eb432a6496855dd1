/* copes sample: a safetensors file of random x and RoPE's theta, to try `copes run` on. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/safetensors.h"
#include "tools/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes sample OUT.safetensors [FLAG ...]\n"
    "\n"
    "Writes x (B, N, H, D) of normal random numbers, and theta (1, D / 2) of RoPE with base 10000 in float32.\n"
    "  --batch B                   default 2\n"
    "  --n N                       default 1024\n"
    "  --head H                    default 12\n"
    "  --dim D                     default 128\n"
    "  --dtype f64|f32|f16|bf16    of x; default bf16\n"
    "  --seed S                    the same seed gives the same file; default 0\n";

void help_sample(FILE *stream, const char *op)
{
    (void)op;
    fputs(help, stream);
}

enum { BATCH, N, HEAD, DIM };

typedef struct sample {
    const char *path;
    int64_t shape[4]; /* BATCH, N, HEAD, DIM */
    int32_t dtype;    /* a safetensors_dtype: the choices are in its order */
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

static int write_sample(const sample *wish, const float *theta, safetensors_tensor *x)
{
    char reason[SAFETENSORS_REASON];
    uint64_t state = (uint64_t)wish->seed;
    void *data = malloc(x->size + 1);
    if (data == NULL)
        return complain(EXIT_FAILED, "no memory for the %zu bytes of x", x->size);
    for (size_t i = 0; i < x->size / safetensors_dtype_size(x->dtype); i++)
        put(data, i, wish->dtype, next_normal(&state));
    x->data = data;
    const safetensors_tensor tensors[] =
        {*x, {.name = "theta", .dtype = SAFETENSORS_F32, .rank = 2, .shape = {1, wish->shape[DIM] / 2}, .data = theta}};
    const bool ok = safetensors_save(wish->path, tensors, 2, reason);
    free(data);
    return ok ? 0 : complain(EXIT_FAILED, "%s: %s", wish->path, reason);
}

static int make_sample(const sample *wish)
{
    safetensors_tensor x = {.name = "x", .dtype = (safetensors_dtype)wish->dtype, .rank = 4};
    memcpy(x.shape, wish->shape, sizeof wish->shape);
    if (!safetensors_size(&x, &x.size) || x.size == SIZE_MAX)
        return complain(EXIT_USAGE, "the size of x in bytes does not fit 63 bits");
    const int64_t angles = wish->shape[DIM] / 2;
    float *theta = malloc((size_t)angles * sizeof *theta + 1);
    if (theta == NULL)
        return complain(EXIT_FAILED, "no memory for a theta of %lld angles", (long long)angles);
    for (int64_t i = 0; i < angles; i++)
        theta[i] = (float)pow(10000, -(double)i / (double)angles);
    const int status = write_sample(wish, theta, &x);
    free(theta);
    return status;
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
        if (kind == ARGUMENTS_WORD && wish.path != NULL)
            return complain(EXIT_USAGE, "\"%s\": sample takes one file", walk.word);
        if (kind == ARGUMENTS_WORD)
            wish.path = walk.word;
        else if (!read_flag(&walk, &wish))
            return EXIT_USAGE;
    }
    if (wish.path == NULL)
        return complain(EXIT_USAGE, "sample needs the file to write");
    if (wish.shape[DIM] % 2 != 0)
        return complain(EXIT_USAGE, "--dim is %lld; it must be even", (long long)wish.shape[DIM]);
    return make_sample(&wish);
}
