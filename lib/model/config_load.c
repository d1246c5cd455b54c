/* config.json into fields. Writing one is in config_save.c. */
#include <stdio.h>
#include <string.h>

#include <minimind/config.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/fields.h"

#define SCALING_GROUP "rope_scaling"
#define NEWER_GROUP "rope_parameters" /* holds rope_theta too */

typedef struct loader {
    const char *what; /* the file, for messages */
    mmi_family family;
    mmi_fields fields;
    mmi_fields newer; /* what rope_parameters says */
    mmi_json *extra;  /* what the table does not know */
} loader;

/* --- One value --- */

static const char *describe(const mmi_json *json, char text[MMI_QUOTE_SIZE])
{
    mmi_json_kind kind = mmi_json_what(json);
    if (kind == MMI_JSON_STRING)
        return mmi_quote(mmi_json_string(json, NULL), text);
    if (kind == MMI_JSON_REAL)
        return mmi_real_print(mmi_json_number(json, 0), text, MMI_QUOTE_SIZE);
    if (kind == MMI_JSON_INT)
        snprintf(text, MMI_QUOTE_SIZE, "%lld", (long long)mmi_json_int(json, 0));
    else if (kind == MMI_JSON_BOOL)
        snprintf(text, MMI_QUOTE_SIZE, "%s", mmi_json_bool(json, false) ? "true" : "false");
    else
        snprintf(text, MMI_QUOTE_SIZE, "%s", mmi_json_kind_name(kind));
    return text;
}

static bool right_type(const mmi_field *field, mmi_json_kind kind)
{
    if (field->type == MM_TYPE_FLOAT)
        return kind == MMI_JSON_REAL || kind == MMI_JSON_INT;
    if (field->type == MM_TYPE_INT)
        return kind == MMI_JSON_INT;
    return kind == (field->type == MM_TYPE_BOOL ? MMI_JSON_BOOL : MMI_JSON_STRING);
}

/* False when the value is not one of the row's; no message. */
static bool read_value(const mmi_field *field, const mmi_json *json, mmi_value *out)
{
    if (!right_type(field, mmi_json_what(json)))
        return false;
    if (field->type == MM_TYPE_FLOAT) {
        out->f = mmi_json_number(json, 0);
        return mmi_field_in_range(field, out->f);
    }
    if (field->type == MM_TYPE_STRING) {
        size_t length = 0;
        const char *text = mmi_json_string(json, &length);
        out->i = mmi_field_word(field, text, length);
        return out->i >= 0;
    }
    if (field->type == MM_TYPE_BOOL) {
        out->i = mmi_json_bool(json, false);
        return true;
    }
    out->i = mmi_json_int(json, 0);
    return mmi_field_in_range(field, (double)out->i);
}

/* Why read_value() said no. A word or a version that we don't know is somebody else's, not a mistake. */
static mm_status refuse_value(const loader *l, mmi_key key, const char *name, const mmi_json *json)
{
    const mmi_field *field = mmi_field_get(key);
    char found[MMI_QUOTE_SIZE], allowed[256];
    describe(json, found);
    if (!right_type(field, mmi_json_what(json)))
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s; it must be %s", l->what, name, found,
                        mmi_type_name(field->type));
    mmi_field_allowed(field, allowed, sizeof allowed);
    if (field->type == MM_TYPE_STRING || key == MMI_KEY_MINIMIND_VERSION)
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s is %s, which is not run; known is %s", l->what, name, found, allowed);
    return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s; allowed is %s", l->what, name, found, allowed);
}

static bool same_value(const mmi_field *field, mmi_value a, mmi_value b)
{
    return field->type == MM_TYPE_FLOAT ? a.f == b.f : a.i == b.i;
}

/* --- Members --- */

static mm_status keep(mmi_json *object, const char *name, mmi_json *json)
{
    if (mmi_json_set(object, name, mmi_json_share(json)))
        return MM_OK;
    return mmi_fail_memory(strlen(name), "a config's unknown keys");
}

