/* Adapters as PEFT lays them out: adapter_config.json beside adapter_model.safetensors, whose tensors have the names of
 * the model's, base_model.model.….lora_A.weight and lora_B.weight. MiniMind's own names, ….lora.A.weight, are read too.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "model/adapter.h"
#include "model/convert.h"
#include "model/fields.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "model/save.h"

/* --- Saving --- */

/* The last part of a matrix's module, "q_proj", in place. */
static const char *leaf_of(const mm_adapter *adapter, int64_t base, char module[MMI_NAME_SIZE])
{
    mmi_adapter_module(adapter->layout, base, module);
    return strrchr(module, '.') + 1;
}

/* Whether every matrix whose module ends so has an adapter: the last part then means them all. */
static bool means_no_others(const mm_adapter *adapter, const char *leaf)
{
    int64_t pair = 0;
    for (int64_t i = 0; i < adapter->layout->count; i++) {
        char module[MMI_NAME_SIZE];
        mmi_tensor t;
        mmi_layout_tensor(adapter->layout, i, &t);
        bool adapted = pair < adapter->pairs && adapter->bases[pair] == i;
        pair += adapted;
        if (!adapted && mmi_layout_is_projection(&t) && strcmp(leaf_of(adapter, i, module), leaf) == 0)
            return false;
    }
    return true;
}

static bool has_string(const mmi_json *list, const char *text)
{
    bool found = false;
    for (size_t i = 0; i < mmi_json_size(list); i++)
        found |= strcmp(mmi_json_string(mmi_json_at(list, i), NULL), text) == 0;
    return found;
}

/* target_modules: last parts where these say it, whole names elsewhere. NULL: out of memory. */
static mmi_json *target_modules(const mm_adapter *adapter)
{
    mmi_json *list = mmi_json_new_array();
    for (int64_t i = 0; list && i < adapter->pairs; i++) {
        char module[MMI_NAME_SIZE];
        const char *leaf = leaf_of(adapter, adapter->bases[i], module);
        if (has_string(list, leaf))
            continue;
        const char *name = means_no_others(adapter, leaf) ? leaf : module;
        if (!mmi_json_append(list, mmi_json_new_string(name, strlen(name)))) {
            mmi_json_free(list);
            list = NULL;
        }
    }
    return list;
}

static mmi_json *number_of(double value)
{
    bool whole = value == floor(value) && fabs(value) < 1e15;
    return whole ? mmi_json_new_int((int64_t)value) : mmi_json_new_real(value);
}

/* What the weights are scaled by stands in their own file, too: it tells a config of another saving. */
#define ALPHA "lora_alpha"
#define ALPHA_TEXT 40

static mm_status show_alpha(char text[ALPHA_TEXT], double alpha)
{
    char *shown = NULL;
    size_t length = 0;
    mmi_json *json = number_of(alpha);
    mm_status status = mmi_json_write(json, 0, &shown, &length);
    if (status == MM_OK)
        snprintf(text, ALPHA_TEXT, "%s", shown);
    mmi_free(shown);
    mmi_json_free(json);
    return status;
}

mm_status mmi_adapter_write_config(const mm_adapter *adapter, const char *path)
{
    const mm_adapter_options *o = &adapter->options;
    mmi_json *json = mmi_json_new_object();
    bool good =
        json && mmi_json_set(json, "base_model_name_or_path", mmi_json_new_null()) &&
        mmi_json_set_text(json, "bias", "none") && mmi_json_set(json, "fan_in_fan_out", mmi_json_new_bool(false)) &&
        mmi_json_set(json, "inference_mode", mmi_json_new_bool(true)) &&
        mmi_json_set(json, ALPHA, number_of(o->alpha)) && mmi_json_set_real(json, "lora_dropout", o->dropout) &&
        mmi_json_set(json, "modules_to_save", mmi_json_new_null()) && mmi_json_set_text(json, "peft_type", "LORA") &&
        mmi_json_set_int(json, "r", o->rank) && mmi_json_set(json, "target_modules", target_modules(adapter)) &&
        mmi_json_set_text(json, "task_type", "CAUSAL_LM") && mmi_json_set(json, "use_dora", mmi_json_new_bool(false)) &&
        mmi_json_set(json, "use_rslora", mmi_json_new_bool(false));
    mm_status status =
        good ? mmi_json_write_file(json, 2, path) : mmi_fail(MM_ERR_MEMORY, "%s: out of memory for its text", path);
    mmi_json_free(json);
    return status;
}

