/* Reads a `copes run` line. */
#include "tools/request.h"

#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/operators.h"
#include "tools/suggest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: copes run OP --in IN.safetensors --out OUT.safetensors [FLAG ...]\n"
    "\n"
    "Runs an operator on the tensors of IN that have its slots' names, and writes the results to OUT, which appears whole\n"
    "or not at all. `copes run OP --help` lists an operator's slots and flags. OP is one of\n"
    "  ";

/* The form of an attribute's value, "" where its flag takes none. */
static const char *value_form(const copes_attribute_info *attribute)
{
    if (attribute->choices != NULL)
        return attribute->choices;
    if (attribute->type == COPES_ATTRIBUTE_BOOL)
        return "";
    if (attribute->type == COPES_ATTRIBUTE_DOUBLE)
        return "X";
    return attribute->count > 1 ? "I[,I...]" : "I";
}

/* An attribute's line in the help: its flag with the value it takes, what it is, its default. */
static void print_flag(FILE *stream, const copes_attribute_info *attribute)
{
    char flag[OPERATORS_NAME_SIZE], text[2 * OPERATORS_NAME_SIZE];
    if (!operators_flag(attribute, flag))
        return;
    snprintf(text, sizeof text, "--%s %s", flag, value_form(attribute));
    fprintf(stream, "  %-38s %s", text, attribute->summary);
    if (attribute->type != COPES_ATTRIBUTE_BOOL)
        fprintf(stream, "; default %s", attribute->fallback);
    fputc('\n', stream);
}

static void print_slots(FILE *stream, const char *title, const copes_slot_info *const *slots, int capacity)
{
    for (int i = 0; i < capacity; i++)
        if (slots[i] != NULL)
            fprintf(stream, "  %s %-10s %-30s %s%s\n", title, slots[i]->name, slots[i]->shape, slots[i]->summary,
                    slots[i]->updated != 0    ? " (updated, where the file has it)"
                    : slots[i]->optional != 0 ? " (optional)"
                                              : "");
}

/* The flags of outputs that are written only where they are asked for. */
static void print_outputs(FILE *stream, const copes_op_info *info, const char *where)
{
    char left_out[OPERATORS_NAME_SIZE];
    if (operators_left_out(info, left_out))
        fprintf(stream, "  --%-36s write no %s, but what is asked for in its place%s\n", left_out, info->out[0]->name,
                where);
    for (int i = 1; i < COPES_MAX_OUTPUTS; i++) {
        char flag[OPERATORS_NAME_SIZE];
        if (!operators_asked_for(info->out[i]))
            continue;
        operators_dashes(info->out[i]->name, flag);
        fprintf(stream, "  --%-36s also write %s%s\n", flag, info->out[i]->name, where);
    }
}

/* Lines that run as they stand. */
static void print_example(FILE *stream, const char *name, bool backward)
{
    static const struct {
        const char *name, *forward, *backward;
    } examples[] = {{"act", " --act silu", " --act silu"},
                    {"lrpe_rotate", " --act silu --offset 4096", " --act silu --offset 4096"},
                    {"lrpe_cosine", " --act silu", " --act silu"},
                    {"tpa_decode", " --lse", ""},
                    {"qk_norm_rope", " --k-out", " --grad-k"},
                    {"attention_merge", " --lse", " --grad-lse-shares"}};
    const size_t count = sizeof examples / sizeof *examples;
    size_t i = 0;
    while (i < count && strcmp(name, examples[i].name) != 0)
        i++;
    if (i == count)
        return;
    fprintf(stream, "Example:\n  copes sample in.safetensors %s\n", name);
    fprintf(stream, "  copes run %s --in in.safetensors --out out.safetensors%s\n", name, examples[i].forward);
    if (backward)
        fprintf(stream, "  copes run %s --in in.safetensors --out grad.safetensors --backward%s\n", name,
                examples[i].backward);
}

