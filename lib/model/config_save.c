/* config.json from fields: every key of the family with the value in force, then what the table does not know. */
#include <stdio.h>
#include <string.h>

#include <minimind/config.h>
#include <minimind/view.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/fields.h"

static const char scaling_group[] = "rope_scaling";

typedef struct printer {
    mmi_writer file; /* its errors stick */
    int depth;
    bool first; /* in its object */
} printer;

static void put(printer *p, const char *text)
{
    mmi_writer_put(&p->file, text, strlen(text));
}

/* Both as JSON text. */
static void put_member(printer *p, const char *name, const char *value)
{
    put(p, p->first ? "\n" : ",\n");
    for (int i = 0; i < p->depth; i++)
        put(p, "  ");
    put(p, name);
    put(p, ": ");
    put(p, value);
    p->first = false;
}

static void put_field(printer *p, const char *name, const mmi_field *field, mmi_value value)
{
    char quoted[64], text[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    put_member(p, quoted, mmi_field_print(field, value, text, sizeof text));
}

/* The value to write: the one in force; also one that was set and only means something in other families. */
static bool value_to_write(const mmi_fields *fields, mmi_family family, mmi_key key, mmi_value *out)
{
    if (mmi_fields_get(fields, family, key, out))
        return true;
    *out = fields->slots[key].value;
    return mmi_fields_is_set(fields, key);
}

static mm_status put_unknown(printer *p, const char *name, const mmi_json *json)
{
    char *quoted = NULL, *text = NULL;
    size_t length = 0;
    mmi_json *key = mmi_json_new_string(name, strlen(name));
    if (!key)
        return mmi_fail_memory(strlen(name), "a config key");
    mm_status status = mmi_json_write(key, 0, &quoted, &length);
    if (status == MM_OK)
        status = mmi_json_write(json, 0, &text, &length);
    if (status == MM_OK)
        put_member(p, quoted, text);
    mmi_json_free(key);
    mmi_free(quoted);
    mmi_free(text);
    return status;
}

static mm_status put_scaling(printer *p, const mmi_fields *fields, mmi_family family, mmi_json *unknown)
{
    mm_status status = MM_OK;
    mmi_value value;
    if (!value_to_write(fields, family, MMI_KEY_ROPE_TYPE, &value))
        return MM_OK;
    put_member(p, "\"rope_scaling\"", "{");
    p->depth++;
    p->first = true;
    for (int key = MMI_KEY_SCALING_FIRST; key <= MMI_KEY_SCALING_LAST; key++) {
        const mmi_field *field = mmi_field_get((mmi_key)key);
        if (value_to_write(fields, family, (mmi_key)key, &value))
            put_field(p, field->name + sizeof scaling_group, field, value);
    }
    for (void *i = mmi_json_first(unknown); i && status == MM_OK; i = mmi_json_next(unknown, i))
        status = put_unknown(p, mmi_json_key(i), mmi_json_value(i));
    p->depth--;
    p->first = false;
    put(p, "\n  }");
    return status;
}

static mm_status put_known(printer *p, const mmi_fields *fields, mmi_family family, mmi_json *extra)
{
    for (int key = 0; key < MMI_KEYS; key++) {
        const mmi_field *field = mmi_field_get((mmi_key)key);
        mmi_value value;
        if (key == MMI_KEY_SCALING_FIRST) {
            mm_status status = put_scaling(p, fields, family, mmi_json_get(extra, scaling_group));
            if (status != MM_OK)
                return status;
            key = MMI_KEY_SCALING_LAST;
        } else if (value_to_write(fields, family, (mmi_key)key, &value)) {
            put_field(p, field->name, field, value);
        }
    }
    if (family == MMI_QWEN3_MOE && !mmi_json_get(extra, "mlp_only_layers"))
        put_member(p, "\"mlp_only_layers\"", "[]");
    return MM_OK;
}

static mm_status put_extra(printer *p, const mmi_fields *fields, mmi_family family, mmi_json *extra)
{
    mm_status status = MM_OK;
    for (void *i = mmi_json_first(extra); i && status == MM_OK; i = mmi_json_next(extra, i)) {
        const char *name = mmi_json_key(i);
        mmi_key key = strchr(name, '.') ? MMI_KEYS : mmi_field_find(name);
        mmi_value value;
        bool written = key != MMI_KEYS && value_to_write(fields, family, key, &value);
        if (!written && strcmp(name, scaling_group) != 0)
            status = put_unknown(p, name, mmi_json_value(i));
    }
    return status;
}

static mm_status write_config(const mm_config *config, mmi_json *extra, const char *path)
{
    printer p;
    mmi_family family = MMI_MINIMIND2;
    memset(&p, 0, sizeof p);
    p.depth = 1;
    p.first = true;
    (void)mmi_fields_family(&config->fields, &family);
    mm_status status = mmi_writer_open(&p.file, path);
    if (status != MM_OK)
        return status;
    put(&p, "{");
    status = put_known(&p, &config->fields, family, extra);
    if (status == MM_OK)
        status = put_extra(&p, &config->fields, family, extra);
    put(&p, "\n}\n");
    if (status == MM_OK)
        return mmi_writer_commit(&p.file);
    mmi_writer_abandon(&p.file);
    return status;
}

/* "torch_dtype", "dtype" of late, says what the weights are, whatever they were where the config is from: upstream
 * casts to what stands there. */
static mm_status set_dtype(mmi_json *extra, int32_t dtype)
{
    static const char *const keys[] = { "torch_dtype", "dtype" };
    static const char *const names[] = { [MM_F32] = "float32", [MM_BF16] = "bfloat16", [MM_F16] = "float16" };
    const char *name = dtype <= MM_F16 ? names[dtype] : mm_dtype_name(dtype);
    for (size_t i = 0; i < 2; i++)
        if (mmi_json_what(mmi_json_get(extra, keys[i])) == MMI_JSON_STRING && !mmi_json_set_text(extra, keys[i], name))
            return mmi_fail_memory(strlen(name), "a dtype");
    return MM_OK;
}

mm_status mmi_config_save(const mm_config *config, const char *path, int32_t dtype)
{
    mmi_json *extra = NULL;
    mm_status status = mm_config_validate(config);
    if (status == MM_OK && config->extra_length > 0)
        status = mmi_json_parse(config->extra, config->extra_length, "a config's unknown keys", &extra);
    if (status == MM_OK && dtype >= 0)
        status = set_dtype(extra, dtype);
    char *file = status == MM_OK ? mmi_config_path(path) : NULL;
    if (status == MM_OK)
        status = file ? write_config(config, extra, file) : mmi_fail_memory(strlen(path), "a path");
    mmi_free(file);
    mmi_json_free(extra);
    return status;
}

mm_status mm_config_save(const mm_config *config, const char *path)
{
    if (!config || !path)
        return mmi_fail(MM_ERR_ARG, "mm_config_save: %s is NULL", config ? "path" : "config");
    return mmi_config_save(config, path, -1);
}
