/**
 * @file train.h
 * The training loop, with everything that makes it dependable: accumulation, clipping, schedule, checkpoints, resume.
 *
 * It stands on the same public functions a program could call itself: a loader's batches through mm_forward(),
 * mm_backward() and mm_optimizer_step().
 *
 * A checkpoint is a directory `step-N` inside the output directory: config.json, model.safetensors,
 * optimizer.safetensors, state.json and the tokenizer, in float32; between two updates also gradients.safetensors, so
 * that any step can be gone on from. It is written under another name, synced and renamed; then the file `latest`, which
 * holds its name, is replaced. Whatever interrupts that, `latest` names a whole checkpoint. (A step that is saved a second
 * time waits as `step-N.old` until the new one is in place; mm_trainer_resume() knows.) state.json holds the size and a
 * hash of every other file. Trainers that are given one directory lock its file `.lock` and write one after the other.
 *
 * With an adapter the checkpoint holds that instead of the model, as PEFT lays it out: adapter_config.json and
 * adapter_model.safetensors, so that mm_adapter_load() reads the directory. It goes on beside the same weights only, whose
 * hash it holds.
 *
 * Several ranks train one model when each has a trainer with a communicator (comm.h) and a loader for its share of the
 * rows (`rank` and `world` of mm_loader_options; `batch` is each rank's). Every rank then steps as if one process had
 * taken all their batches: losses are means over the counted targets of all, gradients are added up while the backward
 * pass goes on, and the weights stay the same to the bit. All must have the same model, options, data and place, or
 * mm_trainer_run() says what differs; weights alone may come from rank 0. That goes for every stage: of preferences the
 * pairs are shared out, of rewards the prompts, whose answers each rank draws for itself and compares within their
 * groups, and whose gradients are added up behind the pass; PPO's advantages are brought to mean 0 and variance 1 over
 * the answers of all. Models that stand by, and the weights beside an adapter, must be the same everywhere. Rank 0
 * writes the checkpoints, which any number of ranks can go on from as long as the batches of all together stay as
 * large. Between two updates there is no whole gradient anywhere, and answers that will be learnt from again are one
 * rank's: checkpoints, validations and stopping wait for the next update, or for the last one from the same answers.
 * When a rank fails or dies, mm_trainer_run() of the others returns a status, with a message that names it, and stands
 * where the last update left off.
 */
#ifndef MINIMIND_TRAIN_H
#define MINIMIND_TRAIN_H

#include <minimind/comm.h>
#include <minimind/data.h>
#include <minimind/objective.h>
#include <minimind/optim.h>
#include <minimind/policy.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A training run: model, data, optimizer and where it stands. */
typedef struct mm_trainer mm_trainer;

/** What a trainer learns from. */
enum {
    MM_STAGE_PLAIN = 0,  /**< the next token: pretraining on text, fine-tuning on conversations */
    MM_STAGE_POLICY = 1, /**< rewards for the model's own answers to prompts: GRPO, CISPO, PPO (policy.h) */
    MM_STAGE_DPO = 2,    /**< preferences, against a frozen reference. Gives "accuracy" and "margin" */
    MM_STAGE_DISTILL = 3 /**< a teacher's distribution and the next token, of text or conversations. Gives
                              "cross_entropy" and "kl" */
};

/** What makes the weights better from gradients; optim.h. */
enum {
    MM_OPTIMIZER_ADAMW = 0, /**< mm_adamw_create(), or mm_adamw_create_adapter() */
    MM_OPTIMIZER_MUON = 1   /**< mm_muon_create() */
};

/** A number that a stage gives beside the loss, such as DPO's "accuracy". */
typedef struct mm_train_metric {
    const char *name; /**< static */
    double value;     /**< of the last micro-step; NaN where it came to no number, which passes over the step */
} mm_train_metric;