static mm_status take_known(loader *l, mmi_fields *fields, mmi_key key, const char *name, mmi_json *json)
{
    const mmi_field *field = mmi_field_get(key);
    mmi_slot *slot = &fields->slots[key];
    mmi_value value = { 0 };
    if (mmi_json_what(json) == MMI_JSON_NULL) {
        if (key == MMI_KEY_NUM_KEY_VALUE_HEADS)
            slot->state = MMI_NULL;
        return MM_OK;
    }
    if (!read_value(field, json, &value))
        return mmi_field_is_ignored(key, l->family) ? keep(l->extra, name, json) : refuse_value(l, key, name, json);
    if (slot->state == MMI_SET && !same_value(field, slot->value, value)) {
        if (mmi_field_is_ignored(key, l->family))
            return keep(l->extra, name, json);
        char found[MMI_QUOTE_SIZE], other[64];
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s, but under another spelling of this key the file says %s", l->what,
                        name, describe(json, found), mmi_field_print(field, slot->value, other, sizeof other));
    }
    *slot = (mmi_slot){ MMI_SET, value };
    return MM_OK;
}

/* rope_scaling or rope_parameters. */
static mm_status take_group(loader *l, mmi_fields *fields, const char *group, mmi_json *json)
{
    char found[MMI_QUOTE_SIZE], name[128];
    mm_status status = MM_OK;
    mmi_json *unknown = NULL;
    if (mmi_json_what(json) == MMI_JSON_NULL)
        return MM_OK;
    if (mmi_json_what(json) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_FORMAT, "%s: %s is %s; it must be an object or null", l->what, group,
                        describe(json, found));
    for (void *i = mmi_json_first(json); i && status == MM_OK; i = mmi_json_next(json, i)) {
        int length = snprintf(name, sizeof name, "%s.%s", group, mmi_json_key(i));
        mmi_key key = length < (int)sizeof name ? mmi_field_find(name) : MMI_KEYS;
        if (key != MMI_KEYS) {
            status = take_known(l, fields, key, name, mmi_json_value(i));
            continue;
        }
        if (!unknown) {
            unknown = mmi_json_new_object();
            if (!mmi_json_set(l->extra, group, unknown))
                return mmi_fail_memory(strlen(group), "a config's unknown keys");
        }
        status = keep(unknown, mmi_json_key(i), mmi_json_value(i));
    }
    return status;
}

/* An object of scaling without a type is taken for YaRN. */
static void imply_yarn(mmi_fields *fields)
{
    if (!mmi_fields_is_set(fields, MMI_KEY_ROPE_TYPE))
        fields->slots[MMI_KEY_ROPE_TYPE] = (mmi_slot){ MMI_SET, { MMI_WORD_YARN } };
}

/* A name with a dot is a nested key only inside its group. */
static mmi_key key_of(const char *name)
{
    return strchr(name, '.') ? MMI_KEYS : mmi_field_find(name);
}

static mm_status take_member(loader *l, const char *name, mmi_json *json)
{
    mm_status status;
    if (strcmp(name, SCALING_GROUP) == 0) {
        status = take_group(l, &l->fields, name, json);
        if (status == MM_OK && mmi_json_what(json) == MMI_JSON_OBJECT)
            imply_yarn(&l->fields);
        return status;
    }
    if (strcmp(name, NEWER_GROUP) == 0) {
        status = take_group(l, &l->newer, name, json);
        if (status == MM_OK && mmi_fields_has_scaling(&l->newer))
            imply_yarn(&l->newer);
        return status;
    }
    if (strcmp(name, "mlp_only_layers") == 0)
        l->fields.mixed_layers = mmi_json_what(json) != MMI_JSON_NULL &&
                                 (mmi_json_what(json) != MMI_JSON_ARRAY || mmi_json_size(json) != 0);
    mmi_key key = key_of(name);
    return key == MMI_KEYS ? keep(l->extra, name, json) : take_known(l, &l->fields, key, name, json);
}

