/* The layout is that of the published tables: rows numbered from 0, the length as a decimal number. */
#include "bench/print.h"

void bench_print_title(FILE *stream, const bench_case *c, bool first)
{
    char name[BENCH_NAME];
    bench_case_name(c, name);
    fprintf(stream, "%s%s:\n%10s %11s %9s %7s", first ? "" : "\n", name, c->op == BENCH_TPA ? "m" : "n", "ms", "GB/s",
            "share");
    fprintf(stream, "%s %13s\n", c->op == BENCH_TPA ? "     fma" : "", "MiB");
}

void bench_print_row(FILE *stream, const bench_case *c, int index, const bench_result *result)
{
    fprintf(stream, "%-2d%8.1f", index, (double)c->n);
    if (result->skipped != NULL) {
        fprintf(stream, " skipped: %s\n", result->skipped);
        return;
    }
    fprintf(stream, " %11.6f %9.3f %7.3f", result->ms, result->rate, result->share);
    if (c->op == BENCH_TPA)
        fprintf(stream, " %7.3f", result->peak_share);
    fprintf(stream, " %13.6f\n", result->mebibytes);
}
