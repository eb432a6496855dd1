/* Streaming copies and peak multiply-adds: 12 independent chains of vectors cover the units' latency on every x86-64
 * core so far (two units with a latency of 4 or 5), and leave registers for the two constants. */
#include "bench/cpu_probe.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { CHAINS = 12, ROUNDS = 1 << 20, GENERIC_LANES = 4 };

/* Compilers may not drop what ends up here. */
static volatile float sink;

#ifdef __x86_64__

__attribute__((target("avx2"))) static void stream_avx2(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32));
        _mm256_stream_si256((__m256i *)(void *)(to + i), low);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 32), high);
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void stream_avx512(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(void *)(to + i), _mm512_loadu_si512(from + i));
    _mm_sfence();
}

void cpu_copy_streaming(void *to, const void *from, size_t bytes)
{
    const size_t head = (64 - (uintptr_t)to % 64) % 64;
    if (bytes < 128 || !__builtin_cpu_supports("avx2")) {
        memcpy(to, from, bytes);
        return;
    }
    const size_t body = (bytes - head) / 64 * 64;
    memcpy(to, from, head);
    if (__builtin_cpu_supports("avx512f"))
        stream_avx512((char *)to + head, (const char *)from + head, body);
    else
        stream_avx2((char *)to + head, (const char *)from + head, body);
    memcpy((char *)to + head + body, (const char *)from + head + body, bytes - head - body);
}

__attribute__((target("avx2,fma"))) static void multiply_add_avx2(void)
{
    const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
    __m256 chain[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm256_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm256_fmadd_ps(chain[i], factor, term);
    for (int i = 1; i < CHAINS; i++)
        chain[0] = _mm256_add_ps(chain[0], chain[i]);
    sink = _mm256_cvtss_f32(chain[0]);
}

__attribute__((target("avx512f"))) static void multiply_add_avx512(void)
{
    const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
    __m512 chain[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm512_set1_ps((float)i);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_fmadd_ps(chain[i], factor, term);
    for (int i = 1; i < CHAINS; i++)
        chain[0] = _mm512_add_ps(chain[0], chain[i]);
    sink = _mm512_cvtss_f32(chain[0]);
}

#else

void cpu_copy_streaming(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#endif

/* Four lanes are what the baselines have: SSE2 with a multiplication and an addition, NEON with FMA. */
typedef struct lanes {
    float lane[GENERIC_LANES];
} lanes;

/* By one instruction where there is one. */
static float multiply_add(float x)
{
#ifdef __aarch64__
    return __builtin_fmaf(x, 0.999f, 0.001f);
#else
    return x * 0.999f + 0.001f;
#endif
}

static void multiply_add_generic(void)
{
    lanes chain[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        for (int j = 0; j < GENERIC_LANES; j++)
            chain[i].lane[j] = (float)(i + j);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CHAINS; i++)
            for (int j = 0; j < GENERIC_LANES; j++)
                chain[i].lane[j] = multiply_add(chain[i].lane[j]);
    for (int i = 1; i < CHAINS; i++)
        chain[0].lane[0] += chain[i].lane[0];
    sink = chain[0].lane[0];
}

void cpu_multiply_add(cpu_level level)
{
#ifdef __x86_64__
    if (level == CPU_AVX512)
        multiply_add_avx512();
    else if (level == CPU_AVX2)
        multiply_add_avx2();
    else
#endif
        multiply_add_generic();
    (void)level;
}

double cpu_multiply_adds(cpu_level level)
{
    const double lanes_of_level[] = {[CPU_BASELINE] = GENERIC_LANES, [CPU_AVX2] = 8, [CPU_AVX512] = 16};
    return (double)ROUNDS * CHAINS * lanes_of_level[level];
}
