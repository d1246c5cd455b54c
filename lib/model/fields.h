/* The one field table: every config key is a row. Parsing, setters, getters, validation and saving come from it. */
#ifndef MMI_MODEL_FIELDS_H
#define MMI_MODEL_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/arch.h"

/* The rows, in the order in which a file is written. */
typedef enum mmi_key {
    MMI_KEY_MODEL_TYPE,
    MMI_KEY_MINIMIND_VERSION,
    MMI_KEY_VOCAB_SIZE,
    MMI_KEY_HIDDEN_SIZE,
    MMI_KEY_NUM_HIDDEN_LAYERS,
    MMI_KEY_NUM_ATTENTION_HEADS,
    MMI_KEY_NUM_KEY_VALUE_HEADS,
    MMI_KEY_HEAD_DIM,
    MMI_KEY_INTERMEDIATE_SIZE,
    MMI_KEY_HIDDEN_ACT,
    MMI_KEY_MLP_TYPE,
    MMI_KEY_MLP_BIAS,
    MMI_KEY_NORM_TYPE,
    MMI_KEY_RMS_NORM_EPS,
    MMI_KEY_QK_NORM,
    MMI_KEY_ATTENTION_BIAS,
    MMI_KEY_TIE_WORD_EMBEDDINGS,
    MMI_KEY_MAX_POSITION_EMBEDDINGS,
    MMI_KEY_POSITION_EMBEDDING_TYPE,
    MMI_KEY_USE_ROPE,
    MMI_KEY_ROPE_THETA,
    MMI_KEY_ROPE_TYPE, /* the first of rope_scaling's */
    MMI_KEY_ROPE_VARIANT,
    MMI_KEY_ROPE_FACTOR,
    MMI_KEY_ROPE_ORIGINAL,
    MMI_KEY_ROPE_BETA_FAST,
    MMI_KEY_ROPE_BETA_SLOW,
    MMI_KEY_ROPE_ATTENTION_FACTOR, /* the last */
    MMI_KEY_INFERENCE_ROPE_SCALING,
    MMI_KEY_DROPOUT,
    MMI_KEY_ATTENTION_DROPOUT,
    MMI_KEY_USE_MOE,
    MMI_KEY_NUM_EXPERTS_PER_TOK,
    MMI_KEY_N_ROUTED_EXPERTS,
    MMI_KEY_N_SHARED_EXPERTS,
    MMI_KEY_NUM_EXPERTS,
    MMI_KEY_MOE_INTERMEDIATE_SIZE,
    MMI_KEY_SCORING_FUNC,
    MMI_KEY_NORM_TOPK_PROB,
    MMI_KEY_SEQ_AUX,
    MMI_KEY_AUX_LOSS_ALPHA,
    MMI_KEY_ROUTER_AUX_LOSS_COEF,
    MMI_KEY_DECODER_SPARSE_STEP,
    MMI_KEY_USE_GQA,
    MMI_KEY_USE_SLIDING_WINDOW,
    MMI_KEY_BOS_TOKEN_ID,
    MMI_KEY_EOS_TOKEN_ID,
    MMI_KEY_PAD_TOKEN_ID,
    MMI_KEY_FLASH_ATTN,
    MMI_KEY_GRADIENT_CHECKPOINTING,
    MMI_KEY_MAX_GENERATE_LENGTH,
    MMI_KEY_TEMPERATURE,
    MMI_KEY_TOP_K,
    MMI_KEY_TOP_P,
    MMI_KEYS
} mmi_key;

#define MMI_KEY_SCALING_FIRST MMI_KEY_ROPE_TYPE
#define MMI_KEY_SCALING_LAST MMI_KEY_ROPE_ATTENTION_FACTOR

/* Places in the lists of words that string keys choose from. */
enum { MMI_WORD_MINIMIND, MMI_WORD_MINIGPT, MMI_WORD_LLAMA, MMI_WORD_QWEN3, MMI_WORD_QWEN3_MOE };
enum { MMI_WORD_SILU = 0, MMI_WORD_SWIGLU = 2 };
enum { MMI_WORD_GATED, MMI_WORD_PLAIN };
enum { MMI_WORD_YARN, MMI_WORD_DEFAULT };
enum { MMI_WORD_VARIANT_MINIMIND2, MMI_WORD_VARIANT_STANDARD };
enum { MMI_WORD_SOFTMAX, MMI_WORD_SIGMOID };

/* A value: `f` of float keys; `i` of the others (0 or 1, or a place in the row's words). */
typedef union mmi_value {
    int64_t i;
    double f;
} mmi_value;

typedef enum mmi_slot_state {
    MMI_UNSET,
    MMI_SET,
    MMI_NULL /* of num_key_value_heads, where null is not the same as absent */
} mmi_slot_state;

