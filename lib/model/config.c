/* The config handle: fields by name. Files are the matter of config_load.c and config_save.c. */
#include <minimind/config.h>

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "model/fields.h"

MMI_OPTIONS_INIT(mm_config_key, MM_CONFIG_KEY_INIT)

mm_status mm_config_create(const char *preset, mm_config **out)
{
    const char *name = preset ? preset : mm_preset_name(0);
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_config_create: out is NULL");
    for (int32_t i = 0; i < mm_preset_count(); i++) {
        if (strcmp(mm_preset_name(i), name) != 0)
            continue;
        const char *json = mmi_preset_json(i);
        return mmi_config_parse(json, strlen(json), name, out);
    }
    char quoted[MMI_QUOTE_SIZE], what[MMI_QUOTE_SIZE + 64];
    snprintf(what, sizeof what, "there is no preset %s, it can be ", mmi_quote(name, quoted));
    return mmi_fail_choice(MM_ERR_ARG, what, mm_preset_name);
}

size_t mmi_config_bytes(const mm_config *config)
{
    return sizeof *config + config->extra_length;
}

mm_status mm_config_copy(const mm_config *config, mm_config **out)
{
    if (!config || !out)
        return mmi_fail(MM_ERR_ARG, "mm_config_copy: %s is NULL", config ? "out" : "config");
    size_t bytes = mmi_config_bytes(config);
    mm_config *copy = mmi_alloc(bytes, 1);
    if (!copy)
        return mmi_fail_memory(bytes, "a config");
    memcpy(copy, config, bytes);
    *out = copy;
    return MM_OK;
}

void mm_config_free(mm_config *config)
{
    mmi_free(config);
}

bool mmi_config_is_set(const mm_config *config, const char *key)
{
    mmi_key found = mmi_field_find(key);
    return found != MMI_KEYS && config->fields.slots[found].state != MMI_UNSET;
}

/* --- Setting --- */

static mm_status find_key(const void *config, const char *key, const char *function, mmi_key *out)
{
    if (!config || !key)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", function, config ? "key" : "config");
    char quoted[MMI_QUOTE_SIZE];
    *out = mmi_field_find(key);
    return *out != MMI_KEYS ? MM_OK : mmi_fail(MM_ERR_ARG, "there is no config key %s", mmi_quote(key, quoted));
}

static mm_status wrong_type(mmi_key key, int64_t asked)
{
    const mmi_field *field = mmi_field_get(key);
    return mmi_fail(MM_ERR_ARG, "%s is %s, not %s", field->name, mmi_type_name(field->type), mmi_type_name(asked));
}

static mm_status out_of_range(mmi_key key, const char *found)
{
    char allowed[256];
    const mmi_field *field = mmi_field_get(key);
    return mmi_fail(MM_ERR_ARG, "%s can't be %s; allowed is %s", field->name, found,
                    mmi_field_allowed(field, allowed, sizeof allowed));
}

static mm_status store(mm_config *config, mmi_key key, mmi_value value)
{
    config->fields.slots[key] = (mmi_slot){ MMI_SET, value };
    return MM_OK;
}

static mm_status set_number(mm_config *config, mmi_key key, double number)
{
    char text[40];
    if (!mmi_field_in_range(mmi_field_get(key), number))
        return out_of_range(key, mmi_number_print(number, text, sizeof text));
    return store(config, key, (mmi_value){ .f = number });
}

mm_status mm_config_set_int(mm_config *config, const char *key, int64_t value)
{
    mmi_key found;
    mm_status status = find_key(config, key, "mm_config_set_int", &found);
    if (status != MM_OK)
        return status;
    const mmi_field *field = mmi_field_get(found);
    if (field->type == MM_TYPE_FLOAT)
        return set_number(config, found, (double)value);
    if (field->type != MM_TYPE_INT)
        return wrong_type(found, MM_TYPE_INT);
    char text[40];
    mmi_value given = { .i = value };
    if (!mmi_field_in_range(field, (double)value))
        return out_of_range(found, mmi_field_print(field, given, text, sizeof text));
    return store(config, found, given);
}

mm_status mm_config_set_float(mm_config *config, const char *key, double value)
{
    mmi_key found;
    mm_status status = find_key(config, key, "mm_config_set_float", &found);
    if (status != MM_OK)
        return status;
    if (mmi_field_get(found)->type != MM_TYPE_FLOAT)
        return wrong_type(found, MM_TYPE_FLOAT);
    return set_number(config, found, value);
}

mm_status mm_config_set_bool(mm_config *config, const char *key, int32_t value)
{
    mmi_key found;
    mm_status status = find_key(config, key, "mm_config_set_bool", &found);
    if (status != MM_OK)
        return status;
    if (mmi_field_get(found)->type != MM_TYPE_BOOL)
        return wrong_type(found, MM_TYPE_BOOL);
    if (value != 0 && value != 1)
        return mmi_fail(MM_ERR_ARG, "%s can't be %d; allowed is 0 or 1", key, value);
    return store(config, found, (mmi_value){ .i = value });
}

