/* Configs for tests. */
#ifndef MM_TESTS_CONFIGS_H
#define MM_TESTS_CONFIGS_H

#include "support.h"

#define SHAPE "'hidden_size':192,'num_hidden_layers':2,'num_attention_heads':8,'vocab_size':100"
#define QWEN3 "'model_type':'qwen3'," SHAPE ",'intermediate_size':512,'num_key_value_heads':4"
#define QWEN3_MOE                                                                                                       \
    "'model_type':'qwen3_moe'," SHAPE ",'intermediate_size':512,'num_key_value_heads':4,'num_experts':4,"               \
    "'num_experts_per_tok':2,'moe_intermediate_size':32"
#define LLAMA "'model_type':'llama'," SHAPE ",'intermediate_size':512"
#define MINIGPT "'model_type':'minigpt'," SHAPE
#define MINIMIND2 "'model_type':'minimind','minimind_version':2," SHAPE
#define MINIMIND3 "'model_type':'minimind','minimind_version':3," SHAPE

/* mm_config_load_memory() of JSON that is written with ' in place of ". */
mm_status load_quoted(const char *text, mm_config **out);

/* The same, which must succeed. */
mm_config *config_of(const char *text);

/* The value in force of any key as text; "foreign", "none" or "unset" (no model_type) when it has none. */
const char *value_text(const mm_config *config, const char *key);

/* Fail unless the values of all keys are equal. */
void check_equal_configs(const mm_config *a, const mm_config *b);

/* A small valid config of a random family with random keys. */
mm_config *random_config(test_rng *rng);

#endif
