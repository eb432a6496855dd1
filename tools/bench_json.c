/* The benchmark's results as JSON, through cJSON. */
#include "tools/bench.h"

#include "tools/arguments.h"

#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct bench_json {
    cJSON *root, *cases;
};

bench_json *bench_json_create(const char *device)
{
    bench_json *json = malloc(sizeof *json);
    if (json == NULL)
        return NULL;
    json->root = cJSON_CreateObject();
    cJSON_AddStringToObject(json->root, "version", copes_version());
    cJSON_AddStringToObject(json->root, "device", device);
    json->cases = cJSON_AddArrayToObject(json->root, "cases");
    if (json->cases != NULL)
        return json;
    bench_json_free(json);
    return NULL;
}

void bench_json_free(bench_json *json)
{
    if (json != NULL)
        cJSON_Delete(json->root);
    free(json);
}

static cJSON *add_shape(cJSON *entry, const bench_case *c)
{
    char name[BENCH_NAME];
    bench_case_name(c, name);
    cJSON_AddStringToObject(entry, "name", name);
    cJSON_AddStringToObject(entry, "op", bench_operator_name(c->op));
    cJSON_AddStringToObject(entry, "mode", c->backward ? "backward" : "forward");
    if (c->op != BENCH_TPA)
        cJSON_AddStringToObject(entry, "act", bench_act_name(c->act));
    if (c->act == COPES_SOFTMAX)
        cJSON_AddStringToObject(entry, "axis", c->over_tokens ? "sequence" : "features");
    cJSON_AddStringToObject(entry, "dtype", check_type_of(c->type)->name);
    cJSON_AddNumberToObject(entry, "batch", (double)c->batch);
    cJSON_AddNumberToObject(entry, "head", (double)c->head);
    cJSON_AddNumberToObject(entry, "dim", (double)c->dim);
    cJSON_AddNumberToObject(entry, "n", (double)c->n);
    if (c->op == BENCH_MD_COSINE)
        cJSON_AddNumberToObject(entry, "grid_rank", (double)c->grid_rank);
    return cJSON_AddNumberToObject(entry, "prefix", (double)c->prefix);
}

static cJSON *add_figures(cJSON *entry, const bench_case *c, const bench_result *result)
{
    if (result->skipped != NULL)
        return cJSON_AddStringToObject(entry, "skipped", result->skipped);
    cJSON_AddNumberToObject(entry, "ms", result->ms);
    cJSON_AddNumberToObject(entry, "copy_ms", result->copy_ms);
    cJSON_AddNumberToObject(entry, "gb_per_s", result->rate);
    cJSON_AddNumberToObject(entry, "share", result->share);
    if (c->op == BENCH_TPA)
        cJSON_AddNumberToObject(entry, "fma_share", result->peak_share);
    cJSON_AddNumberToObject(entry, "mib", result->mebibytes);
    return cJSON_AddNumberToObject(entry, "repeats", result->repeats);
}

int bench_json_add(bench_json *json, const bench_case *c, const bench_result *result)
{
    cJSON *entry = cJSON_CreateObject();
    if (add_shape(entry, c) != NULL && add_figures(entry, c, result) != NULL &&
        cJSON_AddItemToArray(json->cases, entry))
        return 0;
    cJSON_Delete(entry);
    return -1;
}

/* The name that the file has while it is being written. */
static char *part_of(const char *path)
{
    const size_t size = strlen(path) + sizeof ".part";
    char *part = malloc(size);
    if (part != NULL)
        snprintf(part, size, "%s.part", path);
    return part;
}

/* Writes the text, or with NULL only tries whether a file can be made there. */
static int write_text(const char *path, const char *text)
{
    char *part = part_of(path);
    FILE *file = part != NULL ? fopen(part, "wb") : NULL;
    bool ok = file != NULL && (text == NULL || (fputs(text, file) >= 0 && fputc('\n', file) == '\n'));
    if (file != NULL && fclose(file) != 0)
        ok = false;
    if (ok && text != NULL)
        ok = rename(part, path) == 0;
    const int error = errno;
    if (file != NULL && (!ok || text == NULL))
        remove(part);
    free(part);
    return ok ? 0 : complain(EXIT_FAILED, "%s: %s", path, part == NULL ? "out of memory" : strerror(error));
}

int bench_json_try(const char *path)
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return complain(EXIT_FAILED, "%s: what is there is not a regular file", path);
    return write_text(path, NULL);
}

int bench_json_save(const bench_json *json, const char *path)
{
    char *text = cJSON_Print(json->root);
    const int status = text != NULL ? write_text(path, text) : complain(EXIT_FAILED, "no memory for the results");
    cJSON_free(text);
    return status;
}