/** What a step was like. */
typedef struct mm_train_progress {
    size_t struct_size;     /**< sizeof(mm_train_progress) */
    int64_t step;           /**< micro-steps (batches) done, from 1 */
    int64_t total_steps;    /**< of the whole run; bad lines that are passed over can end it earlier, and so can packed rows with
                                 max_steps, since these are then not counted */
    int64_t epoch;          /**< from 0 */
    int64_t epoch_step;     /**< micro-steps of this epoch done */
    int64_t epoch_steps;    /**< micro-steps of an epoch; 0, not counted, when packing with max_steps, or where packed epochs
                                 differ, as a weight that takes part of a file makes them */
    int64_t updates;        /**< optimizer steps made */
    int64_t tokens;         /**< ids fed so far, padding included */
    int64_t skipped_lines;  /**< bad lines passed over */
    double loss;            /**< of this batch: in nats per token, or the stage's own; plus aux_loss, as in mm_output */
    double learning_rate;   /**< in force at this step */
    double grad_norm;       /**< before clipping, of the last update; 0 before the first */
    double tokens_per_s;    /**< ids per second since the last report, padding included */
    double seconds_left;    /**< of the run at that rate */
    const mm_train_metric *metrics; /**< [metric_count] of the stage, lent by the trainer until its next call */
    int64_t metric_count;   /**< of metrics */
    int64_t skipped_steps;  /**< micro-steps and updates that were passed over, see max_skips */
    int64_t evaluations;    /**< validations done; the next four are 0 before the first */
    double validation_loss; /**< of the last one, without aux_loss; infinite where that is no number */
    const mm_train_metric *validation_metrics; /**< [metric_count] of the last one, lent likewise; NULL before the first */
    double best_loss;       /**< the lowest so far, of those that were better by min_delta */
    int64_t best_step;      /**< where that was */
    double loss_scale;      /**< in force; 1 without scaling */
    const double *expert_load; /**< [expert_layers, experts] of the last micro-step, this rank's: as mm_expert_load() gives it,
                                    lent likewise; NULL without routed experts, before the first step, and where the run went back
                                    to a checkpoint or an update: no pass was made there */
    int64_t expert_layers;  /**< 0 without it */
    int64_t experts;        /**< routed ones of a layer; 0 without it */
    int64_t evaluated_step; /**< where the last validation was; 0 before the first */
} mm_train_progress;
#define MM_TRAIN_PROGRESS_INIT { sizeof(mm_train_progress), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, \
                                 NULL, 0, 0, 0, NULL, 0, 0, 0 }

/** Set every field of `progress` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_train_progress_init(mm_train_progress *progress, size_t struct_size);

/** Called after a micro-step (`progress` is lent for the call). Non-zero stops as mm_trainer_stop() does. */
typedef int32_t (*mm_train_fn)(void *user, const mm_train_progress *progress);