static mm_status write_config(const void *owner, const char *path)
{
    return mmi_adapter_write_config(owner, path);
}

static mm_status write_weights(const void *owner, const char *path)
{
    const mm_adapter *adapter = owner;
    char alpha[ALPHA_TEXT] = "";
    const char *const metadata[] = { "format", "pt", ALPHA, alpha, NULL };
    size_t count = (size_t)mm_adapter_tensor_count(adapter);
    mmi_st_entry *entries = mmi_calloc(count, sizeof *entries);
    char(*names)[MMI_ADAPTER_NAME_SIZE] = mmi_alloc(count, sizeof *names);
    mm_status status = show_alpha(alpha, adapter->options.alpha);
    if (!entries || !names)
        status = mmi_fail_memory(count * (sizeof *entries + sizeof *names), "the list of tensors");
    for (size_t i = 0; status == MM_OK && i < count; i++) {
        mmi_tensor t;
        mmi_adapter_shape(adapter, (int64_t)i, &t);
        memcpy(names[i], MMI_ADAPTER_PREFIX, sizeof MMI_ADAPTER_PREFIX);
        mmi_adapter_tensor_name(adapter, (int64_t)i, names[i] + strlen(MMI_ADAPTER_PREFIX),
                                sizeof names[i] - strlen(MMI_ADAPTER_PREFIX));
        entries[i] = (mmi_st_entry){ .name = names[i],
                                     .dtype = MM_F32,
                                     .rank = 2,
                                     .shape = { t.shape[0], t.shape[1], 1, 1 },
                                     .data = mmi_adapter_room(adapter, (int64_t)i) };
    }
    if (status == MM_OK)
        status = mmi_st_write(path, entries, count, metadata);
    mmi_free(entries);
    mmi_free(names);
    return status;
}

mm_status mm_adapter_save(const mm_adapter *adapter, const char *directory)
{
    if (!adapter || !directory)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_save: %s is NULL", adapter ? "directory" : "adapter");
    if (directory[0] == '\0')
        return mmi_fail(MM_ERR_ARG, "mm_adapter_save: the directory's name is empty");
    const mmi_saved_pair pair = { MMI_ADAPTER_CONFIG, MMI_ADAPTER_WEIGHTS, write_config, write_weights, adapter };
    return mmi_save_pair(directory, &pair);
}

/* --- Reading the config --- */

/* Keys that change what an adapter computes, in ways that are not done here. */
static const char *const beyond[] = {
    "use_rslora",        "use_dora",        "fan_in_fan_out",          "lora_bias",           "use_qalora",
    "modules_to_save",   "rank_pattern",    "alpha_pattern",           "layers_to_transform", "layers_pattern",
    "layer_replication", "exclude_modules", "trainable_token_indices", "target_parameters",   "alora_invocation_tokens",
    "use_bdlora",        "arrow_config",    "monteclora_config",       "kasa_config"
};

/* Whether a value says anything: not null, false or empty. */
static bool is_said(const mmi_json *value)
{
    size_t length = 0;
    switch (mmi_json_what(value)) {
    case MMI_JSON_NONE:
    case MMI_JSON_NULL:
        return false;
    case MMI_JSON_BOOL:
        return mmi_json_bool(value, false);
    case MMI_JSON_ARRAY:
    case MMI_JSON_OBJECT:
        return mmi_json_size(value) > 0;
    case MMI_JSON_STRING:
        mmi_json_string(value, &length);
        return length > 0;
    default:
        return true;
    }
}

