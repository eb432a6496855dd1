/* Runs a grid of waves for emulate.py, with what a chip leaves undefined filled with garbage, and has the instructions that
 * tinygrad's emulator lacks. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WAVE = 32,
    SCALARS = 320, /* 128 registers, then constants and the emulator's own */
    VECTORS = 256,
    PAGE = 4096,
    BUFFERS = 8,
    MOST_WAVES = 32,
    MOST_TURN = 40,        /* instructions of a wave before another's turn, by lot */
    MOST_ALONE = 50000000, /* and where waves run one after the other: then it hangs */
    NULL_REGISTER = 124,
    EXEC_LOW = 126,
    EXEC_HIGH = 127,
    CONSTANTS = 128,
    PC_LOW = 256,
    PC_HIGH = 257
};

enum { DONE, FAULT, NOT_TRANSLATED, TOO_LONG }; /* what run_grid returns */
enum { IN_TURN, BACKWARDS, BY_LOT };            /* the order of waves */

typedef void instruction(void *, void *, void *, void *, void *, void *, void *, void *);
typedef struct entry {
    instruction *run;
    uint8_t map[BUFFERS]; /* which buffer is each of its arguments */
    uint64_t barrier, known;
} entry;
typedef int translate(uint64_t place);

typedef struct wave {
    uint32_t *s, *v;
    int done, waits;
} wave;

typedef struct grid_run {
    uint64_t base, start;
    entry *program;
    translate *translator;
    const uint32_t *block, *user;
    int users, order;
    uint32_t resources, count;
    char *local;
    uint64_t local_bytes;
    wave *waves;
} grid_run;

static sigjmp_buf out;
static uint64_t fault_address, fault_pc, executed, seed = 88172645463325252u;

uint64_t get_executed(void)
{
    return executed;
}

uint64_t get_fault_address(void)
{
    return fault_address;
}

uint64_t get_fault_pc(void)
{
    return fault_pc;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    fault_address = (uint64_t)(uintptr_t)info->si_addr;
    siglongjmp(out, 1);
}

static uint32_t garbage(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16) | 1;
}

static uint64_t pc_of(const uint32_t *s)
{
    return s[PC_LOW] | (uint64_t)s[PC_HIGH] << 32;
}

static void set_pc(uint32_t *s, uint64_t pc)
{
    s[PC_LOW] = (uint32_t)pc;
    s[PC_HIGH] = (uint32_t)(pc >> 32);
}

/* Scalars 128 .. are the numbers that instructions have as operands. */
static void set_constants(uint32_t *s)
{
    static const float fractions[8] = {0.5f, -0.5f, 1, -1, 2, -2, 4, -4};
    memset(s + CONSTANTS, 0, (SCALARS - CONSTANTS) * sizeof *s);
    for (int i = 0; i <= 64; i++)
        s[CONSTANTS + i] = (uint32_t)i;
    for (int i = 1; i <= 16; i++)
        s[CONSTANTS + 64 + i] = (uint32_t)-i;
    memcpy(s + 240, fractions, sizeof fractions);
    s[248] = 0x3e22f983; /* 1 / (2 pi) */
}

/* Wave k of the block at (x, y, z) before its first instruction. */
static void begin_wave(const grid_run *g, uint32_t k, const uint32_t at[3])
{
    const uint32_t *block = g->block, threads = block[0] * block[1] * block[2], first = k * WAVE;
    const uint32_t lanes = threads - first < WAVE ? threads - first : WAVE;
    uint32_t *s = g->waves[k].s, *v = g->waves[k].v;
    for (int i = 0; i < CONSTANTS; i++)
        s[i] = garbage();
    for (int i = 0; i < VECTORS * WAVE; i++)
        v[i] = garbage();
    set_constants(s);
    s[NULL_REGISTER] = 0;
    s[EXEC_LOW] = lanes == WAVE ? UINT32_MAX : (1u << lanes) - 1;
    s[EXEC_HIGH] = 0;
    set_pc(s, g->start);
    memcpy(s, g->user, (size_t)g->users * sizeof *s);
    for (int axis = 0, next = g->users; axis < 3; axis++)
        if (g->resources >> (7 + axis) & 1)
            s[next++] = at[axis];
    for (uint32_t l = 0; l < lanes; l++) {
        const uint32_t t = first + l;
        v[l] = t / (block[0] * block[1]) << 20 | t / block[0] % block[1] << 10 | t % block[0];
    }
    g->waves[k].done = g->waves[k].waits = 0;
}