static void print_help(FILE *stream, const char *name)
{
    copes_op op;
    const copes_op_info *forward = operators_find(name, false, &op), *backward = operators_find(name, true, &op);
    fprintf(stream, "usage: copes run %s --in IN.safetensors --out OUT.safetensors [FLAG ...]\n\n%s\n\nTensors:\n",
            name, forward->summary);
    print_slots(stream, "read    ", forward->in, COPES_MAX_INPUTS);
    print_slots(stream, "written ", forward->out, COPES_MAX_OUTPUTS);
    if (backward != NULL) {
        fprintf(stream, "With --backward:\n");
        print_slots(stream, "read    ", backward->in, COPES_MAX_INPUTS);
        print_slots(stream, "written ", backward->out, COPES_MAX_OUTPUTS);
    }
    fprintf(stream, "Flags:\n");
    for (int i = 0; i < forward->attribute_count; i++)
        print_flag(stream, forward->attributes[i]);
    print_outputs(stream, forward, backward != NULL ? ", without --backward" : "");
    if (backward != NULL)
        print_outputs(stream, backward, ", with --backward");
    if (operators_takes(name, "theta"))
        fprintf(stream, "  %-38s where the file has no theta: X^(-i/E), as RoPE's\n", "--theta-base X");
    if (forward->inplace > 0) {
        fprintf(stream, "  %-38s how tensors of rank 4 are stored; default bnhd\n", "--layout bnhd|bhnd");
        fprintf(stream, "  %-38s compute outputs in the memory of inputs that they may be\n", "--in-place");
    }
    if (backward != NULL)
        fprintf(stream, "  %-38s compute the gradient\n", "--backward");
    fprintf(stream, "  %-38s cpu, cuda, hip, or cuda:1 for a second one; default cpu\n", "--device D");
    print_example(stream, name, backward != NULL);
}

void help_run(FILE *stream, const char *op)
{
    char names[512];
    operators_list(names, sizeof names);
    if (op == NULL)
        fprintf(stream, "%s%s\n", usage, names);
    else
        print_help(stream, op);
}

static bool set_list(arguments *walk, const copes_attribute_info *attribute, copes_op *op)
{
    int64_t values[COPES_MAX_RANK] = {0};
    int count;
    if (!arguments_integers(walk, INT64_MIN, INT64_MAX, values, attribute->count, &count))
        return false;
    memcpy((char *)op + attribute->offset, values, (size_t)attribute->count * sizeof values[0]);
    const int32_t length = count;
    if (attribute->rank_offset >= 0)
        memcpy((char *)op + attribute->rank_offset, &length, sizeof length);
    return true;
}

static bool set_attribute(arguments *walk, const copes_attribute_info *attribute, copes_op *op)
{
    int32_t small = 1; /* a flag without a value says yes */
    int64_t integer;
    double number;
    switch (attribute->type) {
    case COPES_ATTRIBUTE_INT64: return set_list(walk, attribute, op);
    case COPES_ATTRIBUTE_DOUBLE:
        if (!arguments_double(walk, &number))
            return false;
        memcpy((char *)op + attribute->offset, &number, sizeof number);
        return true;
    case COPES_ATTRIBUTE_ENUM:
        if (!arguments_choice(walk, attribute->choices, &small))
            return false;
        break;
    case COPES_ATTRIBUTE_BOOL:
        if (!arguments_no_value(walk))
            return false;
        break;
    case COPES_ATTRIBUTE_INT32:
    case COPES_ATTRIBUTE_AXIS:
        if (!arguments_integer(walk, INT32_MIN, INT32_MAX, &integer))
            return false;
        small = (int32_t)integer;
        break;
    }
    memcpy((char *)op + attribute->offset, &small, sizeof small);
    return true;
}

static bool set_theta_base(arguments *walk, request *wish)
{
    if (!arguments_double(walk, &wish->theta_base))
        return false;
    if (isfinite(wish->theta_base) && wish->theta_base > 0)
        return true;
    complain(EXIT_USAGE, "--theta-base is %g; it must be finite and more than 0", wish->theta_base);
    return false;
}

static bool refuse_flag(const request *wish, const char *flag)
{
    suggestion nearest = suggest_for(flag);
    suggest_flags(&nearest, help_run, wish->name);
    complain(EXIT_USAGE, "%s has no flag --%s%s; `copes run %s --help` lists those it has%s", wish->name, flag,
             wish->info->backward != 0 ? " with --backward" : "", wish->name, suggest_text(&nearest, "--"));
    return false;
}