/* Whether an adapter begins beside weights that stay as they are. PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA begin by taking
 * B A off the weights, which PEFT does again whenever it loads such an adapter. */
static bool begins_beside(const mmi_json *initialisation)
{
    static const char *const words[] = { "gaussian", "Gaussian", "eva", "orthogonal" };
    const char *word = mmi_json_string(initialisation, NULL);
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return !word;
}

static mm_status check_kind(const mmi_json *json, const char *path)
{
    const char *type = mmi_json_string(mmi_json_get(json, "peft_type"), NULL);
    const char *bias = mmi_json_string(mmi_json_get(json, "bias"), NULL);
    if (!type)
        return mmi_fail(MM_ERR_FORMAT, "%s: peft_type is missing, it must be \"LORA\"", path);
    if (strcmp(type, "LORA") != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: peft_type is \"%.64s\", only \"LORA\" is run here", path, type);
    if (bias && strcmp(bias, "none") != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: bias is \"%.64s\", only \"none\" is run here", path, bias);
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (is_said(mmi_json_get(json, beyond[i])))
            return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s is set, which is not run here", path, beyond[i]);
    const mmi_json *initialisation = mmi_json_get(json, "init_lora_weights");
    char word[MMI_QUOTE_SIZE];
    if (!begins_beside(initialisation))
        return mmi_fail(MM_ERR_UNSUPPORTED,
                        "%s: init_lora_weights is %s, which changes the model's weights, too; that is not run here",
                        path, mmi_quote(mmi_json_string(initialisation, NULL), word));
    return MM_OK;
}

/* Behind the rank. */
static mm_status take_alpha(mm_adapter_options *o, const mmi_json *value, const char *path)
{
    double alpha = mmi_json_number(value, NAN);
    if (!(alpha > 0) || !isfinite(alpha))
        return mmi_fail(MM_ERR_FORMAT, "%s: " ALPHA " is missing or not above 0", path);
    if (!isfinite((float)(alpha / o->rank)))
        return mmi_fail(MM_ERR_FORMAT, "%s: " ALPHA " is %g, over r it must be a float32", path, alpha);
    o->alpha = alpha;
    return MM_OK;
}

static mm_status read_numbers(mm_adapter_options *o, const mmi_json *json, const char *path)
{
    int64_t rank = mmi_json_int(mmi_json_get(json, "r"), -1);
    double dropout = mmi_json_number(mmi_json_get(json, "lora_dropout"), 0);
    if (rank < 1 || rank > MMI_MOST_RANK)
        return mmi_fail(MM_ERR_FORMAT, "%s: r is missing or out of range, it must be from 1 to %d", path,
                        MMI_MOST_RANK);
    if (!(dropout >= 0 && dropout < 1))
        return mmi_fail(MM_ERR_FORMAT, "%s: lora_dropout is %g, it must be from 0 up and below 1", path, dropout);
    o->rank = (int32_t)rank;
    o->dropout = dropout;
    return take_alpha(o, mmi_json_get(json, ALPHA), path);
}

/* A list of names as patterns, in memory of the caller's. */
static mm_status join_targets(char **out, const mmi_json *list, const char *path)
{
    size_t room = 1, used = 0;
    for (size_t i = 0; i < mmi_json_size(list); i++) {
        size_t length = 0;
        const char *name = mmi_json_string(mmi_json_at(list, i), &length);
        if (!name || length == 0 || strlen(name) != length)
            return mmi_fail(MM_ERR_FORMAT, "%s: target_modules has something that is no name", path);
        if (strpbrk(name, ",* "))
            return mmi_fail(MM_ERR_UNSUPPORTED, "%s: target_modules has \"%.64s\", which is not a plain name", path,
                            name);
        if (mmi_adapter_is_rule(name)) /* in a list it names a module, of which there is none */
            return mmi_fail(MM_ERR_FORMAT, "%s: target_modules has \"%s\", which is no module's name", path, name);
        room += length + 1;
    }
    char *text = mmi_alloc(room, 1);
    if (!text)
        return mmi_fail_memory(room, path);
    text[0] = '\0';
    for (size_t i = 0; i < mmi_json_size(list); i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "," : "",
                                 mmi_json_string(mmi_json_at(list, i), NULL));
    *out = text;
    return MM_OK;
}