/* Runs a wave until it ends, waits, or has had its turn. */
static int run_turn(const grid_run *g, wave *w, int64_t turn)
{
    void *buffers[BUFFERS] = {w->s, w->v, NULL, g->local, NULL, w->v, NULL, g->local};
    for (; turn > 0; turn--) {
        const uint64_t pc = pc_of(w->s);
        if (pc == UINT64_MAX) {
            w->done = 1;
            return DONE;
        }
        entry *e = &g->program[(pc - g->base) / 4];
        fault_pc = pc - g->base;
        if (!e->known && g->translator(pc) != 0)
            return NOT_TRANSLATED;
        e->run(buffers[e->map[0]], buffers[e->map[1]], buffers[e->map[2]], buffers[e->map[3]], buffers[e->map[4]],
               buffers[e->map[5]], buffers[e->map[6]], buffers[e->map[7]]);
        executed++;
        if (e->barrier) {
            w->waits = 1;
            return DONE;
        }
    }
    return g->order == BY_LOT ? DONE : TOO_LONG;
}

static uint32_t waves_that_go(const grid_run *g)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < g->count; k++)
        count += !g->waves[k].done && !g->waves[k].waits;
    return count;
}

static int all_done(const grid_run *g)
{
    int done = 1;
    for (uint32_t k = 0; k < g->count; k++)
        done &= g->waves[k].done;
    return done;
}

/* Runs the waves of a block from barrier to barrier. */
static int run_block(const grid_run *g)
{
    while (!all_done(g)) {
        for (uint32_t k = 0; k < g->count; k++)
            g->waves[k].waits = 0;
        while (waves_that_go(g) > 0)
            for (uint32_t j = 0; j < g->count; j++) {
                const uint32_t k = g->order == IN_TURN     ? j
                                   : g->order == BACKWARDS ? g->count - 1 - j
                                                           : garbage() / 2 % g->count;
                wave *w = &g->waves[k];
                const int status = w->done || w->waits
                                       ? DONE
                                       : run_turn(g, w, g->order == BY_LOT ? garbage() % MOST_TURN + 1 : MOST_ALONE);
                if (status != DONE)
                    return status;
            }
    }
    return DONE;
}

static int run_blocks(const grid_run *g, const uint32_t *grid)
{
    for (uint32_t z = 0; z < grid[2]; z++)
        for (uint32_t y = 0; y < grid[1]; y++)
            for (uint32_t x = 0; x < grid[0]; x++) {
                for (uint64_t i = 0; i < g->local_bytes / 4; i++)
                    ((uint32_t *)(void *)g->local)[i] = garbage();
                for (uint32_t k = 0; k < g->count; k++)
                    begin_wave(g, k, (uint32_t[3]){x, y, z});
                const int status = run_block(g);
                if (status != DONE)
                    return status;
            }
    return DONE;
}

/* An access outside of what is allocated ends the grid. */
static int run_guarded(const grid_run *g, const uint32_t *grid)
{
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, segv, bus;
    sigaction(SIGSEGV, &act, &segv);
    sigaction(SIGBUS, &act, &bus);
    const int status = sigsetjmp(out, 1) == 0 ? run_blocks(g, grid) : FAULT;
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
    return status;
}

