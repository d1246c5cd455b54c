/* A model of a few thousand weights, rows to train it on, and trainers that put the two together. */
#ifndef MM_TESTS_TRAIN_TINY_H
#define MM_TESTS_TRAIN_TINY_H

#include "support.h"

mm_config *tiny_config(void);
mm_model *tiny_model(uint64_t seed);

/* A run and all it is made of. */
typedef struct tiny_run {
    mm_model *model;
    mm_adapter *adapter; /* what is trained beside the model; NULL: the model is */
    mm_tokenizer *tokenizer;
    mm_dataset *dataset;
    mm_loader *loader;
    mm_dataset *validation_rows; /* this and the next only where the options ask for them */
    mm_loader *validation;
    mm_trainer *trainer;
} tiny_run;

/* What a run is like, to be changed before tiny_start(). 23 rows in batches of 3, 2 epochs: 16 steps when padded. */
typedef struct tiny_options {
    mm_trainer_options trainer;
    mm_loader_options loader;
    const char *path;                /* rows */
    double weight;                   /* of their file; 0: 1 */
    const char *tokenizer_directory; /* NULL: byte_tokenizer() */
    uint64_t weights;                /* seed */
    double dropout;
    uint64_t teacher;          /* seed of a teacher of a wider config; 0: none */
    const char *validation;    /* rows, or NULL */
    int32_t validation_length; /* their max_length; 0: the loader's */
    bool validation_whole;     /* all of them on each rank */
    int32_t rank;              /* of an adapter, which learns instead of the model; 0: none */
    const char *targets;       /* of the adapter; NULL: all-linear */
    bool endless;              /* the config names no eos */
    bool moe;                  /* 4 experts, of which 2 work */
    int32_t vocab_size;        /* 0: 260 */
} tiny_options;
tiny_options tiny_defaults(const char *rows);

/* One of each kind of run that a trainer knows, its files in `directory`; 20 to 40 steps, checkpoints in the midst of
 * accumulations. */
typedef enum tiny_kind {
    TINY_TEXT,
    TINY_CHAT,
    TINY_DPO,
    TINY_DISTILL,
    TINY_CACHED,
    TINY_MUON,
    TINY_LORA,
    TINY_LORA_DPO,
    TINY_KINDS
} tiny_kind;
tiny_options tiny_options_of(tiny_kind kind, const char *directory);

/* A file of conversations, or of pairs whose chosen answers are in capitals; static until the fourth call after it. */
const char *tiny_conversations(const char *directory, const char *name, bool pairs, int rows, unsigned seed);
extern const char *const tiny_kind_names[TINY_KINDS];

/* As tiny_model(), with more layers, experts and a wider vocabulary. */
mm_model *tiny_teacher(uint64_t seed);

/* The status of mm_trainer_create(); the rest must work. */
mm_status tiny_try(tiny_run *run, const tiny_options *options);
void tiny_start(tiny_run *run, const tiny_options *options);
void tiny_end(tiny_run *run);

/* All weights, one after another; free() them. And of the adapter. */
float *tiny_weights(const mm_model *model, size_t *count);
float *tiny_adapter_weights(const mm_adapter *adapter, size_t *count);

/* Fails unless the run's weights, those of its adapter too, and place are those of `expected` to the bit. */
void tiny_check_same(const tiny_run *run, const tiny_run *expected);

int64_t tiny_steps(const tiny_run *run);

#endif