typedef struct mmi_slot {
    mmi_slot_state state;
    mmi_value value;
} mmi_slot;

/* What was set. */
typedef struct mmi_fields {
    mmi_slot slots[MMI_KEYS];
    bool mixed_layers; /* mlp_only_layers holds something */
} mmi_fields;

/* What an absent key means in one family. */
typedef enum mmi_default_kind {
    MMI_FOREIGN,  /* not a key of this family */
    MMI_REQUIRED, /* must be present */
    MMI_NOTHING,  /* has no value then */
    MMI_CONSTANT, /* `number` */
    MMI_RULE      /* follows other keys */
} mmi_default_kind;

typedef struct mmi_default {
    mmi_default_kind kind;
    double number;
} mmi_default;

typedef struct mmi_field {
    const char *name;
    int64_t type;             /* MM_TYPE_… */
    double minimum, maximum;  /* of numbers */
    const char *const *words; /* of strings: what they may be, ended by NULL */
    const char *description;
    mmi_default family[MMI_FAMILIES];
} mmi_field;

const mmi_field *mmi_field_get(mmi_key key);

/* A key by any of its spellings (num_local_experts is num_experts); MMI_KEYS when there is none. */
mmi_key mmi_field_find(const char *name);

/* The place of a word, `length` bytes, in a row's list; -1 when it is not there. */
int64_t mmi_field_word(const mmi_field *field, const char *text, size_t length);

/* Whether a number is in the row's range; NaN never is. */
bool mmi_field_in_range(const mmi_field *field, double number);

/* Whether a family passes over a key that it lacks, whatever it says: three of them would change the numbers. */
bool mmi_field_is_ignored(mmi_key key, mmi_family family);

/* Whether of MiniMind's versions only 3 has the key: which of them is meant where no version is set. */
bool mmi_field_means_minimind3(mmi_key key);

/* "an integer", "a number", …: an MM_TYPE_… in messages. */
const char *mmi_type_name(int64_t type);

/* "0 to 65536", "one of: rope, sinusoidal, none": what a row allows, for messages. */
const char *mmi_field_allowed(const mmi_field *field, char *text, size_t size);

/* A number in as few digits as give the same bits back, whatever the locale: 1, 1e-05. The second one shows that it is
 * not an integer: 1.0, 1e-05. */
const char *mmi_number_print(double number, char *text, size_t size);
const char *mmi_real_print(double number, char *text, size_t size);

/* A value as JSON text: 1408, 1e-05, true, "silu" with its quotes. */
const char *mmi_field_print(const mmi_field *field, mmi_value value, char *text, size_t size);

/* Somebody's string for a message: quoted, its unprintable bytes as '?', cut when long. */
#define MMI_QUOTE_SIZE 64
const char *mmi_quote(const char *text, char quoted[MMI_QUOTE_SIZE]);

bool mmi_fields_is_set(const mmi_fields *fields, mmi_key key);

/* Which family the fields speak of; false when model_type is absent. */
bool mmi_fields_family(const mmi_fields *fields, mmi_family *out);

/* The value in force, set or by rule; false when the key has none in this family. */
bool mmi_fields_get(const mmi_fields *fields, mmi_family family, mmi_key key, mmi_value *out);

/* The scaling of positions in force. */
typedef struct mmi_scaling {
    mmi_yarn yarn;
    double factor, beta_fast, beta_slow, attention_factor;
    int64_t original;
} mmi_scaling;

/* False when the file does not say which YaRN it means: everything but `yarn` is then unspecified. */
bool mmi_fields_scaling(const mmi_fields *fields, mmi_family family, mmi_scaling *out);
bool mmi_fields_has_scaling(const mmi_fields *fields);

/* Every rule applied and everything checked. */
mm_status mmi_fields_resolve(const mmi_fields *fields, mmi_arch *out);

/* The handle: one block, so that its cost is known. */
struct mm_config {
    mmi_fields fields;
    size_t extra_length;
    char extra[]; /* what the table does not know: the text of a JSON object, extra_length bytes; none: 0 bytes */
};

/* The value in force; false, and nothing is said, where the key has none in this family. */
bool mmi_config_value(const mm_config *config, mmi_key key, mmi_value *out);

/* mm_config_load_memory() with a name for messages. */
mm_status mmi_config_parse(const char *json, size_t length, const char *what, mm_config **out);

/* mm_config_save() beside weights of a dtype, MM_F32, …; -1: there are none. */
mm_status mmi_config_save(const mm_config *config, const char *path, int32_t dtype);

/* `path`, or the config.json in it when it is a directory; mmi_free it. NULL when memory ran out. */
char *mmi_config_path(const char *path);

/* The JSON text of preset `index`. */
const char *mmi_preset_json(int32_t index);

#endif
