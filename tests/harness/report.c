/* Counting results and printing the table. */
#include "tests/harness/report.h"

#include <string.h>

static size_t family_index(const char *name)
{
    size_t i = 0;
    while (i + 1 < check_family_count && strcmp(check_families[i].name, name) != 0) {
        i++;
    }
    return i;
}

static check_row *row_of(check_report *report, const check_case *c)
{
    return &report->rows[family_index(c->family)][check_is_backward(&c->op)][c->type];
}

void check_report_compare(check_report *report, const check_case *c, double apart)
{
    check_row *row = row_of(report, c);
    row->apart = apart > row->apart ? apart : row->apart;
}

void check_report_add(check_report *report, const check_case *c, const check_result *result, FILE *failures)
{
    check_row *row = row_of(report, c);
    row->cases++;
    if (row->cases == 1 || result->ulps > row->ulps) {
        row->ulps = result->ulps;
        check_case_text(c, row->worst);
    }
    if (result->failed) {
        char text[CHECK_CASE_TEXT];
        row->failed++;
        report->failed++;
        fprintf(failures, "FAILED %s: %s\n", check_case_text(c, text), result->message);
        fflush(failures);
    }
}

static void print_row(const check_row *row, const char *family, bool backward, check_type type, bool compared,
                      FILE *stream)
{
    fprintf(stream, "%-12s %-8s %-4s %6lld %6lld %9.3g", family, backward ? "backward" : "forward",
            check_type_of(type)->name, (long long)row->cases, (long long)row->failed, row->ulps);
    if (compared)
        fprintf(stream, " %9.3g", row->apart);
    fprintf(stream, "  %s\n", row->worst);
}

void check_report_print(const check_report *report, bool compared, FILE *stream)
{
    fprintf(stream, "%-12s %-8s %-4s %6s %6s %9s%s  %s\n", "operator", "mode", "type", "cases", "failed", "worst ulp",
            compared ? "  from cpu" : "", "in the case");
    for (size_t family = 0; family < check_family_count; family++) {
        for (int backward = 0; backward < 2; backward++) {
            for (int type = 0; type < CHECK_TYPES; type++) {
                const check_row *row = &report->rows[family][backward][type];
                if (row->cases > 0) {
                    print_row(row, check_families[family].name, backward, (check_type)type, compared, stream);
                }
            }
        }
    }
}