static mm_status read_targets(char **out, const mmi_json *json, const char *path)
{
    const mmi_json *value = mmi_json_get(json, "target_modules");
    const char *text = mmi_json_string(value, NULL);
    if (mmi_json_what(value) == MMI_JSON_ARRAY && mmi_json_size(value) > 0)
        return join_targets(out, value, path);
    if (!text)
        return mmi_fail(MM_ERR_FORMAT, "%s: target_modules is missing or empty, it must be a list of names", path);
    if (strcmp(text, "all-linear") != 0)
        return mmi_fail(MM_ERR_UNSUPPORTED,
                        "%s: target_modules is \"%.64s\"; of texts only \"all-linear\" is run here, "
                        "not a regular expression",
                        path, text);
    *out = mmi_strdup(text);
    return *out ? MM_OK : mmi_fail_memory(strlen(text), path);
}

/* `*targets` is the caller's to free. */
static mm_status read_config(mm_adapter_options *o, char **targets, const char *path)
{
    mmi_json *json = NULL;
    mm_status status = mmi_json_read_file(path, &json);
    if (status != MM_OK)
        return status;
    if (mmi_json_what(json) != MMI_JSON_OBJECT)
        status =
            mmi_fail(MM_ERR_FORMAT, "%s: is %s, it must be an object", path, mmi_json_kind_name(mmi_json_what(json)));
    if (status == MM_OK)
        status = check_kind(json, path);
    if (status == MM_OK)
        status = read_numbers(o, json, path);
    if (status == MM_OK)
        status = read_targets(targets, json, path);
    mmi_json_free(json);
    o->targets = *targets;
    return status;
}

/* --- Reading the weights --- */

static bool skip_prefix(const char **name, const char *prefix)
{
    bool has = strncmp(*name, prefix, strlen(prefix)) == 0;
    if (has)
        *name += strlen(prefix);
    return has;
}

/* Which matrix and which side (0: A, 1: B) a tensor's name means; false: none of this layout. `module` gets the name
 * that the matrix has here, without ".weight". */
static bool understand(char module[MMI_NAME_SIZE], int64_t *base, int *side, const mmi_layout *layout, const char *name)
{
    static const char *const ends[] = { ".lora_A.weight", ".lora_B.weight", ".lora.A.weight", ".lora.B.weight" };
    skip_prefix(&name, MMI_ADAPTER_PREFIX);
    bool whole = strncmp(name, "model.", strlen("model.")) == 0;
    for (int i = 0; i < 4; i++) {
        size_t length = strlen(name), end = strlen(ends[i]);
        if (length <= end || strcmp(name + length - end, ends[i]) != 0 || length - end > MMI_NAME_SIZE - 16)
            continue;
        char full[MMI_NAME_SIZE];
        mmi_tensor t;
        snprintf(module, MMI_NAME_SIZE, "%s%.*s", whole ? "" : "model.", (int)(length - end), name);
        snprintf(full, sizeof full, "%.*s.weight", MMI_NAME_SIZE - 8, module);
        *base = mmi_name_find(layout, full);
        *side = i % 2;
        if (*base < 0)
            return false;
        mmi_layout_tensor(layout, *base, &t);
        return mmi_layout_is_projection(&t);
    }
    return false;
}

static mm_status not_understood(const mmi_st_file *file, const mmi_st_entry *e)
{
    return mmi_fail(MM_ERR_FORMAT, "%s: %.200s is no adapter of a projection in this model's layers", file->what,
                    e->name);
}

