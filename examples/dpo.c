/* dpo: direct preference optimisation, which moves a model towards the better one of two answers.
 *
 *     dpo --data-path dataset/dpo.jsonl --from-weight full_sft --save-dir out
 *
 * Each row is a pair of conversations that differ in their last answer, {"chosen": […], "rejected": […]}. The policy,
 * the model that learns, is compared with a frozen reference: by how much more than the reference it likes the chosen
 * answer, beta times that is the margin. "accuracy" is the share of pairs whose margin is above 0. The options are
 * those of MiniMind's trainer/train_dpo.py. */
#include <math.h>

#include "common.h"

static char *reference;
static double beta = 0.1, hidden_size, num_hidden_layers,
              use_moe = NAN; /* the model's directory knows the last three */
static const option_row own[] = {
    { "beta", REAL, &beta, "X     how firmly the policy is held to the reference" },
    { "reference", TEXT, &reference, "NAME  of the frozen model, or its directory (the model as it begins)" },
    { "hidden-size", COUNT, &hidden_size, NULL },
    { "num-hidden-layers", COUNT, &num_hidden_layers, NULL },
    { "use-moe", SWITCH, &use_moe, NULL },
    { NULL, 0, NULL, NULL },
};

int main(int argc, char **argv)
{
    o.data_path = "dataset/dpo.jsonl";
    o.from_weight = "full_sft";
    o.save_weight = "dpo";
    o.batch_size = 4;
    o.learning_rate = 4e-8; /* more, and it forgets what it knows */
    o.max_seq_len = 1024;
    read_options(argc, argv, "Teach a model which of two answers is the better one.", own);

    mm_tokenizer *tokenizer = load_tokenizer();
    mm_model *model = load_model(o.from_weight);
    expect_shape(model, "--from-weight", hidden_size, num_hidden_layers, use_moe);
    mm_loader *loader = make_loader(o.data_path, tokenizer, MM_ROW_PREFERENCE, MM_ROWS_PAD);
    mm_trainer_options options = trainer_options(tokenizer, MM_ROW_PREFERENCE, MM_ROWS_PAD);
    mm_dpo_options dpo = MM_DPO_OPTIONS_INIT;
    dpo.beta = beta;
    options.stage = MM_STAGE_DPO;
    options.dpo = &dpo;
    if (reference) /* else the trainer keeps a copy of the model as it is now */
        options.reference = load_model(reference);
    train(model, loader, tokenizer, &options);

    mm_model_free(options.reference);
    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(0);
}
