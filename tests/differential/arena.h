/* Memory between guards: a region for each tensor of a call and for its workspace, with pages on both sides that end
 * the program when touched. Mapped once; a tensor is put flush against a guard by choosing its address. */
#ifndef COPES_TESTS_DIFFERENTIAL_ARENA_H
#define COPES_TESTS_DIFFERENTIAL_ARENA_H

#include <copes/copes.h>
#include <stdbool.h>

enum {
    ARENA_OUTPUTS = COPES_MAX_INPUTS, /* the region of output i is ARENA_OUTPUTS + i, of input i it is i */
    ARENA_WORKSPACE = COPES_MAX_INPUTS + COPES_MAX_OUTPUTS,
    ARENA_REGIONS = ARENA_WORKSPACE + 1
};

typedef struct arena_region {
    unsigned char *low, *high; /* the first byte, and the guard's first after the last */
    unsigned char *image;      /* of a tensor's: as many bytes without a guard, what the region should hold */
} arena_region;

/* False where the system has no memory for it. */
bool arena_open(void);

const arena_region *arena_at(int region);

/* A window of a region: the bytes from `begin` to before `end`, and what else their pages hold. */
typedef struct arena_window {
    int region;
    unsigned char *begin, *end;
} arena_window;

arena_window arena_window_of(int region, const unsigned char *begin, const unsigned char *end);

/* Where the image has the byte at an address of the region. */
unsigned char *arena_image(int region, const unsigned char *at);

/* Fills the image with `poison`; copies the image to the region; are the two still the same? */
void arena_poison(const arena_window *window, unsigned char poison);
void arena_send(const arena_window *window);
bool arena_kept(const arena_window *window);

/* Describes an address by the region whose guard it lies in, and how far past its end; returns text. */
enum { ARENA_TEXT = 96 };
const char *arena_describe(const void *address, char text[ARENA_TEXT]);

#endif