/* A file alone says what it adapts by its names, and the rank by its shapes; the factor is 1, as MiniMind's. */
static mm_status infer(mm_adapter_options *o, char **targets, const mmi_layout *layout, const mmi_st_file *file)
{
    size_t used = 0, room = file->count * MMI_NAME_SIZE + 1;
    char *text = mmi_alloc(room, 1);
    if (!text)
        return mmi_fail_memory(room, file->what);
    *targets = text;
    text[0] = '\0';
    for (size_t i = 0; i < file->count; i++) {
        const mmi_st_entry *e = &file->entries[i];
        char module[MMI_NAME_SIZE];
        int64_t base;
        int side;
        if (!understand(module, &base, &side, layout, e->name))
            return not_understood(file, e);
        if (side == 1)
            continue;
        if (e->rank != 2 || e->shape[0] < 1 || e->shape[0] > MMI_MOST_RANK)
            return mmi_fail(MM_ERR_FORMAT, "%s: %.200s has no rank from 1 to %d", file->what, e->name, MMI_MOST_RANK);
        o->rank = (int32_t)e->shape[0];
        used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "," : "", module);
    }
    o->alpha = o->rank;
    o->targets = text;
    return used > 0 ? MM_OK : mmi_fail(MM_ERR_FORMAT, "%s: holds no adapter", file->what);
}

static mm_status check_entry(const mmi_st_file *file, const mmi_st_entry *e, const mm_adapter *adapter, int64_t index)
{
    mmi_tensor t;
    mmi_adapter_shape(adapter, index, &t);
    if (e->rank != 2 || e->shape[0] != t.shape[0] || e->shape[1] != t.shape[1]) {
        char has[MMI_ST_SHAPE_TEXT], wants[MMI_ST_SHAPE_TEXT];
        mmi_st_shape_text(has, e->shape, e->rank);
        mmi_st_shape_text(wants, t.shape, 2);
        return mmi_fail(MM_ERR_FORMAT, "%s: %.200s is %s, rank and model imply %s", file->what, e->name, has, wants);
    }
    if (e->dtype != MM_F32 && e->dtype != MM_BF16 && e->dtype != MM_F16)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %.200s is %s, adapters may be F32, BF16 or F16", file->what, e->name,
                        e->dtype_name);
    return MM_OK;
}

/* Every tensor once, and nothing else. `places` [tensors], zeroed, gets where each is in the file, counted from 1. */
static mm_status find_tensors(size_t *places, const mm_adapter *adapter, const mmi_st_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const mmi_st_entry *e = &file->entries[i];
        char module[MMI_NAME_SIZE];
        int64_t base, pair = -1;
        int side;
        if (understand(module, &base, &side, adapter->layout, e->name))
            pair = mmi_adapter_pair(adapter, base);
        if (pair < 0)
            return not_understood(file, e);
        if (places[2 * pair + side])
            return mmi_fail(MM_ERR_FORMAT, "%s: %.200s is there twice under two names", file->what, e->name);
        places[2 * pair + side] = i + 1;
        mm_status status = check_entry(file, e, adapter, 2 * pair + side);
        if (status != MM_OK)
            return status;
    }
    for (int64_t i = 0; i < mm_adapter_tensor_count(adapter); i++) {
        char name[MMI_ADAPTER_NAME_SIZE];
        mmi_adapter_tensor_name(adapter, i, name, sizeof name);
        if (!places[i])
            return mmi_fail(MM_ERR_FORMAT, "%s: %s is missing", file->what, name);
    }
    return MM_OK;
}

/* Room is taken for what was found to be there, not for what a damaged file says. */
static mm_status take_tensors(mm_adapter *adapter, const mmi_st_file *file)
{
    const int64_t count = mm_adapter_tensor_count(adapter);
    size_t *places = mmi_calloc((size_t)count, sizeof *places);
    mm_status status =
        places ? find_tensors(places, adapter, file) : mmi_fail_memory((size_t)count * sizeof *places, file->what);
    if (status == MM_OK)
        status = mmi_adapter_make_room(adapter);
    for (int64_t i = 0; status == MM_OK && i < count; i++)
        status = mmi_convert_entry(mmi_adapter_room(adapter, i), MM_F32, file, &file->entries[places[i] - 1]);
    mmi_free(places);
    return status;
}

