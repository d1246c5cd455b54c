/* From fields to an architecture: every rule applied, every combination checked. */
#include <string.h>

#include "base/status.h"
#include "model/fields.h"
#include "model/layout.h"

#define SIDE_MOST 2147483647 /* of a matrix, as in the field table */

typedef struct reader {
    const mmi_fields *fields;
    mmi_family family;
} reader;

static mmi_value value_of(const reader *r, mmi_key key)
{
    mmi_value value = { 0 };
    (void)mmi_fields_get(r->fields, r->family, key, &value);
    return value;
}

static int64_t whole(const reader *r, mmi_key key)
{
    return value_of(r, key).i;
}

static double real(const reader *r, mmi_key key)
{
    return value_of(r, key).f;
}

static bool yes(const reader *r, mmi_key key)
{
    return value_of(r, key).i != 0;
}

static int64_t token_id(const reader *r, mmi_key key)
{
    mmi_value value;
    return mmi_fields_get(r->fields, r->family, key, &value) ? value.i : -1;
}

static const char *model_type(const reader *r)
{
    return mmi_field_get(MMI_KEY_MODEL_TYPE)->words[r->fields->slots[MMI_KEY_MODEL_TYPE].value.i];
}

static mm_status unsupported(const reader *r, mmi_key key, const char *value, const char *why)
{
    return mmi_fail(MM_ERR_UNSUPPORTED, "%s is %s: %s (model_type %s)", mmi_field_get(key)->name, value, why,
                    model_type(r));
}

/* --- What must be there, and what is not run --- */

static mm_status check_required(const reader *r)
{
    for (int key = 0; key < MMI_KEYS; key++) {
        const mmi_field *field = mmi_field_get((mmi_key)key);
        if (field->family[r->family].kind == MMI_REQUIRED && r->fields->slots[key].state == MMI_UNSET)
            return mmi_fail(MM_ERR_ARG, "%s is missing: a config of model_type %s must have it", field->name,
                            model_type(r));
    }
    return MM_OK;
}

/* Keys that this family lacks, and that would change the numbers. */
static mm_status check_foreign(const reader *r)
{
    for (int key = 0; key < MMI_KEYS; key++) {
        const mmi_field *field = mmi_field_get((mmi_key)key);
        const mmi_slot *slot = &r->fields->slots[key];
        bool foreign = field->family[r->family].kind == MMI_FOREIGN;
        if (!foreign || mmi_field_is_ignored((mmi_key)key, r->family) || slot->state != MMI_SET)
            continue;
        char text[40];
        if (field->type == MM_TYPE_FLOAT ? slot->value.f != 0 : slot->value.i != 0)
            return unsupported(r, (mmi_key)key, mmi_field_print(field, slot->value, text, sizeof text),
                               "this family has no such thing");
    }
    return MM_OK;
}

static mm_status check_not_run(const reader *r)
{
    if (r->family == MMI_MINIGPT && !yes(r, MMI_KEY_USE_GQA))
        return unsupported(r, MMI_KEY_USE_GQA, "false", "that attention is not run, only grouped-query attention");
    if (yes(r, MMI_KEY_USE_SLIDING_WINDOW))
        return unsupported(r, MMI_KEY_USE_SLIDING_WINDOW, "true", "sliding windows are not run");
    if (r->family != MMI_QWEN3_MOE)
        return MM_OK;
    char text[40];
    mmi_value step = value_of(r, MMI_KEY_DECODER_SPARSE_STEP);
    if (step.i != 1)
        return unsupported(r, MMI_KEY_DECODER_SPARSE_STEP,
                           mmi_field_print(mmi_field_get(MMI_KEY_DECODER_SPARSE_STEP), step, text, sizeof text),
                           "only 1, every layer alike, is run");
    if (r->fields->mixed_layers)
        return mmi_fail(MM_ERR_UNSUPPORTED, "mlp_only_layers is not an empty list: only models whose layers are all "
                                            "alike are run (model_type %s)", model_type(r));
    return MM_OK;
}

/* --- The parts --- */

