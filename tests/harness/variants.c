/* The list of a backend's variants with a mark at each that ran. */
#include "tests/harness/variants.h"

#include <stdlib.h>
#include <string.h>

int check_variants_open(check_variants *variants, DLDeviceType type)
{
    *variants = (check_variants){.count = copes_variants(type, NULL, 0)};
    variants->names = calloc(variants->count + 1, sizeof *variants->names);
    variants->met = calloc(variants->count + 1, sizeof *variants->met);
    if (variants->names == NULL || variants->met == NULL)
        return -1;
    copes_variants(type, variants->names, variants->count);
    return 0;
}

void check_variants_free(check_variants *variants)
{
    free(variants->names);
    free(variants->met);
    *variants = (check_variants){.count = 0};
}

static size_t find(const check_variants *variants, const char *name)
{
    size_t i = 0;
    while (i < variants->count && strcmp(variants->names[i], name) != 0)
        i++;
    return i;
}

bool check_variants_has(const check_variants *variants, const char *name)
{
    return find(variants, name) < variants->count;
}

bool check_variants_lack(const check_variants *variants, const char *name)
{
    const size_t i = find(variants, name);
    return i < variants->count && !variants->met[i];
}

void check_variants_meet(check_variants *variants, const char *name)
{
    const size_t i = find(variants, name);
    if (i < variants->count)
        variants->met[i] = true;
}

/* Tensors of more than 2^31 elements have no oracle in double precision; tests/gpu/large.c compares them with themselves. */
static bool is_for_large_tensors(const char *name)
{
    return strstr(name, "uint64") != NULL;
}

bool check_variants_next(const check_variants *variants, size_t *from, char method[CHECK_METHOD])
{
    size_t i = *from;
    while (i < variants->count && (variants->met[i] || is_for_large_tensors(variants->names[i])))
        i++;
    if (i == variants->count)
        return false;
    const size_t length = strcspn(variants->names[i], "<");
    snprintf(method, CHECK_METHOD, "%.*s", (int)length, variants->names[i]);
    while (i < variants->count && strncmp(variants->names[i], method, length) == 0 && variants->names[i][length] == '<')
        i++;
    *from = i;
    return true;
}

size_t check_variants_print(const check_variants *variants, FILE *stream)
{
    size_t met = 0, lacking = 0;
    for (size_t i = 0; i < variants->count; i++) {
        const bool large = is_for_large_tensors(variants->names[i]);
        met += variants->met[i];
        if (variants->met[i])
            continue;
        fprintf(stream, "not met: %s%s\n", variants->names[i], large ? " (for more than 2^31 elements)" : "");
        lacking += !large;
    }
    fprintf(stream, "variants: %zu built, %zu met by a case\n", variants->count, met);
    return lacking;
}