/* --- The whole file --- */

static bool speaks(const mmi_json *root, const char *name)
{
    mmi_json_kind kind = mmi_json_what(mmi_json_get(root, name));
    return kind != MMI_JSON_NONE && kind != MMI_JSON_NULL;
}

/* First of all: it decides which keys count. */
static mm_status find_family(loader *l, mmi_json *root)
{
    if (!speaks(root, "model_type"))
        return mmi_fail(MM_ERR_UNSUPPORTED, "%s: model_type is missing: without it the family is unknown", l->what);
    mm_status status = take_known(l, &l->fields, MMI_KEY_MODEL_TYPE, "model_type", mmi_json_get(root, "model_type"));
    if (status != MM_OK)
        return status;
    (void)mmi_fields_family(&l->fields, &l->family);
    if (l->family != MMI_MINIMIND2)
        return MM_OK;
    if (speaks(root, "minimind_version")) {
        mmi_json *version = mmi_json_get(root, "minimind_version");
        status = take_known(l, &l->fields, MMI_KEY_MINIMIND_VERSION, "minimind_version", version);
        (void)mmi_fields_family(&l->fields, &l->family);
        return status;
    }
    for (void *i = mmi_json_first(root); i; i = mmi_json_next(root, i)) {
        mmi_key key = key_of(mmi_json_key(i));
        if (key != MMI_KEYS && mmi_field_means_minimind3(key) && mmi_json_what(mmi_json_value(i)) != MMI_JSON_NULL)
            l->family = MMI_MINIMIND3;
    }
    return MM_OK;
}

static bool same_scaling(const loader *l, const mmi_fields *a, const mmi_fields *b)
{
    mmi_scaling x, y;
    if (mmi_fields_scaling(a, l->family, &x) != mmi_fields_scaling(b, l->family, &y))
        return false;
    return x.yarn == y.yarn && x.factor == y.factor && x.beta_fast == y.beta_fast && x.beta_slow == y.beta_slow &&
           x.attention_factor == y.attention_factor && x.original == y.original;
}

/* What rope_parameters says goes to the older places, which must not say something else. */
static mm_status merge_newer(loader *l)
{
    mmi_slot *theta = &l->fields.slots[MMI_KEY_ROPE_THETA];
    const mmi_slot *newer = &l->newer.slots[MMI_KEY_ROPE_THETA];
    char a[40], b[40];
    if (theta->state == MMI_SET && newer->state == MMI_SET && theta->value.f != newer->value.f)
        return mmi_fail(MM_ERR_FORMAT, "%s: rope_theta is %s, but rope_parameters.rope_theta is %s", l->what,
                        mmi_number_print(theta->value.f, a, sizeof a), mmi_number_print(newer->value.f, b, sizeof b));
    if (newer->state == MMI_SET)
        *theta = *newer;
    if (!mmi_fields_has_scaling(&l->newer))
        return MM_OK;
    if (mmi_fields_has_scaling(&l->fields)) {
        if (!same_scaling(l, &l->fields, &l->newer))
            return mmi_fail(MM_ERR_FORMAT, "%s: rope_scaling and rope_parameters ask for different scalings", l->what);
        return MM_OK;
    }
    for (int key = MMI_KEY_SCALING_FIRST; key <= MMI_KEY_SCALING_LAST; key++)
        l->fields.slots[key] = l->newer.slots[key];
    return MM_OK;
}

