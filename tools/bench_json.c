/* The benchmark's results as JSON, through cJSON. */
#include "tools/bench.h"

#include "tools/arguments.h"
#include "tools/whole_file.h"

#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void add_qk(cJSON *entry, const bench_case *c)
{
    const bool cached = c->cache != BENCH_CACHE_NONE;
    cJSON_AddNumberToObject(entry, "kv_head", (double)c->kv_head);
    cJSON_AddStringToObject(entry, "norm", bench_norm_name(c->norm));
    cJSON_AddStringToObject(entry, "cache", cached ? check_type_of(bench_cache_type(c))->name : "none");
    cJSON_AddBoolToObject(entry, "positions", c->positions);
    cJSON_AddBoolToObject(entry, "in_place", c->in_place);
    cJSON_AddBoolToObject(entry, "grad_weights", c->grad_weights);
}

static cJSON *add_shape(cJSON *entry, const bench_case *c)
{
    char name[BENCH_NAME];
    bench_case_name(c, name);
    cJSON_AddStringToObject(entry, "name", name);
    cJSON_AddStringToObject(entry, "op", bench_operator_name(c->op));
    cJSON_AddStringToObject(entry, "mode", c->backward ? "backward" : "forward");
    if (c->op == BENCH_MERGE)
        cJSON_AddNumberToObject(entry, "shares", (double)c->shares);
    if (c->op != BENCH_TPA && c->op != BENCH_QK && c->op != BENCH_MERGE)
        cJSON_AddStringToObject(entry, "act", bench_act_name(c->act));
    if (c->act == COPES_ACT_SOFTMAX)
        cJSON_AddStringToObject(entry, "axis", c->over_tokens ? "sequence" : "features");
    if (c->pass != BENCH_PASS_NONE)
        cJSON_AddStringToObject(entry, "pass", bench_pass_name(c->pass));
    if (c->mask || c->from_output)
        cJSON_AddStringToObject(entry, "kept", c->mask ? "mask" : "output");
    cJSON_AddStringToObject(entry, "dtype", check_type_of(c->type)->name);
    cJSON_AddNumberToObject(entry, "batch", (double)c->batch);
    cJSON_AddNumberToObject(entry, "head", (double)c->head);
    cJSON_AddNumberToObject(entry, "dim", (double)c->dim);
    cJSON_AddNumberToObject(entry, "n", (double)c->n);
    if (c->op == BENCH_ROTATE || c->op == BENCH_QK) {
        cJSON_AddNumberToObject(entry, "rotary_dim", (double)bench_turned(c));
        cJSON_AddBoolToObject(entry, "interleaved", c->interleaved);
    }
    if (c->op == BENCH_MD_COSINE)
        cJSON_AddNumberToObject(entry, "grid_rank", (double)c->grid_rank);
    if (c->op == BENCH_QK)
        add_qk(entry, c);
    else if (c->op != BENCH_ACT && c->op != BENCH_TPA && c->op != BENCH_MERGE) {
        cJSON_AddBoolToObject(entry, "one_theta", c->one_theta);
        cJSON_AddBoolToObject(entry, "positions", c->positions);
        cJSON_AddBoolToObject(entry, "in_place", c->in_place);
        cJSON_AddBoolToObject(entry, "grad_theta", c->grad_theta);
    }
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

static int fail_at(const char *path, const char *reason)
{
    return complain(EXIT_FAILED, "%s: %s", path, reason);
}

int bench_json_try(const char *path)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    if (!whole_file_open(&file, path, reason))
        return fail_at(path, reason);
    whole_file_abandon(&file);
    return 0;
}

static int write_text(const char *path, const char *text)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    if (!whole_file_open(&file, path, reason))
        return fail_at(path, reason);
    if (fputs(text, file.stream) >= 0 && fputc('\n', file.stream) == '\n')
        return whole_file_commit(&file, reason) ? 0 : fail_at(path, reason);
    const int error = errno;
    whole_file_abandon(&file);
    return fail_at(path, strerror(error));
}

int bench_json_save(const bench_json *json, const char *path)
{
    char *text = cJSON_Print(json->root);
    const int status = text != NULL ? write_text(path, text) : complain(EXIT_FAILED, "no memory for the results");
    cJSON_free(text);
    return status;
}
