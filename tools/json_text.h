/* What cJSON takes leniently in a JSON text, held to the letter of RFC 8259 before it sees the text: numbers, escapes,
 * control characters and UTF-8. What the words of the text make together is left to it. */
#ifndef COPES_TOOLS_JSON_TEXT_H
#define COPES_TOOLS_JSON_TEXT_H

#include <stddef.h>

/* NULL, or what is wrong with the byte at *at ("is not UTF-8"). A NUL is wrong in any form: C's strings end there.
 * cJSON reads numbers as doubles, so those of which a double may not keep every digit (with a fraction, an exponent or
 * more digits than 2^53) become 0.5 in `text`, which no reader of integers takes. */
const char *json_text_check(char *text, size_t size, size_t *at);

/* Bytes of the UTF-8 sequence that the text begins with; 0 where that is none. For size > 0. */
size_t json_text_utf8(const char *text, size_t size);

#endif
