/* Counts and failures on a stream. */
#include "tests/differential/report.h"

static void say_view(FILE *stream, const char *row, int slot, const view *v)
{
    enum { ROOM = 1024 };
    char text[ROOM];
    view_text(v, text, sizeof text);
    fprintf(stream, "  %s %d: %s\n", row, slot, text);
}

void report_failure(FILE *stream, const trial *t, const char *what)
{
    char text[CHECK_CASE_TEXT];
    fprintf(stream, "FAILED: %s\n  differential --seed %llu --cases 1\n", what, (unsigned long long)t->seed);
    fprintf(stream, "  arrangement %d at %s with %d threads\n", t->arrangement, level_names[t->level],
            (int)trial_teams[t->team]);
    if (t->drawn) {
        fprintf(stream, "  %s\n", check_case_text(&t->c, text));
        for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
            if (t->args.in[slot] != NULL)
                say_view(stream, "input", slot, &t->in[slot]);
        for (int slot = 0; slot < COPES_MAX_OUTPUTS; slot++)
            if (t->args.out[slot] != NULL)
                say_view(stream, check_replaced(&t->c, slot) >= 0 ? "in place, output" : "output", slot, &t->out[slot]);
        fprintf(stream, "  workspace: %zu bytes\n", t->workspace_bytes);
    }
    fflush(stream);
}

void report_add(trial_counts *sum, const trial_counts *more)
{
    int64_t *to = &sum->runs[0][0][0][0][0];
    const int64_t *from = &more->runs[0][0][0][0][0];
    for (size_t i = 0; i < sizeof sum->runs / sizeof *to; i++)
        to[i] += from[i];
    sum->all += more->all;
    sum->cases += more->cases;
}

/* An execution is counted by four things: its operator and direction, its level, its type and its threads. */
enum { PARTS = 4, MOST_VALUES = 2 * TRIAL_FAMILIES };

static void sum_parts(const trial_counts *counts, int64_t sums[PARTS][MOST_VALUES])
{
    for (int family = 0; family < TRIAL_FAMILIES; family++)
        for (int backward = 0; backward < 2; backward++)
            for (int level = 0; level < LEVELS; level++)
                for (int type = 0; type < CHECK_TYPES; type++)
                    for (int team = 0; team < TRIAL_TEAMS; team++) {
                        const int64_t runs = counts->runs[family][backward][level][type][team];
                        const int part[PARTS] = {2 * family + backward, level, type, team};
                        for (int i = 0; i < PARTS; i++)
                            sums[i][part[i]] += runs;
                    }
}

static void say_part(FILE *stream, int part, int value, int64_t runs)
{
    char name[64];
    switch (part) {
    case 0:
        snprintf(name, sizeof name, "%s %s", check_families[value / 2].name, value % 2 ? "backward" : "forward");
        break;
    case 1: snprintf(name, sizeof name, "%s", level_names[value]); break;
    case 2: snprintf(name, sizeof name, "%s", check_type_of((check_type)value)->name); break;
    default: snprintf(name, sizeof name, "%d threads", (int)trial_teams[value]); break;
    }
    fprintf(stream, "  %-24s %12lld\n", name, (long long)runs);
}

void report_counts(FILE *stream, const trial_counts *counts, double seconds)
{
    int64_t sums[PARTS][MOST_VALUES] = {{0}};
    sum_parts(counts, sums);
    for (int part = 0; part < PARTS; part++)
        for (int value = 0; value < MOST_VALUES; value++)
            if (sums[part][value] > 0)
                say_part(stream, part, value, sums[part][value]);
    fprintf(stream, "%lld executions of %lld cases in %.1f s\n", (long long)counts->all, (long long)counts->cases,
            seconds);
    fflush(stream);
}
