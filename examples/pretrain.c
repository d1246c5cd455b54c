/* pretrain: train a MiniMind from JSON lines, {"text": "…"}, and be able to stop at any time.
 *
 *     pretrain --data-path dataset/pretrain_hq.jsonl --tokenizer model --save-dir out
 *     pretrain …the same options… --from-resume 1        goes on where it stopped, to the same bits
 *     pretrain …, with more epochs… --from-resume 1      goes on, also where it had ended
 *     pretrain …the same options… --comm local:meet --world-size 2 --rank 0 &
 *     pretrain …the same options… --comm local:meet --world-size 2 --rank 1          two processes train one model
 *
 * The options are those of MiniMind's trainer/train_pretrain.py, with dashes or underscores. Begin reading at main(): a
 * data set and a tokenizer make a loader, a config makes a model, and train() brings them together. */
#include <math.h>
#include <string.h>

#include "common.h"

static char *preset, *config_path, *form;
static double hidden_size, num_hidden_layers, use_moe = NAN, packed;
static const option_row own[] = {
    { "preset", TEXT, &preset, "NAME  one that `params --list` names (minimind2-small)" },
    { "config", TEXT, &config_path, "FILE  a config.json instead of a preset" },
    { "hidden-size", COUNT, &hidden_size, "N     0: the preset's" },
    { "num-hidden-layers", COUNT, &num_hidden_layers, "N     0: the preset's" },
    { "use-moe", SWITCH, &use_moe, "0|1   1: with experts, 0: without (the preset's)" },
    { "form", TEXT, &form, "NAME  pad, pad3 or pack: how rows are laid out (the preset's)" },
    { "pack", FLAG, &packed, "      the same as --form pack" },
    { "strip-empty-think", FLAG, &o.strip_empty_think, NULL }, /* which no text has */
    { NULL, 0, NULL, NULL },
};

static mm_model *make_model(const mm_tokenizer *tokenizer)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    if (strcmp(o.from_weight, "none") != 0) {
        if (preset || config_path)
            fail("the model of --from-weight has its config, it takes no --", preset ? "preset" : "config");
        model = load_model(o.from_weight);
        expect_shape(model, "--from-weight", hidden_size, num_hidden_layers, use_moe);
        return model;
    }
    check(config_path ? mm_config_load(config_path, &config) : mm_config_create(preset, &config));
    check(mm_config_set_int(config, "vocab_size", mm_tokenizer_vocab_size(tokenizer)));
    /* What rows begin and end with is what a model that writes begins and ends with; -1: the tokenizer has none. */
    check(mm_config_set_int(config, "bos_token_id", mm_tokenizer_find(tokenizer, "<|im_start|>")));
    check(mm_config_set_int(config, "eos_token_id", mm_tokenizer_find(tokenizer, "<|im_end|>")));
    if (hidden_size > 0)
        check(mm_config_set_int(config, "hidden_size", (int64_t)hidden_size));
    if (num_hidden_layers > 0)
        check(mm_config_set_int(config, "num_hidden_layers", (int64_t)num_hidden_layers));
    int32_t has_experts = 0;
    mm_config_get_bool(config, "use_moe", &has_experts); /* of a family that lacks the key it stays as it is */
    if (!isnan(use_moe) && (use_moe > 0) != (has_experts > 0))
        check(mm_config_set_bool(config, "use_moe", use_moe > 0));
    check(mm_model_create(config, (uint64_t)o.seed, &model));
    mm_config_free(config); /* the model has a copy */
    return model;
}

/* What was left open follows the model: MiniMind's own script has other defaults for each generation. */
static void complete_options(const mm_model *model)
{
    int64_t version = 2;
    if (mm_config_get_int(mm_model_config(model), "minimind_version", &version) != MM_OK)
        version = 2;
    o.epochs = isnan(o.epochs) ? (version == 3 ? 2 : 1) : o.epochs;
    o.save_interval = isnan(o.save_interval) ? (version == 3 ? 1000 : 100) : o.save_interval;
    o.max_seq_len = isnan(o.max_seq_len) ? (version == 3 ? 340 : 512) : o.max_seq_len;
    if (!form)
        form = packed > 0 ? "pack" : version == 3 ? "pad3" : "pad";
    if (!o.schedule)
        o.schedule = version == 3 ? "minimind3" : "minimind2";
}

int main(int argc, char **argv)
{
    static const char *const forms[] = { "pad", "pad3", "pack", NULL };
    o.data_path = "dataset/pretrain_hq.jsonl";
    o.tokenizer = "model";
    o.save_weight = "pretrain";
    o.accumulation_steps = 8;
    o.epochs = o.save_interval = o.max_seq_len = NAN;
    read_options(argc, argv,
                 "Train a MiniMind on JSON lines. Left out, --epochs, --save-interval, --max-seq-len, --form and\n"
                 "--schedule are what MiniMind has for the model: 1, 100, 512, pad, minimind2; for minimind-3 they\n"
                 "are 2, 1000, 340, pad3, minimind3.",
                 own);

    mm_tokenizer *tokenizer = load_tokenizer();
    mm_model *model = make_model(tokenizer);
    complete_options(model);
    int32_t layout = choose("form", form, forms);
    mm_loader *loader = make_loader(o.data_path, tokenizer, MM_ROW_TEXT, layout);
    mm_trainer_options options = trainer_options(tokenizer, MM_ROW_TEXT, layout);
    train(model, loader, tokenizer, &options);

    mm_loader_free(loader);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    return written(0);
}
