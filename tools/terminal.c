/* What only a person at a terminal sees. */
#define _DEFAULT_SOURCE /* the terminal's width */
#include "tools/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 20, LINE = 512 };

bool terminal_shows(FILE *stream)
{
    const char *kind = getenv("TERM");
    return isatty(fileno(stream)) && (kind == NULL || strcmp(kind, "dumb") != 0);
}

const char *terminal_style(FILE *stream, const char *style)
{
    const char *no_color = getenv("NO_COLOR");
    return (no_color == NULL || no_color[0] == '\0') && terminal_shows(stream) ? style : "";
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* A longer line would wrap, and its start would stay. */
static int columns(void)
{
    struct winsize size;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col - 1 : LINE;
}

void terminal_duration(double seconds, char *text, size_t size)
{
    const long whole = seconds < 1 ? 1 : (long)(seconds + 0.5), minutes = (whole + 30) / 60;
    if (whole < 100)
        snprintf(text, size, "%ld s", whole);
    else if (minutes < 100)
        snprintf(text, size, "%ld min", minutes);
    else
        snprintf(text, size, "%ld h %ld min", minutes / 60, minutes % 60);
}

progress progress_begin(size_t count)
{
    return (progress){.shown = terminal_shows(stderr), .count = count, .start = now(), .drawn = 0};
}

/* The steps so far and, when enough of them have gone by to tell, the time that the others take. */
static void describe(const progress *bar, size_t index, const char *what, char text[LINE])
{
    const double elapsed = bar->drawn - bar->start;
    char left[48] = "", duration[32];
    if (bar->count == 0) {
        snprintf(text, LINE, " %zu: %s", index + 1, what);
        return;
    }
    if (index > 0 && elapsed > 1) {
        terminal_duration(elapsed / (double)index * (double)(bar->count - index), duration, sizeof duration);
        snprintf(left, sizeof left, "%s left, ", duration);
    }
    snprintf(text, LINE, " %s%zu of %zu: %s", left, index + 1, bar->count, what);
}

void progress_step(progress *bar, size_t index, const char *what)
{
    const double time = now();
    if (!bar->shown || time - bar->drawn < 0.1)
        return;
    bar->drawn = time;
    char text[LINE];
    describe(bar, index, what, text);
    const int done = bar->count > 0 ? (int)(BAR * index / bar->count) : 0,
              room = columns() - (bar->count > 0 ? BAR : 0);
    fputs("\r\033[K", stderr);
    if (bar->count > 0)
        fprintf(stderr, "%s%.*s%s%.*s", terminal_style(stderr, TERMINAL_GREEN), done, "####################",
                terminal_style(stderr, TERMINAL_PLAIN), BAR - done, "....................");
    fprintf(stderr, "%.*s", room > 0 ? room : 0, text);
    fflush(stderr);
}

void progress_clear(progress *bar)
{
    if (bar->shown && bar->drawn > 0)
        fputs("\r\033[K", stderr);
    bar->drawn = 0;
}
