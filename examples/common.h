/* What sft, dpo and distill share: their options, the line that shows how far they are, and the way they end. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <minimind.h>

/* Print "program: what which" and end with status 1. */
void fail(const char *what, const char *which);

/* Every call that can fail returns a status; mm_last_error() has the story behind it. */
void check(mm_status status);

/* Options that all of them have. A program sets its own defaults before it reads the command line; NAN and NULL are open. */
typedef struct settings {
    char *save_dir, *save_weight, *data_path, *validation_path, *tokenizer, *from_weight, *from_resume, *schedule, *template_name;
    char *kernels;
    double epochs, batch_size, learning_rate, accumulation_steps, grad_clip, weight_decay, warmup_steps, max_steps, max_seconds;
    double log_interval, save_interval, eval_interval, patience, keep_last, max_seq_len, seed, threads, skip_bad_lines, resume;
} settings;
extern settings o;

/* A program's own options: a table that ends with a NULL name. A help of NULL keeps one off the list. */
enum { TEXT, COUNT, REAL, FLAG };
typedef struct option_row {
    const char *name;
    int kind;
    void *to; /* char * of a TEXT, double of the others */
    const char *help;
} option_row;

/* Read the command line; --help prints `about`, the own options and the shared ones. Dashes and underscores are the same. */
void read_options(int argc, char **argv, const char *about, const option_row *own);

/* The place of `name` in a list that ends with NULL; fails if it has none. */
int32_t choose(const char *option, const char *name, const char *const *names);

/* A model directory, or the NAME that an earlier program saved in --save-dir. */
mm_model *load_model(const char *where);

/* The tokenizer of --tokenizer, or of the directory that --from-weight means. */
mm_tokenizer *load_tokenizer(void);

/* A loader of rows, from a file, by the shared options. */
mm_loader *make_loader(const char *path, mm_tokenizer *tokenizer, int32_t kind, int32_t form);

/* The trainer's options by the shared ones, the validation among them. */
mm_trainer_options trainer_options(mm_tokenizer *tokenizer, int32_t kind, int32_t form);

/* Resume if asked to, train to the end or to Ctrl-C, and save the model as SAVE_DIR/SAVE_WEIGHT. */
void train(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer, const mm_trainer_options *options);

#endif
