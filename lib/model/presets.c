/* The known models, as config.json files that say only what their family's rules don't. */
#include "model/fields.h"

#define CLASSIC                                                                                                         \
    "\"model_type\":\"llama\",\"norm_type\":\"layernorm\",\"attention_bias\":true,\"mlp_bias\":true,"                   \
    "\"mlp_type\":\"plain\",\"hidden_act\":\"gelu\",\"hidden_size\":512,\"num_hidden_layers\":8,"                       \
    "\"num_attention_heads\":8,\"intermediate_size\":2048,\"vocab_size\":32000,\"rms_norm_eps\":1e-05,"                 \
    "\"position_embedding_type\":\"sinusoidal\",\"use_rope\":false,\"max_position_embeddings\":2048,"
#define MINIMIND(version, width, layers)                                                                                \
    "\"model_type\":\"minimind\",\"minimind_version\":" version ",\"vocab_size\":6400,\"hidden_size\":" width           \
    ",\"num_hidden_layers\":" layers ",\"num_attention_heads\":8"
#define MINIGPT(vocabulary, width, layers, heads, inner, length)                                                        \
    "\"model_type\":\"minigpt\",\"vocab_size\":" vocabulary ",\"hidden_size\":" width ",\"num_hidden_layers\":" layers  \
    ",\"num_attention_heads\":" heads ",\"intermediate_size\":" inner ",\"max_position_embeddings\":" length

static const struct {
    const char *name, *json;
} presets[] = {
    { "minimind2-small", "{" MINIMIND("2", "512", "8") "}" },
    { "minimind2", "{" MINIMIND("2", "768", "16") "}" },
    { "minimind2-moe", "{" MINIMIND("2", "640", "8") ",\"use_moe\":true}" },
    { "minimind2-small-moe", "{" MINIMIND("2", "512", "8") ",\"use_moe\":true}" },
    { "minimind-3", "{" MINIMIND("3", "768", "8") "}" },
    { "minimind-3-moe", "{" MINIMIND("3", "768", "8") ",\"use_moe\":true}" },
    { "minillm-tiny", "{" MINIGPT("10000", "128", "8", "4", "384", "512") "}" },
    { "minillm-small",
      "{" MINIGPT("10000", "512", "8", "8", "2048", "512") ",\"dropout\":0.0,\"attention_dropout\":0.1}" },
    { "minillm-small_30m", "{" MINIGPT("12000", "384", "13", "12", "1408", "2048") "}" },
    { "minillm-medium", "{" MINIGPT("20000", "384", "20", "12", "1536", "2048") "}" },
    { "minillm-foundation", "{" MINIGPT("32000", "768", "24", "16", "2688", "4096") "}" },
    { "minillm-large", "{" MINIGPT("32000", "768", "32", "24", "3072", "4096") "}" },
    { "minillm-moe", "{" MINIGPT("10000", "384", "12", "12", "1536", "1024") ",\"use_moe\":true}" },
    { "classic-tied", "{" CLASSIC "\"tie_word_embeddings\":true}" },
    { "classic-untied", "{" CLASSIC "\"tie_word_embeddings\":false}" },
};
#define PRESETS ((int32_t)(sizeof presets / sizeof *presets))

int32_t mm_preset_count(void)
{
    return PRESETS;
}

const char *mm_preset_name(int32_t index)
{
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

const char *mmi_preset_json(int32_t index)
{
    return presets[index].json;
}
