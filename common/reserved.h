/* Reserved bytes are those of a later version: what is not zero there asks for something that this one does not know. */
#ifndef COPES_COMMON_RESERVED_H
#define COPES_COMMON_RESERVED_H

#include <stdbool.h>
#include <stddef.h>

/* How messages end that begin with whose bytes they are. */
#define COPES_RESERVED_NOT_ZERO                                                                                        \
    "reserved is not zero; it must be: the struct was not all zero at first, or this library is older than the program"

static inline bool copes_all_zero(const void *memory, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)memory;
    unsigned char any = 0;
    for (size_t i = 0; i < size; i++)
        any |= bytes[i];
    return any == 0;
}

#endif
