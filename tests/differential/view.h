/* A tensor as a caller may lay it out: any order of axes, gaps, directions, entries that repeat by a stride of 0, and
 * any address, mostly flush against a guard. */
#ifndef COPES_TESTS_DIFFERENTIAL_VIEW_H
#define COPES_TESTS_DIFFERENTIAL_VIEW_H

#include "tests/differential/arena.h"
#include "tests/harness/type.h"
#include "tests/oracle/oracle.h"

typedef struct view {
    DLTensor tensor;
    int64_t shape[COPES_MAX_RANK], strides[COPES_MAX_RANK];
    int64_t steps[COPES_MAX_RANK]; /* strides in bytes; 0 for an axis of one entry, which never takes a step */
    int size;                      /* of an element, in bytes */
    int64_t count;
    unsigned char *first; /* the element at index 0 */
    arena_window window;
} view;

/* Lays out a tensor of like's shape in the region: along the axes of `repeats`, a bit each, its stride may be 0. */
void view_draw(view *v, check_type type, const oracle_tensor *like, unsigned repeats, int region, uint64_t *state);

/* The same elements as another tensor's, by a descriptor of their own. */
void view_share(view *v, const view *other);

/* Fills the region with `poison` and, where `dense` is not NULL, the elements with its bytes. */
void view_write(const view *v, unsigned char poison, const unsigned char *dense);

/* Gathers the elements, which may have changed; false where a byte that is none has changed. */
bool view_read(const view *v, unsigned char *dense);

/* Shape, strides and place in one line of text; returns the characters used. */
int view_text(const view *v, char *text, size_t room);

#endif