/** How a run goes. */
typedef struct mm_trainer_options {
    size_t struct_size;        /**< sizeof(mm_trainer_options) */
    const char *output;        /**< directory of the checkpoints; NULL: none are written */
    mm_train_fn on_step;       /**< NULL for none */
    void *user;                /**< handed to on_step */
    double learning_rate;      /**< what the schedule moves: the highest, but of MM_SCHEDULE_MINIMIND2, which begins at 1.1 of it */
    double max_grad_norm;      /**< 0: not clipped */
    double beta1, beta2, eps, weight_decay; /**< as in mm_adamw_options and mm_muon_options */
    double max_seconds;        /**< stop after so long as mm_trainer_stop() does; 0: no limit */
    int64_t epochs;            /**< at least 1 */
    int64_t max_steps;         /**< micro-steps at most; 0: as many as the epochs have. With it packed rows are not counted
                                    beforehand: total_steps is this number, and the rows may end before it */
    int64_t accumulation_steps; /**< batches per update, at least 1 */
    int64_t warmup_steps;      /**< of MM_SCHEDULE_COSINE, _LINEAR and _WSD, in micro-steps */
    int64_t save_interval;     /**< micro-steps between checkpoints; 0: only at the end */
    int64_t log_interval;      /**< micro-steps between calls of on_step, at least 1. It is also called at each validation and behind the
                                    last step: twice there, where only bad lines were left and the validation at the end
                                    comes behind them */
    int32_t schedule;          /**< MM_SCHEDULE_… */
    int32_t keep_last;         /**< checkpoints kept; 0: all */
    int32_t threads;           /**< as in mm_context_options */
    int32_t stage;             /**< MM_STAGE_… */
    const char *kernels;       /**< as in mm_context_options */
    const mm_policy_training *policy; /**< of MM_STAGE_POLICY, which needs one; copied */
    const mm_comm *comm;       /**< other ranks that train along, NULL for none. Borrowed: it must outlive the trainer */
    mm_loader *validation;     /**< NULL, or rows to measure the loss on, of the kind of the trained ones; its epoch 0 each time.
                                    MM_STAGE_POLICY takes none. Of ranks each has its share, as of the rows that are learnt, or
                                    (`world` 1) measures all. Kept alive. Nobody else may use it meanwhile */
    const mm_dpo_options *dpo; /**< of MM_STAGE_DPO; NULL: the defaults */
    const mm_distill_options *distill; /**< of MM_STAGE_DISTILL; NULL: the defaults */
    mm_model *reference;       /**< of MM_STAGE_DPO: the frozen model, of the same vocabulary. NULL: a copy of the model as it is
                                    when the trainer is made; with `adapter` no copy, but the model itself, without it (which may
                                    then also be given here). Kept alive */
    mm_model *teacher;         /**< of MM_STAGE_DISTILL: of any config whose vocab_size is at least the model's. Kept alive */
    const char *teacher_cache; /**< or what mm_distill_cache_write() wrote of one */
    int64_t eval_interval;     /**< micro-steps between validations; 0: only at the end. Needs `validation` */
    int64_t eval_batches;      /**< batches of a validation at most; 0: all */
    int64_t patience;          /**< end the run after so many validations without a better loss; 0: never. Needs `validation` and
                                    an eval_interval */
    double min_delta;          /**< by how much a loss must be below the best one to be better, from 0 up */
    int64_t max_skips;         /**< bad steps in a row that are passed over before the run fails with MM_ERR_NUMERIC. 0: the
                                    first one fails it. Bad is a loss, or at an update a norm of the gradients, that is not
                                    finite, or too high by spike_factor. So many bad updates in a row are as many bad steps,
                                    whatever losses stand between them */
    double spike_factor;       /**< 0: nothing finite is too high. Else what is above mean + spike_factor · max(deviation,
                                    0.01 · mean) of the last 64 good ones, once there are 16 */
    double decay_part;         /**< of MM_SCHEDULE_WSD: which part of the steps the rate falls in, in (0, 1]; 0: 0.2 */
    double loss_scale;         /**< what the loss is multiplied by before gradients are computed of it, and these are divided by again.
                                    When they overflow it is halved, and the update passed over. A power of two changes no digit.
                                    0: the loss as it is, but with compute MM_F16 65536 times it; 1 with an interval of -1 is
                                    never scaled */
    int64_t loss_scale_interval; /**< it doubles after so many updates without an overflow; 0: 2000; -1: never */
    int32_t keep_best;         /**< 1: save whenever a validation is the best so far; the file `best` names that checkpoint, which
                                    keep_last spares. An earlier run's stays until this run has one, or comes to its step. Needs
                                    `validation` */
    int32_t background_save;   /**< 1: the checkpoints of save_interval and keep_best are copied, and written beside training. The
                                    copy's memory is taken when the trainer is made, among ranks on rank 0: as much again as
                                    weights, moments and gradients. A failure is told where the next one is due, or at the end */
    mm_adapter *adapter;       /**< NULL, or the adapter to train beside the model, which stays as it is and may be mapped. Gradients
                                    and moments are held for the adapter alone: mm_estimate_memory() with mm_workload.adapter says
                                    how much that is. A reference that is not given is the model without the adapter. Kept alive */
    double momentum;           /**< of MM_OPTIMIZER_MUON, in [0, 1) */
    int32_t optimizer;         /**< MM_OPTIMIZER_…; an adapter is trained by AdamW alone */
    int32_t compute;           /**< as in mm_context_options, of every context of the run, those of a reference and a teacher too; the
                                    weights stay float32. MM_F16 scales the loss, see loss_scale */
} mm_trainer_options;
#define MM_TRAINER_OPTIONS_INIT { sizeof(mm_trainer_options), NULL, NULL, NULL, 5e-4, 1.0, 0.9, 0.999, 1e-8, 0.01, 0, \
                                  1, 0, 8, 0, 0, 1, MM_SCHEDULE_MINIMIND2, 2, 0, MM_STAGE_PLAIN, NULL, \
                                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, \
                                  0.95, 0, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_trainer_options_init(mm_trainer_options *options, size_t struct_size);

/**
 * A trainer at step 0: a context and an optimizer for `model`, planned for the loader's batches. It learns from the beginning
 * of the loader's first epoch on, wherever the loader stands, and leaves it where the run ends. While mm_trainer_run() runs, its
 * callbacks included, nobody else may take batches from the loader or move it.
 *
 * How many packed rows a data set makes is known only when all of it has been tokenized. That is done here, once, unless
 * max_steps says how long the run is. Where a weight gives every epoch other rows, each epoch is counted.
 *
 * @param model      Trained in place, or left as it is beside options->adapter. Kept alive by the trainer, as are the loader and the tokenizer.
 * @param tokenizer  Saved with every checkpoint; NULL for none.
 * @param options    Copied, strings included.
 * @param out        Yours: pair it with mm_trainer_free().
 *
 * @return MM_OK; MM_ERR_ARG, also a reference or teacher of a vocabulary that does not fit, or that is the very
 *         model being trained, or an adapter for other shapes, or an option without another that it needs; MM_ERR_STATE, weights
 *         that cannot be trained; MM_ERR_MEMORY; MM_ERR_UNSUPPORTED, rows of a kind that the stage does not learn from, a
 *         validation of MM_STAGE_POLICY, Muon for an adapter; MM_ERR_IO, MM_ERR_FORMAT, from counting packed rows, or of the
 *         teacher_cache. Since: 0.1
 */
