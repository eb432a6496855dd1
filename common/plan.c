/* What copes_explain says of a plan. */
#include "common/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct text_writer {
    char *text;
    size_t size, used;
} text_writer;

/* What does not fit is left out. */
static void add(text_writer *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(to->text + to->used, to->size - to->used, format, arguments);
    va_end(arguments);
    to->used = length < 0 ? to->used : to->used + (size_t)length;
    to->used = to->used < to->size ? to->used : to->size - 1;
}

/* The lengths of a grid or block, but for the axes of 1 after the first. */
static void add_lengths(text_writer *to, const int64_t lengths[3])
{
    const int axes = lengths[2] > 1 ? 3 : lengths[1] > 1 ? 2 : 1;
    for (int i = 0; i < axes; i++)
        add(to, "%s%" PRId64, i > 0 ? " x " : "", lengths[i]);
}

static void add_launch(text_writer *to, const copes_plan *plan)
{
    add(to, "launch: ");
    add_lengths(to, plan->grid);
    add(to, " blocks of ");
    add_lengths(to, plan->block);
    add(to, " threads, %" PRId64 " bytes of dynamic shared memory", plan->shared);
    if (plan->cluster > 1)
        add(to, ", clusters of %d", plan->cluster);
    add(to, "%s\n", plan->cooperative ? ", cooperative" : "");
}

void copes_plan_text(const copes_plan *plan, DLDevice device, char *text, size_t size)
{
    text_writer to = {text, size, 0};
    add(&to, "variant: %s\n", plan->variant);
    if (device.device_type == kDLCPU)
        add(&to, "threads: %" PRId64 "\n", plan->grid[0]);
    else
        add_launch(&to, plan);
    add(&to, "workspace: %" PRId64 " bytes\n", plan->workspace);
    if (plan->first != NULL)
        add(&to, "before it: %s\n", plan->first);
    for (int i = 0; i < plan->refused; i++)
        add(&to, "refused: %s, as %s\n", plan->refusal[i].variant, plan->refusal[i].reason);
}