/* Local memory ends where a page begins that nobody may touch, and one lies before it. */
int run_grid(uint64_t base, entry *program, translate *translator, uint64_t start, const uint32_t *grid,
             const uint32_t *block, const uint32_t *user, int users, uint32_t resources, uint64_t local_bytes,
             int order)
{
    const uint32_t threads = block[0] * block[1] * block[2], count = (threads + WAVE - 1) / WAVE;
    const uint64_t pages = (local_bytes + PAGE - 1) / PAGE * PAGE;
    wave waves[MOST_WAVES];
    if (count > MOST_WAVES)
        return FAULT;
    char *map = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE);
    for (uint32_t k = 0; k < count; k++)
        waves[k] = (wave){aligned_alloc(64, SCALARS * 4), aligned_alloc(64, VECTORS * WAVE * 4 + PAGE), 0, 0};
    const grid_run g = {base,
                        start,
                        program,
                        translator,
                        block,
                        user,
                        users,
                        order,
                        resources,
                        count,
                        map + PAGE + (pages - local_bytes) / 16 * 16,
                        local_bytes,
                        waves};
    const int status = run_guarded(&g, grid);
    for (uint32_t k = 0; k < count; k++) {
        free(waves[k].s);
        free(waves[k].v);
    }
    munmap(map, pages + 2 * PAGE);
    return status;
}

static int ulps;

void set_ulps(int most)
{
    ulps = most;
}

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The result of an approximate instruction: either neighbour of the exact one, as a hash of the argument says, and for more
 * than one ulp so many further on. Subnormal results are 0. (The nearest moved by 1 would be 1.5 off, more than the manuals
 * promise, and LLVM's integer division by v_rcp_iflag_f32 then fails.) */
static float moved(double exact, float argument)
{
    const float nearest = (float)exact;
    if (fabs(exact) < 0x1p-126)
        return copysignf(0, nearest);
    if (ulps == 0 || !isfinite(nearest) || nearest == 0)
        return nearest;
    uint32_t hash;
    memcpy(&hash, &argument, sizeof hash);
    hash *= 2654435761u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    hash ^= hash >> 13;
    const float away = (double)nearest < exact ? INFINITY : -INFINITY;
    const float other = (double)nearest == exact ? nearest : nextafterf(nearest, away);
    float result = hash & 1 ? other : nearest;
    const float further = result == other ? away : -away;
    for (int by = 1; by < ulps; by++)
        result = nextafterf(result, further);
    return result;
}

float approximate_exp2(float x)
{
    return isnan(x) ? x : moved(exp2((double)flushed(x)), x);
}

float approximate_rcp(float x)
{
    return isnan(x) ? x : moved(1 / (double)flushed(x), x);
}

float approximate_sqrt(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(sqrt((double)flushed(x)), x);
}

float approximate_rsq(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(1 / sqrt((double)flushed(x)), x);
}

float approximate_log2(float x)
{
    return isnan(x) || x < 0 ? NAN : moved(log2((double)flushed(x)), x);
}

float round_to_even(float x)
{
    return rintf(x);
}

float scale_by_power(float x, int32_t exponent)
{
    return ldexpf(x, exponent > 1000 ? 1000 : exponent < -1000 ? -1000 : exponent);
}

int32_t to_int(float x)
{
    return isnan(x) ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

uint32_t to_unsigned(float x)
{
    return !(x > 0) ? 0 : x >= 0x1p32f ? UINT32_MAX : (uint32_t)x;
}

/* An instruction of 8 bytes that there is nothing to do for. */
void skip_8(uint32_t *s)
{
    set_pc(s, pc_of(s) + 8);
}

/* S_GETPC_B64. */
void get_pc(uint32_t *s)
{
    const uint64_t at = pc_of(s), next = at + 4;
    const uint32_t to = *(const uint32_t *)(uintptr_t)at >> 16 & 0x7f;
    set_pc(s, next);
    s[to] = (uint32_t)next;
    s[to + 1] = (uint32_t)(next >> 32);
}
