/* What the training programs share: their options, the line that shows how far they are, and the way they end. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include "options.h"
#include "ranks.h"

/* Options that all of them have. A program sets its own defaults before it reads the command line. */
typedef struct settings {
    char *save_dir, *save_weight, *data_path, *validation_path, *tokenizer, *from_weight, *from_resume, *schedule, *template_name;
    char *kernels, *dtype, *optimizer, *lora_targets, *from_lora, *report, *regression;
    double epochs, batch_size, learning_rate, accumulation_steps, grad_clip, weight_decay, warmup_steps, max_steps, max_seconds;
    double log_interval, save_interval, eval_interval, patience, keep_last, max_seq_len, seed, threads;
    double skip_bad_lines, strip_empty_think, resume;
    double lora_rank, lora_alpha, lora_dropout, regression_interval;
    text_list samples;
    int64_t rows; /* of --data-path, once its loader is made */
    rank_options ranks;
    const char *const *metrics;                /* those of the stage that the log shows, NULL at the end; NULL: all */
    void (*on_step)(const mm_train_progress *); /* told of each step as well; NULL for none */
    void (*check)(void); /* fails where options can't be meant, before other ranks are waited for; NULL for none */
} settings;
extern settings o;

/* Read the command line; --help prints `about`, the own options and the shared ones. Then wait for the other ranks, where
 * there are some. */
void read_options(int argc, char **argv, const char *about, const option_row *own);

/* A model directory, or the NAME that an earlier program saved in --save-dir. */
mm_model *load_model(const char *where);

/* MiniMind's command lines name the shape of a model that is there already: what is not 0 (`use_moe`: not NAN) must be
 * what the model has, which is that of `option`, "--from-weight". */
void expect_shape(const mm_model *model, const char *option, double hidden_size, double num_hidden_layers,
                  double use_moe);

/* The tokenizer of --tokenizer, or of the directory that --from-weight means. */
mm_tokenizer *load_tokenizer(void);

/* A loader of rows, from a file, by the shared options. */
mm_loader *make_loader(const char *path, mm_tokenizer *tokenizer, int32_t kind, int32_t form);

/* The trainer's options by the shared ones, the validation among them. */
mm_trainer_options trainer_options(mm_tokenizer *tokenizer, int32_t kind, int32_t form);

/* Resume if asked to, train to the end or to Ctrl-C, and save what was learnt as SAVE_DIR/SAVE_WEIGHT: the model or, with
 * --lora-rank, an adapter beside it. Then part from the other ranks. */
void train(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer, const mm_trainer_options *options);

#endif
