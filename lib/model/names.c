#include "model/names.h"

#include <stdio.h>
#include <string.h>

static bool skip(const char **text, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(*text, prefix, length) != 0)
        return false;
    *text += length;
    return true;
}

/* "12." in front: its digits. A number so long that no model has it counts as none. */
static int skip_number(const char **text)
{
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > 9 || (*text)[digits] != '.')
        return 0;
    *text += digits + 1;
    return (int)digits;
}

static int64_t search(const mmi_layout *layout, const char *name, int64_t first, int64_t end)
{
    char candidate[MMI_NAME_SIZE];
    for (int64_t i = first; i < end; i++) {
        mmi_layout_name(layout, i, candidate, sizeof candidate);
        if (strcmp(candidate, name) == 0)
            return i;
    }
    return -1;
}

int64_t mmi_name_find(const mmi_layout *layout, const char *name)
{
    int64_t first = layout->layer_first, end = first + layout->arch->L * layout->layer_stride;
    const char *rest = name;
    if (skip(&rest, "model.layers.")) { /* only its own layer need be searched */
        int64_t layer = 0;
        const char *digit = rest;
        if (!skip_number(&rest))
            return -1;
        for (; *digit != '.'; digit++)
            layer = layer * 10 + (*digit - '0');
        if (layer >= layout->arch->L)
            return -1;
        first += layer * layout->layer_stride;
        return search(layout, name, first, first + layout->layer_stride);
    }
    int64_t index = search(layout, name, 0, first);
    return index >= 0 ? index : search(layout, name, end, layout->count);
}

int64_t mmi_name_find_joined(const mmi_layout *layout, const char *text, size_t length, const char *ending)
{
    char name[MMI_NAME_SIZE];
    if (length >= sizeof name - strlen(ending))
        return -1;
    snprintf(name, sizeof name, "%.*s%s", (int)length, text, ending);
    return mmi_name_find(layout, name);
}

/* A network's matrix, "w_gate.weight". An `expert` that is plain has "linear1" and "linear2". */
static bool translate_matrix(char *out, size_t size, const char *prefix, const char *rest, bool expert)
{
    static const char *const names[][2] = {
        { "w_gate.", "gate_proj" }, { "w_up.", "up_proj" },     { "w_down.", "down_proj" },
        { "linear1.", "up_proj" },  { "linear2.", "down_proj" },
    };
    for (size_t i = 0; i < (expert ? 5 : 3); i++)
        if (skip(&rest, names[i][0])) {
            snprintf(out, size, "%s%s.%s", prefix, names[i][1], rest);
            return true;
        }
    return false;
}

/* "experts.3.ffn.w_up.weight", behind "experts." */
static bool translate_expert(char *out, size_t size, const char *kind, const char *rest)
{
    char prefix[64];
    const char *number = rest;
    int digits = skip_number(&rest);
    if (digits == 0 || !skip(&rest, "ffn."))
        return false;
    snprintf(prefix, sizeof prefix, "mlp.%s.%.*s.", kind, digits, number);
    return translate_matrix(out, size, prefix, rest, true);
}

static bool translate_network(char *out, size_t size, const char *rest)
{
    if (strcmp(rest, "shared_weight") == 0 || strcmp(rest, "routed_weight") == 0) {
        snprintf(out, size, "mlp.%s", rest);
        return true;
    }
    if (translate_matrix(out, size, "mlp.", rest, false))
        return true;
    if (skip(&rest, "shared_experts."))
        return translate_expert(out, size, "shared_experts", rest);
    skip(&rest, "routed_moe.");
    if (skip(&rest, "experts."))
        return translate_expert(out, size, "experts", rest);
    if (!skip(&rest, "router.gate."))
        return false;
    snprintf(out, size, "mlp.gate.%s", rest);
    return true;
}

static bool translate_layer(char *out, size_t size, const char *rest)
{
    static const char *const names[][2] = {
        { "norm1.", "input_layernorm" },
        { "norm2.", "post_attention_layernorm" },
        { "attention.", "self_attn" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (skip(&rest, names[i][0])) {
            snprintf(out, size, "%s.%s", names[i][1], rest);
            return true;
        }
    return skip(&rest, "feed_forward.") && translate_network(out, size, rest);
}

bool mmi_name_translate(char *out, size_t size, const char *name)
{
    const char *rest = name;
    if (skip(&rest, "token_embedding."))
        return snprintf(out, size, "model.embed_tokens.%s", rest) > 0;
    if (skip(&rest, "layer_norm."))
        return snprintf(out, size, "model.norm.%s", rest) > 0;
    if (!skip(&rest, "transformer_blocks."))
        return false;
    const char *number = rest;
    int digits = skip_number(&rest);
    char layer[32];
    int length = snprintf(layer, sizeof layer, "model.layers.%.*s.", digits, number);
    if (digits == 0 || size <= (size_t)length || !translate_layer(out + length, size - (size_t)length, rest))
        return false;
    memcpy(out, layer, (size_t)length);
    return true;
}

bool mmi_name_is_table(const char *name)
{
    static const char frequencies[] = ".rotary_emb.inv_freq";
    size_t length = strlen(name), tail = sizeof frequencies - 1;
    return strcmp(name, "model.freqs_cos") == 0 || strcmp(name, "model.freqs_sin") == 0 ||
           strcmp(name, "positional_encoding.pe") == 0 ||
           (length > tail && strcmp(name + length - tail, frequencies) == 0);
}
