/* The operators as the command names them. */
#include "tools/operators.h"

#include "tools/arguments.h"
#include "tools/suggest.h"

#include <stdio.h>
#include <string.h>

static const copes_attribute_info *find_variant(const copes_op_info *info)
{
    for (int i = 0; i < info->attribute_count; i++)
        if (info->attributes[i]->type == COPES_ATTRIBUTE_ENUM && strcmp(info->attributes[i]->name, "variant") == 0)
            return info->attributes[i];
    return NULL;
}

/* Length of the name without its direction. */
static int stem_length(const char *name)
{
    static const char *const directions[] = {"_forward", "_backward"};
    const size_t length = strlen(name);
    for (int i = 0; i < 2; i++) {
        const size_t tail = strlen(directions[i]);
        if (length > tail && strcmp(name + length - tail, directions[i]) == 0)
            return (int)(length - tail);
    }
    return (int)length;
}

bool operators_name(const copes_op_info *info, int index, char name[OPERATORS_NAME_SIZE])
{
    const copes_attribute_info *variant = find_variant(info);
    const int stem = stem_length(info->name);
    if (variant == NULL) {
        snprintf(name, OPERATORS_NAME_SIZE, "%.*s", stem, info->name);
        return index == 0;
    }
    const char *choice = variant->choices;
    for (int i = 0; i < index && choice != NULL; i++) {
        choice = strchr(choice, '|');
        choice = choice != NULL ? choice + 1 : NULL;
    }
    if (choice == NULL)
        return false;
    snprintf(name, OPERATORS_NAME_SIZE, "%.*s_%.*s", stem, info->name, (int)strcspn(choice, "|"), choice);
    return true;
}

const copes_op_info *operators_find(const char *name, bool backward, copes_op *op)
{
    for (size_t i = 0; i < copes_op_count(); i++) {
        const copes_op_info *info = copes_op_at(i);
        char candidate[OPERATORS_NAME_SIZE];
        for (int index = 0; operators_name(info, index, candidate); index++) {
            if (strcmp(candidate, name) != 0 || (info->backward != 0) != backward)
                continue;
            const copes_attribute_info *variant = find_variant(info);
            const int32_t choice = index;
            *op = (copes_op){.kind = info->kind};
            if (variant != NULL)
                memcpy((char *)op + variant->offset, &choice, sizeof choice);
            return info;
        }
    }
    return NULL;
}

void operators_each(words_visitor *visit, void *to)
{
    for (size_t i = 0; i < copes_op_count(); i++) {
        const copes_op_info *info = copes_op_at(i);
        char name[OPERATORS_NAME_SIZE];
        for (int index = 0; info->backward == 0 && operators_name(info, index, name); index++)
            visit(to, name);
    }
}

typedef struct list {
    char *text;
    size_t size;
} list;

static void append(void *to, const char *name)
{
    const list *all = to;
    const size_t used = strlen(all->text);
    snprintf(all->text + used, all->size - used, "%s%s", used > 0 ? ", " : "", name);
}

void operators_list(char *text, size_t size)
{
    list all = {text, size};
    text[0] = '\0';
    operators_each(append, &all);
}

int operators_refuse(const char *word)
{
    char names[512];
    suggestion nearest = suggest_for(word);
    operators_each(suggest_offer, &nearest);
    operators_list(names, sizeof names);
    return complain(EXIT_USAGE, "\"%s\" is not an operator; it must be one of %s%s", word, names,
                    suggest_text(&nearest, ""));
}

void operators_dashes(const char *name, char flag[OPERATORS_NAME_SIZE])
{
    snprintf(flag, OPERATORS_NAME_SIZE, "%s", name);
    for (char *c = flag; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
}

bool operators_flag(const copes_attribute_info *attribute, char flag[OPERATORS_NAME_SIZE])
{
    operators_dashes(attribute->name, flag);
    return strcmp(attribute->name, "variant") != 0;
}

int operators_slot(const copes_slot_info *const *slots, int capacity, const char *name)
{
    for (int i = 0; i < capacity; i++)
        if (slots[i] != NULL && strcmp(slots[i]->name, name) == 0)
            return i;
    return -1;
}

bool operators_asked_for(const copes_slot_info *output)
{
    return output != NULL && output->optional != 0 && output->updated == 0;
}

int operators_output(const copes_op_info *info, const char *flag)
{
    for (int i = 1; i < COPES_MAX_OUTPUTS; i++) {
        char own[OPERATORS_NAME_SIZE];
        if (!operators_asked_for(info->out[i]))
            continue;
        operators_dashes(info->out[i]->name, own);
        if (strcmp(own, flag) == 0)
            return i;
    }
    return -1;
}

bool operators_left_out(const copes_op_info *info, char flag[OPERATORS_NAME_SIZE])
{
    char name[OPERATORS_NAME_SIZE];
    operators_dashes(info->out[0]->name, name);
    snprintf(flag, OPERATORS_NAME_SIZE, "no-%.*s", OPERATORS_NAME_SIZE - 4, name);
    return info->out[0]->optional != 0;
}

bool operators_takes(const char *name, const char *slot)
{
    for (int backward = 0; backward < 2; backward++) {
        copes_op op;
        const copes_op_info *info = operators_find(name, backward != 0, &op);
        if (info != NULL && operators_slot(info->in, COPES_MAX_INPUTS, slot) >= 0)
            return true;
    }
    return false;
}
