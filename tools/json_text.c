/* The words of a JSON text, one after the other. */
#include "tools/json_text.h"

#include <stdbool.h>
#include <string.h>

size_t json_text_utf8(const char *text, size_t size)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80)
        return 1;
    const size_t length = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || length > size)
        return 0;
    /* Past these, the second byte would spell a longer form of a shorter sequence, a surrogate, or past U+10FFFF. */
    const unsigned char lowest = byte[0] == 0xe0 ? 0xa0 : byte[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = byte[0] == 0xed ? 0x9f : byte[0] == 0xf4 ? 0x8f : 0xbf;
    if (byte[1] < lowest || byte[1] > highest)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* Bytes of the escape that the text begins with; 0 where that is none, or stands for a NUL. */
static size_t escape_length(const char *text, size_t size)
{
    if (size >= 2 && is_one_of(text[1], "\"\\/bfnrt"))
        return 2;
    if (size < 6 || text[1] != 'u' || memcmp(text + 2, "0000", 4) == 0)
        return 0;
    for (int i = 2; i < 6; i++)
        if (!is_one_of(text[i], "0123456789abcdefABCDEF"))
            return 0;
    return 6;
}

/* From past the opening quote to past the closing one. Without one, it is cJSON that refuses. */
static const char *check_string(const char *text, size_t size, size_t *at)
{
    for (; *at < size && text[*at] != '"';) {
        const char *c = text + *at;
        const size_t step = *c == '\\' ? escape_length(c, size - *at) : json_text_utf8(c, size - *at);
        if ((unsigned char)*c < ' ')
            return "is a control character, which a string must escape";
        if (step == 0)
            return *c == '\\' ? "begins no escape of JSON, or that of a NUL" : "is not UTF-8";
        *at += step;
    }
    ++*at;
    return NULL;
}

static size_t count_digits(const char *text, size_t size)
{
    size_t count = 0;
    while (count < size && is_one_of(text[count], "0123456789"))
        count++;
    return count;
}

/* Bytes of the number that the text begins with; 0 where that is none. */
static size_t number_length(const char *text, size_t size)
{
    size_t length = text[0] == '-' ? 1 : 0;
    size_t digits = count_digits(text + length, size - length);
    if (digits == 0 || (digits > 1 && text[length] == '0'))
        return 0;
    length += digits;
    if (length < size && text[length] == '.') {
        digits = count_digits(text + length + 1, size - length - 1);
        if (digits == 0)
            return 0;
        length += 1 + digits;
    }
    if (length < size && is_one_of(text[length], "eE")) {
        length += length + 1 < size && is_one_of(text[length + 1], "+-") ? 2 : 1;
        digits = count_digits(text + length, size - length);
        length += digits;
        if (digits == 0)
            return 0;
    }
    return length < size && is_one_of(text[length], "+-.eE") ? 0 : length;
}

static const char *check_number(char *text, size_t size, size_t *at)
{
    enum { MOST = sizeof "9007199254740992" - 1 };
    char *number = text + *at;
    const size_t length = number_length(number, size - *at);
    if (length == 0)
        return "begins no number of JSON";
    const size_t sign = number[0] == '-' ? 1 : 0;
    if (count_digits(number + sign, length - sign) < length - sign || length - sign > MOST) {
        memset(number, ' ', length);
        memcpy(number, "0.5", 3); /* as long as the shortest of them */
    }
    *at += length;
    return NULL;
}

const char *json_text_check(char *text, size_t size, size_t *at)
{
    const char *wrong = NULL;
    for (*at = 0; *at < size && wrong == NULL;) {
        const char c = text[*at];
        if (c == '-' || count_digits(&c, 1) == 1) {
            wrong = check_number(text, size, at);
        } else if ((unsigned char)c < ' ' && !is_one_of(c, "\t\n\r")) {
            wrong = "is a control character";
        } else {
            ++*at;
            wrong = c == '"' ? check_string(text, size, at) : NULL;
        }
    }
    return wrong;
}
