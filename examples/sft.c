/* sft: supervised fine-tuning, which makes a model that continues texts into one that answers.
 *
 *     sft --data-path dataset/sft_mini_512.jsonl --from-weight pretrain --save-dir out
 *
 * Each row is a conversation, {"conversations": [{"role": "user", "content": "…"}, {"role": "assistant", "content":
 * "…"}, …]}. The tokenizer's template renders it, and of the tokens only the assistant's count: the model learns to
 * answer, not to ask. All else is as in pretraining. The options are those of MiniMind's trainer/train_full_sft.py. */
#include <math.h>

#include "common.h"

static double hidden_size, num_hidden_layers, use_moe = NAN, packed; /* the model's directory knows the first three */
static const option_row own[] = {
    { "pack", FLAG, &packed, "      lay conversations end to end instead of padding each" },
    { "hidden-size", COUNT, &hidden_size, NULL },
    { "num-hidden-layers", COUNT, &num_hidden_layers, NULL },
    { "use-moe", SWITCH, &use_moe, NULL },
    { NULL, 0, NULL, NULL },
};

int main(int argc, char **argv)
{
    o.data_path = "dataset/sft_mini_512.jsonl";
    o.from_weight = "pretrain";
    o.save_weight = "full_sft";
    o.epochs = 2;
    o.batch_size = 16;
    o.learning_rate = 1e-6;
    o.save_interval = 1000;
    o.max_seq_len = 340;
    read_options(argc, argv, "Teach a model to answer, from conversations.", own);

    mm_tokenizer *tokenizer = load_tokenizer();
    mm_model *model = load_model(o.from_weight);
    expect_shape(model, "--from-weight", hidden_size, num_hidden_layers, use_moe);
    int32_t form = packed > 0 ? MM_ROWS_PACK : MM_ROWS_PAD3;
    mm_loader *loader = make_loader(o.data_path, tokenizer, MM_ROW_CHAT, form);
    mm_trainer_options options = trainer_options(tokenizer, MM_ROW_CHAT, form);
    train(model, loader, tokenizer, &options);

    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(0);
}
