/* The regions: one mapping without access, in which each region is opened. */
#include "tests/differential/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TENSOR_BYTES = 1 << 22, WORKSPACE_BYTES = 1 << 24, GUARD = 1 << 20, PAGE = 1 << 12 };

static arena_region regions[ARENA_REGIONS];

static size_t bytes_of(int region)
{
    return region == ARENA_WORKSPACE ? WORKSPACE_BYTES : TENSOR_BYTES;
}

bool arena_open(void)
{
    const size_t total = GUARD + (size_t)ARENA_WORKSPACE * (TENSOR_BYTES + GUARD) + WORKSPACE_BYTES + GUARD;
    unsigned char *at = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return false;
    for (int i = 0; i < ARENA_REGIONS; i++) {
        at += GUARD;
        regions[i] = (arena_region){.low = at, .high = at + bytes_of(i)};
        regions[i].image = i == ARENA_WORKSPACE ? NULL : malloc(bytes_of(i));
        if (mprotect(at, bytes_of(i), PROT_READ | PROT_WRITE) != 0 ||
            (regions[i].image == NULL && i != ARENA_WORKSPACE))
            return false;
        at += bytes_of(i);
    }
    return true;
}

const arena_region *arena_at(int region)
{
    return &regions[region];
}

/* Regions begin and end with a page. */
arena_window arena_window_of(int region, const unsigned char *begin, const unsigned char *end)
{
    const arena_region *r = &regions[region];
    const size_t first = (size_t)(begin - r->low) / PAGE * PAGE,
                 last = ((size_t)(end - r->low) + PAGE - 1) / PAGE * PAGE;
    return (arena_window){.region = region, .begin = r->low + first, .end = r->low + last};
}

unsigned char *arena_image(int region, const unsigned char *at)
{
    return regions[region].image + (at - regions[region].low);
}

static size_t length_of(const arena_window *window)
{
    return (size_t)(window->end - window->begin);
}

void arena_poison(const arena_window *window, unsigned char poison)
{
    memset(arena_image(window->region, window->begin), poison, length_of(window));
}

void arena_send(const arena_window *window)
{
    memcpy(window->begin, arena_image(window->region, window->begin), length_of(window));
}

bool arena_kept(const arena_window *window)
{
    return memcmp(window->begin, arena_image(window->region, window->begin), length_of(window)) == 0;
}

static void name_region(int region, char name[32])
{
    if (region == ARENA_WORKSPACE)
        snprintf(name, 32, "the workspace");
    else
        snprintf(name, 32, region < ARENA_OUTPUTS ? "input %d" : "output %d", region % ARENA_OUTPUTS);
}

const char *arena_describe(const void *address, char text[ARENA_TEXT])
{
    const uintptr_t at = (uintptr_t)address;
    char name[32];
    snprintf(text, ARENA_TEXT, "outside the guards");
    for (int i = 0; i < ARENA_REGIONS; i++) {
        const uintptr_t low = (uintptr_t)regions[i].low, high = (uintptr_t)regions[i].high;
        name_region(i, name);
        if (at < low && low - at <= GUARD / 2)
            snprintf(text, ARENA_TEXT, "%zu bytes below the region of %s", (size_t)(low - at), name);
        if (at >= high && at - high < GUARD / 2)
            snprintf(text, ARENA_TEXT, "%zu bytes past the region of %s", (size_t)(at - high) + 1, name);
    }
    return text;
}