mm_status mm_config_set_string(mm_config *config, const char *key, const char *value)
{
    mmi_key found;
    mm_status status = find_key(config, key, "mm_config_set_string", &found);
    if (status != MM_OK)
        return status;
    if (!value)
        return mmi_fail(MM_ERR_ARG, "mm_config_set_string: value is NULL");
    const mmi_field *field = mmi_field_get(found);
    if (field->type != MM_TYPE_STRING)
        return wrong_type(found, MM_TYPE_STRING);
    int64_t word = mmi_field_word(field, value, strlen(value));
    if (word < 0) {
        char quoted[MMI_QUOTE_SIZE];
        return out_of_range(found, mmi_quote(value, quoted));
    }
    return store(config, found, (mmi_value){ .i = word });
}

mm_status mm_config_unset(mm_config *config, const char *key)
{
    mmi_key found;
    if (config && key && (strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0)) {
        for (int i = MMI_KEY_SCALING_FIRST; i <= MMI_KEY_SCALING_LAST; i++)
            config->fields.slots[i] = (mmi_slot){ MMI_UNSET, { 0 } };
        return MM_OK;
    }
    mm_status status = find_key(config, key, "mm_config_unset", &found);
    if (status == MM_OK)
        config->fields.slots[found] = (mmi_slot){ MMI_UNSET, { 0 } };
    return status;
}

/* --- Asking --- */

bool mmi_config_value(const mm_config *config, mmi_key key, mmi_value *out)
{
    mmi_family family;
    if (mmi_fields_family(&config->fields, &family))
        return mmi_fields_get(&config->fields, family, key, out);
    *out = config->fields.slots[key].value;
    return config->fields.slots[key].state == MMI_SET;
}

static mm_status get(const mm_config *config, const char *key, int64_t type, const char *function, mmi_key *found,
                     mmi_value *out)
{
    mm_status status = find_key(config, key, function, found);
    if (status != MM_OK)
        return status;
    const mmi_field *field = mmi_field_get(*found);
    if (field->type != type)
        return wrong_type(*found, type);
    mmi_family family;
    if (mmi_config_value(config, *found, out))
        return MM_OK;
    if (!mmi_fields_family(&config->fields, &family))
        return mmi_fail(MM_ERR_STATE, "%s has no value: model_type is not set", field->name);
    if (field->family[family].kind == MMI_FOREIGN)
        return mmi_fail(MM_ERR_STATE, "%s is not a key of this model_type", field->name);
    return mmi_fail(MM_ERR_STATE, "%s has no value here", field->name);
}

mm_status mm_config_get_int(const mm_config *config, const char *key, int64_t *out)
{
    mmi_key found;
    mmi_value value;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_config_get_int: out is NULL");
    mm_status status = get(config, key, MM_TYPE_INT, "mm_config_get_int", &found, &value);
    if (status == MM_OK)
        *out = value.i;
    return status;
}

mm_status mm_config_get_float(const mm_config *config, const char *key, double *out)
{
    mmi_key found;
    mmi_value value;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_config_get_float: out is NULL");
    mm_status status = get(config, key, MM_TYPE_FLOAT, "mm_config_get_float", &found, &value);
    if (status == MM_OK)
        *out = value.f;
    return status;
}

mm_status mm_config_get_bool(const mm_config *config, const char *key, int32_t *out)
{
    mmi_key found;
    mmi_value value;
    if (!out)
        return mmi_fail(MM_ERR_ARG, "mm_config_get_bool: out is NULL");
    mm_status status = get(config, key, MM_TYPE_BOOL, "mm_config_get_bool", &found, &value);
    if (status == MM_OK)
        *out = (int32_t)value.i;
    return status;
}

mm_status mm_config_get_string(const mm_config *config, const char *key, char *out, size_t capacity, size_t *needed)
{
    mmi_key found;
    mmi_value value;
    mm_status status = get(config, key, MM_TYPE_STRING, "mm_config_get_string", &found, &value);
    if (status != MM_OK)
        return status;
    const char *word = mmi_field_get(found)->words[value.i];
    size_t size = strlen(word) + 1;
    if (needed)
        *needed = size;
    if (!out && capacity != 0)
        return mmi_fail(MM_ERR_ARG, "mm_config_get_string: out is NULL with a capacity of %zu", capacity);
    if (capacity != 0 && capacity < size)
        return mmi_fail(MM_ERR_ARG, "mm_config_get_string: %s takes %zu bytes, the capacity is %zu", key, size, capacity);
    if (capacity != 0)
        memcpy(out, word, size);
    return MM_OK;
}

int32_t mm_config_key_count(void)
{
    return MMI_KEYS;
}

mm_status mm_config_key_get(int32_t index, mm_config_key *out)
{
    if (index < 0 || index >= MMI_KEYS)
        return mmi_fail(MM_ERR_ARG, "mm_config_key_get: key %d of %d", index, (int)MMI_KEYS);
    const mmi_field *field = mmi_field_get((mmi_key)index);
    mm_config_key key = MM_CONFIG_KEY_INIT;
    key.name = field->name;
    key.description = field->description;
    key.minimum = field->minimum;
    key.maximum = field->maximum;
    key.type = field->type;
    return mmi_result_write(out, &key, sizeof key, "mm_config_key");
}
