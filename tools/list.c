/* copes ops and copes devices: what this build can run, and on what. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/operators.h"

#include <stdio.h>
#include <string.h>

static void print_slots(const char *title, const copes_slot_info *const *slots, int capacity)
{
    for (int i = 0; i < capacity; i++) {
        if (slots[i] == NULL)
            continue;
        printf("  %-9s %-12s %-30s %s%s\n", title, slots[i]->name, slots[i]->shape, slots[i]->summary,
               slots[i]->optional != 0 ? " (optional)" : "");
        title = "";
    }
}

static void print_attribute(const char *title, const copes_attribute_info *attribute)
{
    static const char *const types[] = {"", "", "integer", "integer", "number", "axis"};
    char type[64];
    if (attribute->choices != NULL)
        snprintf(type, sizeof type, "%s", attribute->choices);
    else if (attribute->count > 1)
        snprintf(type, sizeof type, "1 to %d integers", attribute->count);
    else
        snprintf(type, sizeof type, "%s", attribute->type == COPES_ATTRIBUTE_BOOL ? "0 or 1" : types[attribute->type]);
    printf("  %-9s %-12s %-30s %s; default %s\n", title, attribute->name, type, attribute->summary,
           attribute->fallback);
}

int command_ops(int argc, char **argv)
{
    const int status = arguments_none(argc, argv,
                                      "usage: copes ops\n\nPrints every operator of the library: its input and output "
                                      "slots with their shapes, its attributes and their defaults.\n");
    if (status >= 0)
        return status;
    for (size_t i = 0; i < copes_op_count(); i++) {
        const copes_op_info *info = copes_op_at(i);
        char name[OPERATORS_NAME_SIZE];
        printf("%s%s: %s\n", i > 0 ? "\n" : "", info->name, info->summary);
        for (int index = 0; operators_name(info, index, name); index++)
            printf("  %-9s copes run %s%s\n", index == 0 ? "command" : "", name,
                   info->backward != 0 ? " --backward" : "");
        print_slots("input", info->in, COPES_MAX_INPUTS);
        print_slots("output", info->out, COPES_MAX_OUTPUTS);
        for (int j = 0; j < info->attribute_count; j++)
            print_attribute(j == 0 ? "attribute" : "", info->attributes[j]);
    }
    return 0;
}

int command_devices(int argc, char **argv)
{
    const int status =
        arguments_none(argc, argv,
                       "usage: copes devices\n\nLists the backends in this build and their devices: for the "
                       "CPU with the instruction-set level and threads in use; where a backend has no "
                       "device, the reason.\n");
    if (status >= 0)
        return status;
    for (size_t i = 0; i < copes_backend_count(); i++) {
        const copes_backend_info *backend = copes_backend_at(i);
        const int32_t devices = copes_device_count(backend->device_type);
        for (int32_t id = 0; id < (devices > 0 ? devices : 1); id++) {
            char text[256], name[32];
            if (copes_device_summary((DLDevice){backend->device_type, id}, text, sizeof text) != COPES_OK)
                return complain(EXIT_FAILED, "%s", copes_last_error());
            snprintf(name, sizeof name, devices > 1 ? "%s:%d" : "%s", backend->name, id);
            printf("%-8s %s%s\n", name, devices == 0 ? "no device: " : "", text);
        }
    }
    return 0;
}
