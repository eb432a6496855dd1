/* safetensors files made of a header's text, for the tests of the reader. */
#ifndef COPES_TESTS_HEADER_CASE_H
#define COPES_TESTS_HEADER_CASE_H

#include "tools/safetensors.h"

enum { HEADER_ROOM = 4096 };

/* A file of this header and `data_size` bytes 0, 1, 2 ..; returns its size. */
size_t header_compose(unsigned char bytes[HEADER_ROOM], const char *header, size_t data_size);

/* Parses from memory of exactly that size, so that a sanitizer sees a read past it. */
bool header_parse(const unsigned char *bytes, size_t size, safetensors_file *file, char *reason);

/* Asserts that the file of this header is refused for this reason. */
void header_refuse(const char *header, size_t data_size, const char *reason);

#endif
