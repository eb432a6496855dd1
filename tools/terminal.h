/* What only a person at a terminal sees: colours, and a bar with the time left. Files and pipes get neither. */
#ifndef COPES_TOOLS_TERMINAL_H
#define COPES_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TERMINAL_RED "\033[31m"
#define TERMINAL_GREEN "\033[32m"
#define TERMINAL_YELLOW "\033[33m"
#define TERMINAL_PLAIN "\033[0m"

/* Does the stream go to a terminal that moves its cursor? */
bool terminal_shows(FILE *stream);

/* The style where the stream is such a terminal and NO_COLOR is not set, else "". */
const char *terminal_style(FILE *stream, const char *style);

/* A bar on stderr for so many steps; 0: nobody knows how many. */
typedef struct progress {
    bool shown;
    size_t count;
    double start, drawn; /* seconds; when the bar was last drawn */
} progress;

progress progress_begin(size_t count);

/* Draws, at most ten times a second, that step `index` (from 0) is under way. */
void progress_step(progress *bar, size_t index, const char *what);

/* Removes the bar, before anything else is printed and at the end. */
void progress_clear(progress *bar);

/* "12 s", "3 min", "2 h 5 min". */
void terminal_duration(double seconds, char *text, size_t size);

#endif
