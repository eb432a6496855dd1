/* The tables: a title, a header, a row for each length. */
#ifndef COPES_BENCH_PRINT_H
#define COPES_BENCH_PRINT_H

#include "bench/measure.h"

#include <stdio.h>

void bench_print_title(FILE *stream, const bench_case *c, bool first);
void bench_print_row(FILE *stream, const bench_case *c, int index, const bench_result *result);

#endif