static mm_status build(mm_adapter **out, mm_model *model, const mm_adapter_options *o, const mmi_st_file *file)
{
    mm_adapter *adapter = NULL;
    mm_status status = mmi_adapter_new(&adapter, model, o);
    if (status == MM_ERR_ARG) /* the numbers were looked at: it is a target that this model lacks */
        status = mmi_fail_within(MM_ERR_FORMAT, "%s is not for this model", file->what);
    if (status != MM_OK)
        return status;
    status = take_tensors(adapter, file);
    if (status == MM_OK)
        *out = adapter;
    else
        mm_adapter_free(adapter);
    return status;
}

/* A process that dies between the two files leaves weights beside an older config. */
static mm_status check_alpha(const mmi_st_file *file, const mm_adapter_options *o, const char *config)
{
    char saved[ALPHA_TEXT] = "", here[ALPHA_TEXT] = "";
    mm_status status = mmi_st_hint(file, ALPHA, saved, sizeof saved);
    if (status == MM_OK)
        status = show_alpha(here, o->alpha);
    if (status == MM_OK && *saved != '\0' && strcmp(saved, here) != 0)
        return mmi_fail(MM_ERR_FORMAT, "%s: " ALPHA " is %s, but the weights in %s were saved with %s", config, here,
                        file->what, saved);
    return status;
}

/* It may say so without its config, too. */
static mm_status find_alpha(mm_adapter_options *o, const mmi_st_file *file)
{
    char saved[ALPHA_TEXT] = "", text[ALPHA_TEXT + 2];
    mmi_json *json = NULL;
    mm_status status = mmi_st_hint(file, ALPHA, saved, sizeof saved);
    if (status != MM_OK || *saved == '\0')
        return status;
    int length = snprintf(text, sizeof text, "[%s]", saved);
    status = mmi_json_parse(text, (size_t)length, file->what, &json);
    if (status == MM_OK)
        status = take_alpha(o, mmi_json_size(json) == 1 ? mmi_json_at(json, 0) : NULL, file->what);
    mmi_json_free(json);
    return status;
}

/* `config` NULL: the file says it all. */
static mm_status load(mm_adapter **out, mm_model *model, const char *config, const char *weights)
{
    mm_adapter_options o = MM_ADAPTER_OPTIONS_INIT;
    mmi_st_file file = { 0 };
    char *targets = NULL;
    mm_status status = config ? read_config(&o, &targets, config) : MM_OK;
    if (status == MM_OK)
        status = mmi_st_open_unmapped(weights, &file);
    if (status == MM_OK && config)
        status = check_alpha(&file, &o, config);
    if (status == MM_OK && !config)
        status = infer(&o, &targets, mmi_model_layout(model), &file);
    if (status == MM_OK && !config)
        status = find_alpha(&o, &file);
    if (status == MM_OK)
        status = build(out, model, &o, &file);
    mmi_st_close(&file);
    mmi_free(targets);
    return status;
}

mm_status mm_adapter_load(mm_model *model, const char *path, mm_adapter **out)
{
    if (!model || !path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_adapter_load: %s is NULL", !model ? "model" : path ? "out" : "path");
    if (!mmi_is_directory(path))
        return mmi_file_exists(path) ? load(out, model, NULL, path) :
                                       mmi_fail(MM_ERR_IO, "%s: there is no such directory or file", path);
    char *config = mmi_path_join(path, MMI_ADAPTER_CONFIG), *weights = mmi_path_join(path, MMI_ADAPTER_WEIGHTS);
    mm_status status = config && weights ? load(out, model, config, weights) : mmi_fail_memory(strlen(path), "a path");
    mmi_free(config);
    mmi_free(weights);
    return status;
}
