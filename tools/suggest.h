/* What a misspelt word may have been meant to be: "; did you mean X?". */
#ifndef COPES_TOOLS_SUGGEST_H
#define COPES_TOOLS_SUGGEST_H

#include <stddef.h>
#include <stdio.h>

enum { SUGGEST_WORD = 64 };

typedef struct suggestion {
    const char *word; /* as written */
    size_t distance;  /* of the nearest so far */
    char best[SUGGEST_WORD];
    char text[2 * SUGGEST_WORD];
} suggestion;

suggestion suggest_for(const char *word);

/* A words_visitor (tools/words.h), `to` being the suggestion: a word that is right. */
void suggest_offer(void *to, const char *candidate);

/* Offers every flag of a command's help (tools/commands.h), and --help. */
void suggest_flags(suggestion *s, void (*print)(FILE *stream, const char *op), const char *op);

/* For the end of a complaint: "; did you mean PREFIXword?", or "" where no candidate is near. Lives as long as the suggestion. */
const char *suggest_text(suggestion *s, const char *prefix);

#endif
