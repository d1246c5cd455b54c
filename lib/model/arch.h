/* A config with every rule applied: plain numbers that the rest of the library runs by. */
#ifndef MMI_MODEL_ARCH_H
#define MMI_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include <minimind/config.h>

typedef enum mmi_family {
    MMI_MINIMIND2,
    MMI_MINIMIND3,
    MMI_MINIGPT,
    MMI_LLAMA,
    MMI_QWEN3,
    MMI_QWEN3_MOE,
    MMI_FAMILIES
} mmi_family;

typedef enum mmi_act { MMI_SILU, MMI_GELU, MMI_GELU_TANH, MMI_RELU } mmi_act;
typedef enum mmi_norm { MMI_RMSNORM, MMI_LAYERNORM } mmi_norm;
typedef enum mmi_positions { MMI_ROPE, MMI_SINUSOIDAL, MMI_NO_POSITIONS } mmi_positions;
typedef enum mmi_yarn { MMI_YARN_NONE, MMI_YARN_MINIMIND2, MMI_YARN_STANDARD } mmi_yarn;

typedef struct mmi_arch {
    mmi_family family;
    int64_t C;        /* hidden_size */
    int64_t L;        /* num_hidden_layers */
    int64_t H;        /* num_attention_heads */
    int64_t G;        /* num_key_value_heads */
    int64_t D;        /* head_dim */
    int64_t F;        /* intermediate_size */
    int64_t V;        /* vocab_size */
    int64_t max_positions;
    double eps;       /* of every norm */
    mmi_act act;
    mmi_norm norm;
    mmi_positions positions;
    bool tied, qk_norm, attention_bias, mlp_bias;
    bool gated;       /* the dense network; for experts see expert_gated */
    double theta;
    mmi_yarn yarn;
    double yarn_factor, yarn_beta_fast, yarn_beta_slow, yarn_attention_factor;
    int64_t yarn_original;  /* original_max_position_embeddings */
    double dropout, attention_dropout;
    bool moe;               /* every layer is routed, among at least one expert */
    int64_t E;              /* routed experts */
    int64_t shared_experts;
    int64_t top_k;
    int64_t expert_F;       /* width of one expert */
    bool expert_gated;
    bool renormalize;       /* norm_topk_prob as it acts in this family */
    bool aux_per_sequence;  /* seq_aux of minimind2 */
    double aux_coefficient;
    int64_t eos_id;         /* -1: none */
} mmi_arch;

/* Apply every rule and check the whole: what mm_config_validate() does. Allocates nothing. */
mm_status mmi_config_resolve(const mm_config *config, mmi_arch *out);

/* Bytes that a copy of `config` takes (mm_config_copy), for the estimate. */
size_t mmi_config_bytes(const mm_config *config);

/* Whether a key was given, as opposed to following its rule. */
bool mmi_config_is_set(const mm_config *config, const char *key);

#endif
