/* What a misspelt word may have been meant to be. */
#include "tools/suggest.h"

#include "tools/words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How letters are compared: of any case, and '_' as '-'. */
static int plain(char letter)
{
    return letter == '_' ? '-' : tolower((unsigned char)letter);
}

/* Letters inserted, deleted, replaced or swapped with their neighbour (optimal string alignment), of short words. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][SUGGEST_WORD + 1]; /* of the prefixes of a with i - 2, i - 1 and i letters */
    const size_t width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        rows[0][j] = rows[1][j] = rows[2][j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t *before = rows[(i + 1) % 3], *last = rows[(i + 2) % 3], *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            const int x = plain(a[i - 1]), y = plain(b[j - 1]);
            row[j] = least(last[j - 1] + (x != y), 1 + least(last[j], row[j - 1]));
            if (i > 1 && j > 1 && x == plain(b[j - 2]) && y == plain(a[i - 2]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[strlen(a) % 3][width];
}

/* The most edits that a slip makes in a word of so many letters. */
static size_t most_edits(size_t length)
{
    return length < 6 ? 1 : length / 3;
}

suggestion suggest_for(const char *word)
{
    const size_t length = strlen(word);
    return (suggestion){.word = word, .distance = length < SUGGEST_WORD ? least(most_edits(length) + 1, length) : 0};
}

void suggest_offer(void *to, const char *candidate)
{
    suggestion *s = to;
    const size_t length = strlen(s->word);
    if (s->distance == 0 || strlen(candidate) >= SUGGEST_WORD || strcmp(s->word, candidate) == 0)
        return;
    size_t distance = edit_distance(s->word, candidate);
    if (length >= 3 && strncmp(s->word, candidate, length) == 0) /* a word cut short */
        distance = least(distance, most_edits(length));
    if (distance >= s->distance)
        return;
    s->distance = distance;
    snprintf(s->best, sizeof s->best, "%s", candidate);
}

void suggest_flags(suggestion *s, void (*print)(FILE *stream, const char *op), const char *op)
{
    char *help = words_help(print, op);
    if (help != NULL)
        words_flags(help, suggest_offer, s);
    suggest_offer(s, "help");
    free(help);
}

const char *suggest_text(suggestion *s, const char *prefix)
{
    s->text[0] = '\0';
    if (s->best[0] != '\0')
        snprintf(s->text, sizeof s->text, "; did you mean %s%s?", prefix, s->best);
    return s->text;
}
