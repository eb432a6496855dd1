/* Which of a backend's variants some cases have met. */
#ifndef COPES_TESTS_HARNESS_VARIANTS_H
#define COPES_TESTS_HARNESS_VARIANTS_H

#include <copes/copes.h>

#include <stdbool.h>
#include <stdio.h>

typedef struct check_variants {
    size_t count;
    const char **names; /* as copes_variants gives them */
    bool *met;
} check_variants;

/* All of a device type, none met. 0, or -1 where memory ran out; free it either way. */
int check_variants_open(check_variants *variants, DLDeviceType type);
void check_variants_free(check_variants *variants);

bool check_variants_has(const check_variants *variants, const char *name);

/* Is it on the list, and not met? */
bool check_variants_lack(const check_variants *variants, const char *name);
void check_variants_meet(check_variants *variants, const char *name);

/* The name up to its "<" of the first variant from *from on that is not met; *from goes past all of that name. False: there is
 * none. */
enum { CHECK_METHOD = 64 };
bool check_variants_next(const check_variants *variants, size_t *from, char method[CHECK_METHOD]);

/* Prints how many were met and names the others. Returns how many of those a case could have met. */
size_t check_variants_print(const check_variants *variants, FILE *stream);

#endif