/* The flag that the walk stands on. */
static bool read_flag(arguments *walk, request *wish)
{
    if (strcmp(walk->flag, "backward") == 0)
        return arguments_no_value(walk);
    if (strcmp(walk->flag, "in") == 0)
        return (wish->in = arguments_value(walk)) != NULL;
    if (strcmp(walk->flag, "out") == 0)
        return (wish->out = arguments_value(walk)) != NULL;
    if (strcmp(walk->flag, "device") == 0)
        return arguments_device(walk, &wish->device);
    if (strcmp(walk->flag, "theta-base") == 0 && operators_takes(wish->name, "theta"))
        return set_theta_base(walk, wish);
    if (strcmp(walk->flag, "layout") == 0 && wish->info->inplace > 0)
        return arguments_choice(walk, "bnhd|bhnd", &wish->heads_first);
    if (strcmp(walk->flag, "in-place") == 0 && wish->info->inplace > 0)
        return wish->in_place = arguments_no_value(walk);
    for (int i = 0; i < wish->info->attribute_count; i++) {
        char flag[OPERATORS_NAME_SIZE];
        if (!operators_flag(wish->info->attributes[i], flag) || strcmp(walk->flag, flag) != 0)
            continue;
        wish->axes |= (uint32_t)(wish->info->attributes[i]->type == COPES_ATTRIBUTE_AXIS) << i;
        return set_attribute(walk, wish->info->attributes[i], &wish->op);
    }
    char left_out[OPERATORS_NAME_SIZE];
    if (operators_left_out(wish->info, left_out) && strcmp(walk->flag, left_out) == 0) {
        wish->wanted[0] = false;
        return arguments_no_value(walk);
    }
    const int output = operators_output(wish->info, walk->flag);
    if (output >= 0) {
        wish->wanted[output] = true;
        return arguments_no_value(walk);
    }
    return refuse_flag(wish, walk->flag);
}

/* Finds the operator: --backward may stand anywhere, and decides which flags there are. Where wish->info stays NULL,
 * the exit status is returned. */
static int read_operator(int argc, char **argv, request *wish)
{
    char names[512];
    bool backward = false, help = false;
    copes_op op;
    operators_list(names, sizeof names);
    for (int i = 1; i < argc; i++) {
        backward = backward || strcmp(argv[i], "--backward") == 0;
        help = help || strcmp(argv[i], "--help") == 0;
    }
    if (argc < 2 || strncmp(argv[1], "--", 2) == 0)
        return help ? (help_run(stdout, NULL), 0)
                    : complain(EXIT_USAGE, "run needs an operator first: one of %s", names);
    wish->name = argv[1];
    if (operators_find(wish->name, false, &op) == NULL)
        return operators_refuse(wish->name);
    if (help) {
        help_run(stdout, wish->name);
        return 0;
    }
    wish->info = operators_find(wish->name, backward, &wish->op);
    return wish->info != NULL ? 0 : complain(EXIT_USAGE, "%s has no backward", wish->name);
}

int request_read(int argc, char **argv, request *wish)
{
    *wish = (request){.device = {kDLCPU, 0}};
    const int status = read_operator(argc, argv, wish);
    if (wish->info == NULL)
        return status;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        wish->wanted[i] = wish->info->out[i] != NULL && (i == 0 || wish->info->out[i]->optional == 0);
    arguments walk = arguments_begin(argc - 1, argv + 1);
    for (arguments_kind kind = arguments_next(&walk); kind != ARGUMENTS_END; kind = arguments_next(&walk)) {
        if (kind == ARGUMENTS_WORD)
            return complain(EXIT_USAGE, "\"%s\" is neither a flag nor a flag's value", walk.word);
        if (!read_flag(&walk, wish))
            return EXIT_USAGE;
    }
    if (wish->in == NULL || wish->out == NULL)
        return complain(EXIT_USAGE, "run needs --%s FILE.safetensors", wish->in == NULL ? "in" : "out");
    return -1;
}

int request_resolve_axes(request *wish, int32_t rank)
{
    for (int i = 0; i < wish->info->attribute_count; i++) {
        const copes_attribute_info *attribute = wish->info->attributes[i];
        const int32_t axes = attribute->axes > 0 ? attribute->axes : rank;
        int32_t axis;
        if ((wish->axes >> i & 1) == 0 || axes == 0)
            continue;
        memcpy(&axis, (char *)&wish->op + attribute->offset, sizeof axis);
        if (attribute->axes == 0 && (axis < -axes || axis >= axes))
            return complain(EXIT_FAILED, "%s: %s: %s is %d; with tensors of rank %d it must be %d to %d", wish->in,
                            wish->info->name, attribute->name, axis, axes, -axes, axes - 1);
        axis -= axis >= 0 && axis < axes ? axes : 0;
        memcpy((char *)&wish->op + attribute->offset, &axis, sizeof axis);
    }
    return 0;
}