MM_API mm_status mm_trainer_create(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer,
                                   const mm_trainer_options *options, mm_trainer **out);

/** NULL is fine. Waits for a checkpoint that is being written. The model, the loader and the tokenizer live on if their owner
 *  still holds them. Since: 0.1 */
MM_API void mm_trainer_free(mm_trainer *trainer);

/**
 * Go back to a checkpoint: weights, optimizer, step and place in the data. What follows is bit-identical to a run that
 * was never interrupted.
 *
 * A run, also one that is at its end, may become longer: with more epochs, with more max_steps, or with max_steps 0. It
 * goes on as one of that length, which schedules of the learning rate follow from here on. One that patience ended stays
 * ended; one of MM_STAGE_POLICY that ended between two updates from the same answers is MM_ERR_FORMAT.
 *
 * @param path  A checkpoint directory, or an output directory whose `latest` is taken.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO, there is none; MM_ERR_FORMAT, damaged, or of another config or other options
 *         that decide what follows (the message names which); MM_ERR_STATE, the trainer is running; MM_ERR_MEMORY. On failure
 *         model and trainer are as before. Since: 0.1
 */
MM_API mm_status mm_trainer_resume(mm_trainer *trainer, const char *path);

/**
 * Train to the end, or until stopped; then save. Returns MM_OK in both cases: ask mm_trainer_progress() how far it
 * came. Calling it again goes on. While it runs the trainer takes mm_trainer_stop() and mm_trainer_progress() and, within
 * on_step, mm_trainer_save().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, it runs already, or ranks that do not fit together; MM_ERR_CANCELLED, another rank
 *         gave up; MM_ERR_IO, MM_ERR_FORMAT (data or checkpoint, a rank that died); MM_ERR_NUMERIC, one bad step more in a row
 *         than max_skips: the weights are those before its update; MM_ERR_MEMORY. The last checkpoint stands, also one that was due
 *         when a validation failed; mm_trainer_save() keeps what was learnt since. Since: 0.1
 */
MM_API mm_status mm_trainer_run(mm_trainer *trainer);

/** Let a running mm_trainer_run() finish its step, save and return; without one, the next ends before its first step. Threads:
 *  any, and signal handlers. Since: 0.1 */
MM_API void mm_trainer_stop(mm_trainer *trainer);

/**
 * Where the run stands. On the thread on which it runs, as it is; on others, as it was after the last step that was finished,
 * all of one step. Threads: any, also while it runs; what it lends to threads other than that is overwritten when the
 * next of them asks.
 *
 * @return MM_OK; MM_ERR_ARG. Since: 0.1
 */
MM_API mm_status mm_trainer_progress(const mm_trainer *trainer, mm_train_progress *out);

/**
 * Write a checkpoint now. Among ranks, rank 0 does so, and the others have nothing to do. May be called within on_step.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, no output directory, or the trainer runs on another thread, or, among ranks, between
 *         two updates; MM_ERR_IO; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_trainer_save(mm_trainer *trainer);

/**
 * Write down what a teacher says of a loader's rows, for mm_trainer_options.teacher_cache: of each counted position the logits
 * of its k likeliest tokens among those of the tokenizer.
 *
 * The file is a safetensors file: "keys" int64 [R], ascending, a hash of each row's ids and targets; "starts" int64 [R + 1], where
 * its counted positions begin; "ids" int32 [N, k] and "logits" float32 [N, k], the likeliest first. Its metadata holds "format",
 * "vocab_size" and a "hash" of the four. It is for loaders of the same rows and options; packed rows fall differently in every
 * epoch and order, so these are for runs over one epoch without a shuffle. All of it is held in memory until it is written, 8 k
 * bytes for each counted position.
 *
 * @param loader   Of text or conversations; its epoch 0 is read. It stands where it stood afterwards.
 * @param k        1 to the tokenizer's number of ids.
 * @param threads  As in mm_context_options.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_UNSUPPORTED, rows of another kind; MM_ERR_IO; MM_ERR_FORMAT; MM_ERR_NUMERIC, logits that are
 *         not finite; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_distill_cache_write(mm_model *teacher, mm_loader *loader, int32_t k, int32_t threads,
                                        const char *path);

#ifdef __cplusplus
}
#endif

#endif
