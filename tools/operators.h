/* The operators as the command names them: lrpe_rotate and lrpe_cosine for the variants of lrpe, one name for an
 * operator and its backward. All of it follows from the library's table, so that a new operator needs nothing here. */
#ifndef COPES_TOOLS_OPERATORS_H
#define COPES_TOOLS_OPERATORS_H

#include "tools/words.h"

#include <copes/copes.h>
#include <stdbool.h>

enum { OPERATORS_NAME_SIZE = 64 };

/* The index-th name of an operator; false past the last one. */
bool operators_name(const copes_op_info *info, int index, char name[OPERATORS_NAME_SIZE]);

/* The operator of this name, and its descriptor with the default attributes; NULL where there is none. */
const copes_op_info *operators_find(const char *name, bool backward, copes_op *op);

/* Each name once. */
void operators_each(words_visitor *visit, void *to);

/* All the names, with ", " between. */
void operators_list(char *text, size_t size);

/* Complains of a word that is no operator's name, and returns the exit status. */
int operators_refuse(const char *word);

/* A name as a flag has it: with '-' for '_'. */
void operators_dashes(const char *name, char flag[OPERATORS_NAME_SIZE]);

/* An attribute's flag. False for the variant, which the operator's name gives. */
bool operators_flag(const copes_attribute_info *attribute, char flag[OPERATORS_NAME_SIZE]);

/* The index of the slot of this name, or -1. */
int operators_slot(const copes_slot_info *const *slots, int capacity, const char *name);

/* Is it an output that is written only where it is asked for? Those that exist before the call are there or not. */
bool operators_asked_for(const copes_slot_info *output);

/* May the first output be left out, which is written by default? By this flag. */
bool operators_left_out(const copes_op_info *info, char flag[OPERATORS_NAME_SIZE]);

/* The index of an output after the first that this flag asks for, or -1. */
int operators_output(const copes_op_info *info, const char *flag);

/* Does either direction of the operator of this name take an input slot so named? */
bool operators_takes(const char *name, const char *slot);

#endif
