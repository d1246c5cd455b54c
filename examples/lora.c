/* lora: teach a model something small, and keep what it learnt apart from it.
 *
 *     lora --model out/full_sft --data-path dataset/lora_identity.jsonl --lora-name identity
 *     generate --model out/full_sft --adapter out/lora/identity --prompt "…"
 *
 * The model is only read: neither gradients nor moments are held for it, and what is saved is the adapter alone, as
 * PEFT lays it out. Any of the training programs does so with --lora-rank; this one has the options of MiniMind's
 * trainer/train_lora.py where it has them. How a loop of one's own trains an adapter is in include/minimind/adapter.h.
 */
#include <math.h>
#include <string.h>

#include "common.h"

static double hidden_size, num_hidden_layers, use_moe = NAN; /* the model's directory knows them */
static const option_row own[] = {
    { "model", TEXT, &o.from_weight, "DIR   the model, which stays as it is" },
    { "lora-name", TEXT, &o.save_weight, "NAME  the adapter comes to SAVE_DIR/NAME" },
    { "from-lora", TEXT, &o.from_lora, "DIR   go on with an adapter that was saved" },
    { "targets", TEXT, &o.lora_targets,
      "NAMES which projections, such as q_proj,v_proj or * for all; minimind: those\n"
      "                             with as many inputs as outputs, and no alpha (minimind)" },
    { "rank", COUNT, &o.lora_rank, "N     of the adapter (8)" },
    { "alpha", REAL, &o.lora_alpha, "X     what it adds is multiplied by this, over the rank (16)" },
    { "dropout", REAL, &o.lora_dropout, "X     of what it reads (0)" },
    { "comm-rank", COUNT, &o.ranks.rank, "N     of this process with --comm, since --rank is the adapter's" },
    { "hidden-size", COUNT, &hidden_size, NULL },
    { "num-hidden-layers", COUNT, &num_hidden_layers, NULL },
    { "use-moe", SWITCH, &use_moe, NULL },
    { NULL, 0, NULL, NULL },
};

/* Of what was not told take the usual, and nothing where it would have no effect. */
static void shape_adapter(void)
{
    double *const numbers[] = { &o.lora_rank, &o.lora_alpha, &o.lora_dropout };
    static const char *const names[] = { "rank", "alpha", "dropout" };
    static const double usual[] = { 8, 16, 0 };
    static const char itself[] = "an adapter that was saved says that itself: --from-lora and --";
    if (o.from_lora && o.lora_targets)
        fail(itself, "targets");
    if (!o.lora_targets)
        o.lora_targets = "minimind";
    if (!isnan(o.lora_alpha) && strcmp(o.lora_targets, "minimind") == 0)
        fail("MiniMind's own targets have no alpha: --targets minimind and --", "alpha");
    for (int i = 0; i < 3; i++)
        if (isnan(*numbers[i]))
            *numbers[i] = usual[i];
        else if (o.from_lora)
            fail(itself, names[i]);
    if (o.lora_rank < 1)
        fail("a rank is at least 1: --", "rank");
}

int main(int argc, char **argv)
{
    o.data_path = "dataset/lora_identity.jsonl";
    o.from_weight = "out/full_sft";
    o.save_dir = "out/lora";
    o.save_weight = "lora_identity";
    o.lora_rank = o.lora_alpha = o.lora_dropout = NAN; /* not told */
    o.epochs = 10;
    o.learning_rate = 1e-4;
    o.log_interval = 10;
    o.max_seq_len = 340;
    read_options(argc, argv, "Learn a low-rank adapter for a model from conversations.", own);
    shape_adapter();

    mm_tokenizer *tokenizer = load_tokenizer();
    mm_model *model = load_model(o.from_weight);
    expect_shape(model, "--from-weight", hidden_size, num_hidden_layers, use_moe);
    mm_loader *loader = make_loader(o.data_path, tokenizer, MM_ROW_CHAT, MM_ROWS_PAD);
    mm_trainer_options options = trainer_options(tokenizer, MM_ROW_CHAT, MM_ROWS_PAD);
    train(model, loader, tokenizer, &options);

    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(0);
}
