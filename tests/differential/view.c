/* Strides and addresses by chance, and the elements' bytes to and from them. */
#include "tests/differential/view.h"

#include "tests/harness/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHIFT = 64, MOST_OFFSET = 1 << 20 };

static bool by_chance(uint64_t *state, int64_t one_in)
{
    return check_below(state, one_in) == 0;
}

/* Axes from the innermost in memory to the outermost. */
static void draw_order(int rank, uint64_t *state, int order[COPES_MAX_RANK])
{
    const bool shuffled = by_chance(state, 2);
    for (int i = 0; i < rank; i++)
        order[i] = rank - 1 - i;
    for (int i = rank - 1; i > 0 && shuffled; i--) {
        const int other = (int)check_below(state, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* An axis of one entry never takes a step, whatever its stride says. */
static int64_t idle_stride(uint64_t *state)
{
    static const int64_t strides[] = {0, 1, -3, 1000003, INT64_MAX, INT64_MIN};
    return strides[check_below(state, sizeof strides / sizeof *strides)];
}

/* Elements never overlap but where they repeat. Returns the elements that the tensor then reaches over. */
static int64_t draw_strides(view *v, int rank, unsigned repeats, bool gaps, uint64_t *state)
{
    int order[COPES_MAX_RANK] = {0};
    draw_order(rank, state, order);
    const bool turned = by_chance(state, 3);
    int64_t reach = 0;
    for (int i = 0; i < rank; i++) {
        const int axis = order[i];
        const int64_t gap = gaps && by_chance(state, 2) ? check_below(state, i == 0 ? 3 : 9) : 0;
        const int64_t stride = repeats >> axis & 1 ? 0 : reach + 1 + gap;
        reach += stride * (v->shape[axis] - 1);
        v->strides[axis] = turned && by_chance(state, 2) ? -stride : stride;
    }
    for (int axis = 0; axis < rank; axis++) {
        v->steps[axis] = v->shape[axis] > 1 ? v->strides[axis] * v->size : 0;
        v->strides[axis] = v->shape[axis] > 1 ? v->strides[axis] : idle_stride(state);
    }
    return reach + 1;
}

/* Bytes from the lowest element's first to that of index 0. */
static int64_t bytes_below(const view *v)
{
    int64_t below = 0;
    for (int i = 0; i < v->tensor.ndim; i++)
        below -= v->steps[i] < 0 ? v->steps[i] * (v->shape[i] - 1) : 0;
    return below;
}

static void place(view *v, int region, int64_t reach, uint64_t *state)
{
    const arena_region *r = arena_at(region);
    const size_t bytes = v->count > 0 ? (size_t)(reach * v->size) : 0;
    const size_t shift = by_chance(state, 5) ? (size_t)check_below(state, MOST_SHIFT) : 0;
    unsigned char *lowest = check_random(state) & 1 ? r->low + shift : r->high - bytes - shift;
    v->first = lowest + (v->count > 0 ? bytes_below(v) : 0);
    v->window = arena_window_of(region, lowest, lowest + bytes);
    v->tensor.byte_offset = by_chance(state, 4) ? (uint64_t)check_below(state, MOST_OFFSET) : 0;
    v->tensor.data = (void *)((uintptr_t)v->first - (uintptr_t)v->tensor.byte_offset);
    if (v->count == 0 && by_chance(state, 2))
        v->tensor.data = NULL;
}

/* Strides NULL say that the tensor is compact. */
static bool is_compact(const view *v)
{
    int64_t stride = 1;
    bool compact = true;
    for (int i = v->tensor.ndim - 1; i >= 0; i--) {
        compact = compact && (v->shape[i] == 1 || v->strides[i] == stride);
        stride *= v->shape[i];
    }
    return compact;
}

void view_draw(view *v, check_type type, const oracle_tensor *like, unsigned repeats, int region, uint64_t *state)
{
    const check_type_info *info = check_type_of(type);
    const int64_t room = (arena_at(region)->high - arena_at(region)->low - MOST_SHIFT) / info->size;
    *v = (view){.size = info->size, .count = oracle_count(like)};
    memcpy(v->shape, like->shape, (size_t)like->rank * sizeof *like->shape);
    v->tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = like->rank, .dtype = info->dlpack, .shape = v->shape};
    v->tensor.strides = v->strides;
    int64_t reach = draw_strides(v, like->rank, repeats, by_chance(state, 2), state);
    if (reach > room) {
        reach = draw_strides(v, like->rank, repeats, false, state);
        if (reach > room)
            abort(); /* a case is larger than the regions are made for */
    }
    if (is_compact(v) && by_chance(state, 2))
        v->tensor.strides = NULL;
    place(v, region, reach, state);
}

void view_share(view *v, const view *other)
{
    *v = *other;
    v->tensor.shape = v->shape;
    v->tensor.strides = other->tensor.strides == NULL ? NULL : v->strides;
}

/* A walk over the elements by rows of the last axis. */
typedef struct walk {
    int64_t index[COPES_MAX_RANK];
    unsigned char *at;
} walk;

static void next_row(const view *v, walk *w)
{
    for (int i = v->tensor.ndim - 2; i >= 0; i--) {
        w->at += v->steps[i];
        if (++w->index[i] < v->shape[i])
            return;
        w->at -= v->shape[i] * v->steps[i];
        w->index[i] = 0;
    }
}

static void copy_row(unsigned char *to, int64_t to_step, const unsigned char *from, int64_t from_step, int64_t length,
                     int size)
{
    for (int64_t i = 0; i < length; i++)
        switch (size) {
        case 1: to[i * to_step] = from[i * from_step]; break;
        case 2: memcpy(to + i * to_step, from + i * from_step, 2); break;
        case 4: memcpy(to + i * to_step, from + i * from_step, 4); break;
        default: memcpy(to + i * to_step, from + i * from_step, 8); break;
        }
}

/* Dense bytes to the elements, the one at index 0 at `first`. */
static void scatter(const view *v, unsigned char *first, const unsigned char *dense)
{
    const int64_t length = v->shape[v->tensor.ndim - 1], step = v->steps[v->tensor.ndim - 1];
    walk w = {.at = first};
    for (int64_t i = 0; i < v->count; i += length, next_row(v, &w))
        copy_row(w.at, step, dense + i * v->size, v->size, length, v->size);
}

static void gather(const view *v, unsigned char *first, unsigned char *dense)
{
    const int64_t length = v->shape[v->tensor.ndim - 1], step = v->steps[v->tensor.ndim - 1];
    walk w = {.at = first};
    for (int64_t i = 0; i < v->count; i += length, next_row(v, &w))
        copy_row(dense + i * v->size, v->size, w.at, step, length, v->size);
}

void view_write(const view *v, unsigned char poison, const unsigned char *dense)
{
    arena_poison(&v->window, poison);
    if (dense != NULL)
        scatter(v, arena_image(v->window.region, v->first), dense);
    arena_send(&v->window);
}

bool view_read(const view *v, unsigned char *dense)
{
    gather(v, v->first, dense);
    scatter(v, arena_image(v->window.region, v->first), dense);
    return arena_kept(&v->window);
}

static int say_list(char *text, size_t room, const char *before, int count, const int64_t *values)
{
    int used = snprintf(text, room, "%s", before);
    for (int i = 0; i < count && (size_t)used < room; i++)
        used += snprintf(text + used, room - (size_t)used, i == 0 ? "%lld" : ",%lld", (long long)values[i]);
    return used;
}

int view_text(const view *v, char *text, size_t room)
{
    const arena_region *r = arena_at(v->window.region);
    int used = say_list(text, room, "shape ", v->tensor.ndim, v->shape);
    if ((size_t)used < room)
        used += v->tensor.strides == NULL
                    ? snprintf(text + used, room - (size_t)used, " compact")
                    : say_list(text + used, room - (size_t)used, " strides ", v->tensor.ndim, v->strides);
    if ((size_t)used < room)
        used += snprintf(text + used, room - (size_t)used, " at %p (region %p to %p), byte_offset %llu",
                         (void *)v->first, (void *)r->low, (void *)r->high, (unsigned long long)v->tensor.byte_offset);
    return (size_t)used < room ? used : (int)room - 1;
}
