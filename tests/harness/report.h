/* What a run of many cases comes to: a row for each operator, direction and type. */
#ifndef COPES_TESTS_HARNESS_REPORT_H
#define COPES_TESTS_HARNESS_REPORT_H

#include "tests/harness/run.h"

#include <stdio.h>

enum { CHECK_FAMILY_ROOM = 8 };

typedef struct check_row {
    int64_t cases, failed;
    double ulps;  /* the worst case's error */
    double apart; /* the most that it is from the CPU's answer */
    char worst[CHECK_CASE_TEXT];
} check_row;

typedef struct check_report {
    check_row rows[CHECK_FAMILY_ROOM][2][CHECK_TYPES]; /* family, backward, type */
    int64_t failed;
} check_report;

/* Counts a result; a failure is printed on `failures` at once, with the case that repeats it. */
void check_report_add(check_report *report, const check_case *c, const check_result *result, FILE *failures);

/* Notes how far a case's result is from the CPU's. */
void check_report_compare(check_report *report, const check_case *c, double apart);

/* `compared`: with the distance from the CPU. */
void check_report_print(const check_report *report, bool compared, FILE *stream);

#endif