static void read_shape(const reader *r, mmi_arch *a)
{
    a->C = whole(r, MMI_KEY_HIDDEN_SIZE);
    a->L = whole(r, MMI_KEY_NUM_HIDDEN_LAYERS);
    a->H = whole(r, MMI_KEY_NUM_ATTENTION_HEADS);
    a->G = whole(r, MMI_KEY_NUM_KEY_VALUE_HEADS);
    a->D = whole(r, MMI_KEY_HEAD_DIM);
    a->F = whole(r, MMI_KEY_INTERMEDIATE_SIZE);
    a->V = whole(r, MMI_KEY_VOCAB_SIZE);
    a->max_positions = whole(r, MMI_KEY_MAX_POSITION_EMBEDDINGS);
    a->eps = real(r, MMI_KEY_RMS_NORM_EPS);
    a->norm = (mmi_norm)whole(r, MMI_KEY_NORM_TYPE);
    a->tied = yes(r, MMI_KEY_TIE_WORD_EMBEDDINGS);
    a->qk_norm = yes(r, MMI_KEY_QK_NORM);
    a->attention_bias = yes(r, MMI_KEY_ATTENTION_BIAS);
    a->mlp_bias = yes(r, MMI_KEY_MLP_BIAS);
    a->dropout = real(r, MMI_KEY_DROPOUT);
    a->attention_dropout = real(r, MMI_KEY_ATTENTION_DROPOUT);
    a->eos_id = token_id(r, MMI_KEY_EOS_TOKEN_ID);
}

static mm_status check_shape(const mmi_arch *a)
{
    if (a->H % a->G != 0)
        return mmi_fail(MM_ERR_ARG, "num_attention_heads is %lld: it must be a multiple of num_key_value_heads, which is "
                                    "%lld", (long long)a->H, (long long)a->G);
    if (a->D == a->C / a->H && a->C % a->H != 0)
        return mmi_fail(MM_ERR_ARG, "hidden_size is %lld: it must be a multiple of num_attention_heads, which is %lld, "
                                    "unless head_dim is another number than %lld", (long long)a->C, (long long)a->H,
                        (long long)a->D);
    if (a->H > SIDE_MOST / a->D)
        return mmi_fail(MM_ERR_ARG, "num_attention_heads is %lld and head_dim %lld: their product may be at most %d",
                        (long long)a->H, (long long)a->D, SIDE_MOST);
    if (a->F > SIDE_MOST)
        return mmi_fail(MM_ERR_ARG, "intermediate_size is %lld, which follows from hidden_size %lld: at most %d is allowed",
                        (long long)a->F, (long long)a->C, SIDE_MOST);
    return MM_OK;
}

static mm_status read_positions(const reader *r, mmi_arch *a)
{
    mmi_scaling scaling;
    a->positions = (mmi_positions)whole(r, MMI_KEY_POSITION_EMBEDDING_TYPE);
    a->theta = real(r, MMI_KEY_ROPE_THETA);
    if (a->positions == MMI_ROPE && a->D % 2 != 0)
        return mmi_fail(MM_ERR_ARG, "head_dim is %lld: with rotary positions it must be even", (long long)a->D);
    if (!mmi_fields_scaling(r->fields, r->family, &scaling))
        return mmi_fail(MM_ERR_UNSUPPORTED,
                        "rope_scaling.type is \"yarn\" without rope_scaling.variant or rope_scaling.attention_factor: "
                        "model_type %s does not say which YaRN that is", model_type(r));
    if (scaling.yarn == MMI_YARN_STANDARD && a->theta <= 1)
        return mmi_fail(MM_ERR_ARG, "rope_theta is 1: the standard YaRN needs it above 1");
    a->yarn = scaling.yarn;
    a->yarn_factor = scaling.factor;
    a->yarn_beta_fast = scaling.beta_fast;
    a->yarn_beta_slow = scaling.beta_slow;
    a->yarn_attention_factor = scaling.attention_factor;
    a->yarn_original = scaling.original;
    return MM_OK;
}

static mmi_act activation(int64_t word)
{
    static const mmi_act acts[] = { MMI_SILU,      MMI_SILU,      MMI_SILU,      MMI_GELU,
                                    MMI_GELU_TANH, MMI_GELU_TANH, MMI_GELU_TANH, MMI_RELU };
    return acts[word];
}

