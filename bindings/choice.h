/* An enumerator's name as its number: the table of operators lists names as "half|interleaved". */
#ifndef COPES_BINDINGS_CHOICE_H
#define COPES_BINDINGS_CHOICE_H

#include <stdint.h>
#include <string.h>

/* The place of the name among the choices, from 0; -1: it is none of them. */
static inline int32_t choice_index(const char *choices, const char *name, size_t length)
{
    int32_t index = 0;
    for (const char *choice = choices; choice != NULL; index++) {
        const char *end = strchr(choice, '|');
        if ((end != NULL ? (size_t)(end - choice) : strlen(choice)) == length && memcmp(choice, name, length) == 0)
            return index;
        choice = end != NULL ? end + 1 : NULL;
    }
    return -1;
}

#endif