/* Without truncate, transformers' YaRN has a ramp between fractions. MiniMind's own code does not ask for it. */
static mm_status check_truncate(const loader *l, const mmi_json *root, const mmi_arch *arch)
{
    static const char *const groups[] = { SCALING_GROUP, NEWER_GROUP };
    const bool asks = l->family == MMI_LLAMA || l->family == MMI_QWEN3 || l->family == MMI_QWEN3_MOE;
    char found[MMI_QUOTE_SIZE];
    for (size_t i = 0; asks && arch->yarn != MMI_YARN_NONE && i < sizeof groups / sizeof *groups; i++) {
        const mmi_json *value = mmi_json_get(mmi_json_get(root, groups[i]), "truncate");
        if (value && !mmi_json_bool(value, false))
            return mmi_fail(MM_ERR_UNSUPPORTED, "%s: %s.truncate is %s, YaRN is run with true only", l->what, groups[i],
                            describe(value, found));
    }
    return MM_OK;
}

static mm_status load_fields(loader *l, mmi_json *root)
{
    mmi_arch arch;
    char found[MMI_QUOTE_SIZE];
    if (mmi_json_what(root) != MMI_JSON_OBJECT)
        return mmi_fail(MM_ERR_FORMAT, "%s: a config must be an object, this is %s", l->what, describe(root, found));
    mm_status status = find_family(l, root);
    for (void *i = mmi_json_first(root); i && status == MM_OK; i = mmi_json_next(root, i))
        status = take_member(l, mmi_json_key(i), mmi_json_value(i));
    if (status == MM_OK)
        status = merge_newer(l);
    if (status != MM_OK)
        return status;
    status = mmi_fields_resolve(&l->fields, &arch);
    if (status == MM_OK)
        return check_truncate(l, root, &arch);
    return mmi_fail_within(status == MM_ERR_ARG ? MM_ERR_FORMAT : status, "%s", l->what);
}

static mm_status build(const loader *l, mm_config **out)
{
    char *text = NULL;
    size_t length = 0;
    if (mmi_json_size(l->extra) > 0) {
        mm_status status = mmi_json_write(l->extra, 0, &text, &length);
        if (status != MM_OK)
            return status;
    }
    mm_config *config = mmi_alloc(sizeof *config + length, 1);
    if (!config) {
        mmi_free(text);
        return mmi_fail_memory(sizeof *config + length, "a config");
    }
    config->fields = l->fields;
    config->extra_length = length;
    if (length > 0)
        memcpy(config->extra, text, length);
    mmi_free(text);
    *out = config;
    return MM_OK;
}

static mm_status load_json(mmi_json *root, const char *what, mm_config **out)
{
    loader l;
    memset(&l, 0, sizeof l);
    l.what = what;
    l.extra = mmi_json_new_object();
    if (!l.extra)
        return mmi_fail_memory(sizeof l, "a config");
    mm_status status = load_fields(&l, root);
    if (status == MM_OK)
        status = build(&l, out);
    mmi_json_free(l.extra);
    return status;
}

mm_status mmi_config_parse(const char *json, size_t length, const char *what, mm_config **out)
{
    mmi_json *root = NULL;
    mm_status status = mmi_json_parse(json, length, what, &root);
    if (status == MM_OK)
        status = load_json(root, what, out);
    mmi_json_free(root);
    return status;
}

mm_status mm_config_load_memory(const char *json, size_t length, mm_config **out)
{
    if (!json || !out)
        return mmi_fail(MM_ERR_ARG, "mm_config_load_memory: %s is NULL", json ? "out" : "json");
    return mmi_config_parse(json, length, "config", out);
}

char *mmi_config_path(const char *path)
{
    return mmi_is_directory(path) ? mmi_path_join(path, "config.json") : mmi_strdup(path);
}

mm_status mm_config_load(const char *path, mm_config **out)
{
    if (!path || !out)
        return mmi_fail(MM_ERR_ARG, "mm_config_load: %s is NULL", path ? "out" : "path");
    char *file = mmi_config_path(path);
    if (!file)
        return mmi_fail_memory(strlen(path), "a path");
    mmi_json *root = NULL;
    mm_status status = mmi_json_read_file(file, &root);
    if (status == MM_OK)
        status = load_json(root, file, out);
    mmi_json_free(root);
    mmi_free(file);
    return status;
}