/* Experts, and what hidden_act and mlp_type mean: minigpt's dense network heeds neither, its experts heed the word. */
static mm_status read_network(const reader *r, mmi_arch *a)
{
    int64_t word = whole(r, MMI_KEY_HIDDEN_ACT);
    bool minigpt = r->family == MMI_MINIGPT;
    a->moe = yes(r, MMI_KEY_USE_MOE);
    a->act = minigpt && !a->moe ? MMI_SILU : activation(word);
    a->gated = minigpt || whole(r, MMI_KEY_MLP_TYPE) == MMI_WORD_GATED;
    if (!a->moe)
        return MM_OK;
    a->top_k = whole(r, MMI_KEY_NUM_EXPERTS_PER_TOK);
    a->expert_gated = minigpt ? word == MMI_WORD_SWIGLU : a->gated;
    a->renormalize = yes(r, MMI_KEY_NORM_TOPK_PROB);
    if (r->family == MMI_MINIMIND3 || r->family == MMI_QWEN3_MOE) {
        a->E = whole(r, MMI_KEY_NUM_EXPERTS);
        a->expert_F = whole(r, MMI_KEY_MOE_INTERMEDIATE_SIZE);
        a->aux_coefficient = real(r, MMI_KEY_ROUTER_AUX_LOSS_COEF);
        return MM_OK;
    }
    a->E = whole(r, MMI_KEY_N_ROUTED_EXPERTS);
    a->shared_experts = whole(r, MMI_KEY_N_SHARED_EXPERTS);
    a->expert_F = a->F;
    a->aux_coefficient = real(r, MMI_KEY_AUX_LOSS_ALPHA);
    if (minigpt) {
        if (a->shared_experts > a->E)
            a->shared_experts = a->E;
        a->E -= a->shared_experts;
        a->renormalize = true;
        return MM_OK;
    }
    a->renormalize = a->renormalize && a->top_k > 1;
    a->aux_per_sequence = yes(r, MMI_KEY_SEQ_AUX);
    if (whole(r, MMI_KEY_SCORING_FUNC) != MMI_WORD_SOFTMAX)
        return unsupported(r, MMI_KEY_SCORING_FUNC, "\"sigmoid\"", "only softmax is run");
    return MM_OK;
}

static mm_status check_experts(const reader *r, const mmi_arch *a)
{
    if (!a->moe)
        return MM_OK;
    bool newer = r->family == MMI_MINIMIND3 || r->family == MMI_QWEN3_MOE;
    const char *experts = mmi_field_get(newer ? MMI_KEY_NUM_EXPERTS : MMI_KEY_N_ROUTED_EXPERTS)->name;
    const char *left = r->family == MMI_MINIGPT ? " beside the shared ones" : "";
    if (a->E < 1)
        return mmi_fail(MM_ERR_ARG, "%s leaves %lld routed experts%s: with use_moe there must be at least 1", experts,
                        (long long)a->E, left);
    if (a->top_k < 1 || a->top_k > a->E)
        return mmi_fail(MM_ERR_ARG, "num_experts_per_tok is %lld: it must be between 1 and the %lld routed experts that "
                                    "%s leaves%s", (long long)a->top_k, (long long)a->E, experts, left);
    if (a->expert_F < 1)
        return mmi_fail(MM_ERR_ARG, "moe_intermediate_size is %lld: with use_moe it must be at least 1",
                        (long long)a->expert_F);
    return MM_OK;
}

/* The sum over the layout, as counting and allocation will take it. */
static mm_status check_total(const mmi_arch *a)
{
    mmi_layout layout;
    mmi_layout_create(&layout, a);
    mmi_role culprit = mmi_layout_overflow(&layout, MMI_MOST_COUNTED);
    if (culprit == MMI_ROLES)
        return MM_OK;
    char name[128];
    mmi_tensor tensor;
    int64_t index = mmi_layout_index(&layout, culprit, 0, 0);
    mmi_layout_tensor(&layout, index, &tensor);
    mmi_layout_name(&layout, index, name, sizeof name);
    return mmi_fail(MM_ERR_ARG, "the parameters are too many to be addressed: %s [%lld, %lld], times %lld", name,
                    (long long)tensor.shape[0], (long long)tensor.shape[1],
                    (long long)mmi_layout_times(&layout, culprit));
}

mm_status mmi_fields_resolve(const mmi_fields *fields, mmi_arch *out)
{
    reader r = { fields, MMI_LLAMA };
    mmi_arch a;
    memset(&a, 0, sizeof a);
    if (!mmi_fields_family(fields, &r.family))
        return mmi_fail(MM_ERR_UNSUPPORTED, "model_type is missing: without it the family is unknown");
    a.family = r.family;
    mm_status status = check_required(&r);
    if (status == MM_OK)
        status = check_foreign(&r);
    if (status == MM_OK)
        status = check_not_run(&r);
    if (status != MM_OK)
        return status;
    read_shape(&r, &a);
    status = check_shape(&a);
    if (status == MM_OK)
        status = read_positions(&r, &a);
    if (status == MM_OK)
        status = read_network(&r, &a);
    if (status == MM_OK)
        status = check_experts(&r, &a);
    if (status == MM_OK)
        status = check_total(&a);
    if (status == MM_OK)
        *out = a;
    return status;
}

mm_status mmi_config_resolve(const mm_config *config, mmi_arch *out)
{
    return mmi_fields_resolve(&config->fields, out);
}

mm_status mm_config_validate(const mm_config *config)
{
    mmi_arch arch;
    if (!config)
        return mmi_fail(MM_ERR_ARG, "mm_config_validate: config is NULL");
    return mmi_config_resolve(config, &arch);
}
