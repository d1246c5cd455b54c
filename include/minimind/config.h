/**
 * @file config.h
 * An architecture: named, typed fields, spelled as in the upstream config.json files.
 *
 * A key that was never set follows its rule: the family's default, or another key (`intermediate_size` follows
 * `hidden_size`). Nested keys are written with a dot, "rope_scaling.factor". Keys the library does not know are kept
 * and written back by mm_config_save().
 *
 * Threads: a config may be read by several threads; changing it needs the config to oneself.
 */
#ifndef MINIMIND_CONFIG_H
#define MINIMIND_CONFIG_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An architecture: named, typed fields. */
typedef struct mm_config mm_config;

/**
 * A config by preset name.
 *
 * @param preset  One of mm_preset_name(), or NULL for "minimind2-small".
 * @param out     Yours: pair it with mm_config_free().
 *
 * @return MM_OK; MM_ERR_ARG, no such preset; MM_ERR_MEMORY. On failure *out is untouched. Since: 0.1
 */
MM_API mm_status mm_config_create(const char *preset, mm_config **out);

/**
 * Read a config.json.
 *
 * @param path  The file, or a directory that holds a config.json.
 * @param out   Yours: pair it with mm_config_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY;
 *         MM_ERR_FORMAT, not JSON, a value of the wrong type or out of range, or a key that must be there and is not (the
 *         message names file and key);
 *         MM_ERR_UNSUPPORTED, a `model_type` or a feature that the library does not run. Since: 0.1
 */
MM_API mm_status mm_config_load(const char *path, mm_config **out);

/** As mm_config_load(), from `length` bytes of JSON. Since: 0.1 */
MM_API mm_status mm_config_load_memory(const char *json, size_t length, mm_config **out);

/**
 * Write a config.json that mm_config_load() reads back: every key of the family with the value in force, then the
 * unknown keys. The file is replaced in one step; on failure the old one stands, or, where only the directory's sync
 * fails at the end, the new one.
 *
 * @param path  The file, or an existing directory.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY; what mm_config_validate() refuses. Since: 0.1
 */
MM_API mm_status mm_config_save(const mm_config *config, const char *path);

/** A second config with the same fields; yours. @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY. Since: 0.1 */
MM_API mm_status mm_config_copy(const mm_config *config, mm_config **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_config_free(mm_config *config);

/**
 * Check that the fields make a model together: heads divide, sizes multiply without overflow, the experts suffice.
 *
 * @return MM_OK; MM_ERR_ARG, impossible; MM_ERR_UNSUPPORTED, possible but not done here. The message names the key,
 *         the value found and the rule. Nothing is allocated. Since: 0.1
 */
MM_API mm_status mm_config_validate(const mm_config *config);

/**
 * Set a field. The value's range is checked at once; how fields fit together is left to mm_config_validate().
 * A number that is whole is taken for float keys by mm_config_set_int() too.
 *
 * @return MM_OK; MM_ERR_ARG, unknown key, wrong type, or out of range: the config is as before; MM_ERR_MEMORY.
 *         Since: 0.1
 */
MM_API mm_status mm_config_set_int(mm_config *config, const char *key, int64_t value);
MM_API mm_status mm_config_set_float(mm_config *config, const char *key, double value);
MM_API mm_status mm_config_set_bool(mm_config *config, const char *key, int32_t value);
MM_API mm_status mm_config_set_string(mm_config *config, const char *key, const char *value);

/** Forget what was set: the key follows its rule again. "rope_scaling" and "rope_parameters" stand for all keys that begin
 *  with "rope_scaling.". @return MM_OK; MM_ERR_ARG. Since: 0.1 */
MM_API mm_status mm_config_unset(mm_config *config, const char *key);

/**
 * The value in force, set or by rule.
 *
 * @return MM_OK; MM_ERR_ARG, unknown key or another type; MM_ERR_STATE, the key has no value here (a key of another
 *         family, or one that is required and absent). Since: 0.1
 */
MM_API mm_status mm_config_get_int(const mm_config *config, const char *key, int64_t *out);
MM_API mm_status mm_config_get_float(const mm_config *config, const char *key, double *out);
MM_API mm_status mm_config_get_bool(const mm_config *config, const char *key, int32_t *out);

/**
 * Copy a string field with its closing NUL into `out`.
 *
 * @param capacity  Bytes at `out`; 0 with `out` NULL only asks for the size.
 * @param needed    The bytes it takes, the NUL included; may be NULL.
 *
 * @return as mm_config_get_int(); MM_ERR_ARG also when `capacity` is too small (and not 0). Since: 0.1
 */
MM_API mm_status mm_config_get_string(const mm_config *config, const char *key, char *out, size_t capacity,
                                      size_t *needed);

enum {
    MM_TYPE_INT = 0,
    MM_TYPE_FLOAT = 1,
    MM_TYPE_BOOL = 2,
    MM_TYPE_STRING = 3
};

/** One row of the field table: what mm_config_set_…() accepts under this name. */
typedef struct mm_config_key {
    size_t struct_size;      /**< sizeof(mm_config_key) */
    const char *name;        /**< static */
    const char *description; /**< one line; static */
    double minimum;          /**< smallest number allowed; 0 for bool and string */
    double maximum;          /**< largest number allowed; 0 for bool and string */
    int64_t type;            /**< MM_TYPE_… */
} mm_config_key;
#define MM_CONFIG_KEY_INIT { sizeof(mm_config_key), NULL, NULL, 0, 0, 0 }

/** Set every field of `key` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_config_key_init(mm_config_key *key, size_t struct_size);

/** How many keys there are, and the i-th of them. @return MM_OK; MM_ERR_ARG. Threads: any. Since: 0.1 */
MM_API int32_t mm_config_key_count(void);
MM_API mm_status mm_config_key_get(int32_t index, mm_config_key *out);

/** The presets' names, 0 ≤ index < mm_preset_count(); NULL beyond. Static. Threads: any. Since: 0.1 */
MM_API int32_t mm_preset_count(void);
MM_API const char *mm_preset_name(int32_t index);

#ifdef __cplusplus
}
#endif

#endif
