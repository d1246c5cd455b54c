/* pretrain: train a MiniMind from JSON lines, {"text": "…"}, and be able to stop at any time.
 *
 *     pretrain --data-path dataset/pretrain_hq.jsonl --tokenizer model --save-dir out
 *     pretrain …the same options… --from-resume 1        goes on where it stopped, to the same bits
 *     pretrain …the same options… --comm local:meet --world-size 2 --rank 0 &
 *     pretrain …the same options… --comm local:meet --world-size 2 --rank 1          two processes train one model
 *
 * The options are those of MiniMind's trainer/train_pretrain.py, with dashes or underscores. Begin reading at main(): a
 * data set and a tokenizer make a loader, a config makes a model, and a trainer brings them together. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <minimind.h>

#include "watch.h"
#ifdef PRETRAIN_MPI
#include <minimind-mpi.h>
#endif

/* Left at NAN or NULL, an option follows the model: what MiniMind's own script has for its generation. */
static struct {
    char *save_dir, *save_weight, *data_path, *tokenizer, *preset, *config, *from_weight, *from_resume, *form, *schedule;
    char *kernels, *comm, *report, *sample, *unused;
    double epochs, batch_size, learning_rate, accumulation_steps, grad_clip, weight_decay, warmup_steps, max_steps;
    double max_seconds, log_interval, save_interval, keep_last, hidden_size, num_hidden_layers, max_seq_len, use_moe;
    double seed, threads, pack, skip_bad_lines, resume, rank, world_size, nothing;
} o = {
    .save_dir = "out", .save_weight = "pretrain", .data_path = "dataset/pretrain_hq.jsonl", .tokenizer = "model",
    .from_weight = "none", .from_resume = "0", .epochs = NAN, .batch_size = 32, .learning_rate = 5e-4,
    .accumulation_steps = 8, .grad_clip = 1, .weight_decay = 0.01, .log_interval = 100, .save_interval = NAN,
    .keep_last = 2, .max_seq_len = NAN, .seed = 42, .world_size = 1,
};

static const char *samples[8];
static int32_t sample_count;

enum { TEXT, COUNT, REAL, FLAG };
static const struct {
    const char *name;
    int kind;
    void *to;
    const char *help;
} table[] = {
    { "data-path", TEXT, &o.data_path, "FILE  rows {\"text\": \"…\"} (dataset/pretrain_hq.jsonl)" },
    { "tokenizer", TEXT, &o.tokenizer, "DIR   with a tokenizer.json (model)" },
    { "save-dir", TEXT, &o.save_dir, "DIR   checkpoints and the model come here (out)" },
    { "out-dir", TEXT, &o.save_dir, "DIR   the same" },
    { "save-weight", TEXT, &o.save_weight, "NAME  the model is saved as SAVE_DIR/NAME (pretrain)" },
    { "epochs", COUNT, &o.epochs, "N     (1; minimind-3: 2)" },
    { "batch-size", COUNT, &o.batch_size, "N     rows per step, of all ranks together (32)" },
    { "learning-rate", REAL, &o.learning_rate, "X     (5e-4)" },
    { "accumulation-steps", COUNT, &o.accumulation_steps, "N     steps per update of the weights (8)" },
    { "grad-clip", REAL, &o.grad_clip, "X     largest norm of the gradients, 0 for any (1.0)" },
    { "weight-decay", REAL, &o.weight_decay, "X     (0.01)" },
    { "schedule", TEXT, &o.schedule, "NAME  constant, minimind2, minimind3 or cosine (the preset's)" },
    { "warmup-steps", COUNT, &o.warmup_steps, "N     of the cosine schedule (0)" },
    { "max-steps", COUNT, &o.max_steps, "N     stop after so many steps, 0 for no limit (0)" },
    { "max-seconds", REAL, &o.max_seconds, "X     stop after so long, 0 for no limit (0)" },
    { "log-interval", COUNT, &o.log_interval, "N     steps between lines of the log (100)" },
    { "save-interval", COUNT, &o.save_interval, "N     steps between checkpoints (100; minimind-3: 1000)" },
    { "keep-last", COUNT, &o.keep_last, "N     checkpoints kept, 0 for all (2)" },
    { "preset", TEXT, &o.preset, "NAME  minimind2-small, minimind2 or minimind-3 (minimind2-small)" },
    { "config", TEXT, &o.config, "FILE  a config.json instead of a preset" },
    { "hidden-size", COUNT, &o.hidden_size, "N     (the preset's)" },
    { "num-hidden-layers", COUNT, &o.num_hidden_layers, "N     (the preset's)" },
    { "max-seq-len", COUNT, &o.max_seq_len, "N     tokens per row (512; minimind-3: 340)" },
    { "use-moe", COUNT, &o.use_moe, "0|1   (0)" },
    { "form", TEXT, &o.form, "NAME  pad, pad3 or pack: how rows are laid out (the preset's)" },
    { "pack", FLAG, &o.pack, "      the same as --form pack" },
    { "from-weight", TEXT, &o.from_weight, "NAME  none, a saved NAME, or a model directory to begin from (none)" },
    { "from-resume", TEXT, &o.from_resume, "0|1   1: go on from SAVE_DIR, if there is a checkpoint; or its directory (0)" },
    { "resume", FLAG, &o.resume, "      the same as --from-resume 1" },
    { "seed", COUNT, &o.seed, "N     of the weights and the shuffle (42)" },
    { "threads", COUNT, &o.threads, "N     0 for one per processor (0)" },
    { "kernels", TEXT, &o.kernels, "NAME  how to compute (the fastest here)" },
    { "report", TEXT, &o.report, "DIR   curves and samples: report.html, metrics.jsonl, TensorBoard files (SAVE_DIR/report)" },
    { "sample", TEXT, &o.sample, "TEXT  a prompt to go on with ten times in a run, for the report; up to 8 of them" },
    { "skip-bad-lines", FLAG, &o.skip_bad_lines, "      pass over lines that are no rows" },
    { "comm", TEXT, &o.comm, "HOW   train with others: local:PATH, tcp:HOST:PORT of rank 0, or mpi (alone)" },
    { "rank", COUNT, &o.rank, "N     of this process, from 0; MPI knows it by itself (0)" },
    { "world-size", COUNT, &o.world_size, "N     processes in all; MPI knows it by itself (1)" },
    { "device", TEXT, &o.unused, NULL }, { "dtype", TEXT, &o.unused, NULL }, /* no effect: float32 on the CPU */
    { "num-workers", TEXT, &o.unused, NULL }, { "use-compile", TEXT, &o.unused, NULL },
    { "use-wandb", FLAG, &o.nothing, NULL }, { "wandb-project", TEXT, &o.unused, NULL },
};
#define OPTION_COUNT (sizeof table / sizeof *table)

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "pretrain: %s%s\n", what, which);
    exit(EXIT_FAILURE);
}

/* Every call that can fail returns a status; mm_last_error() has the story behind it. */
static void check(mm_status status)
{
    if (status != MM_OK)
        fail(mm_last_error(), "");
}

static void help(void)
{
    puts("usage: pretrain [OPTION VALUE]...\n\nTrain a MiniMind on JSON lines. Ctrl-C saves and stops.\n");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (table[i].help)
            printf("  --%-19s %s\n", table[i].name, table[i].help);
    puts("\n--device, --dtype, --num-workers, --use-compile, --use-wandb and --wandb-project are taken\n"
         "as MiniMind takes them, and have no effect here.");
}

static double read_number(const char *name, int kind, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0) || value > 9e15 || (kind == COUNT && value != floor(value)))
        fail(kind == COUNT ? "not a whole number from 0 up, but asked for by --" : "not a number from 0 up: --", name);
    return value;
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t which = 0, length = strcspn(argv[i], "=");
        for (size_t k = 2; k < length; k++)
            if (argv[i][k] == '_')
                argv[i][k] = '-';
        if (strcmp(argv[i], "--help") == 0) {
            help();
            exit(EXIT_SUCCESS);
        }
        while (which < OPTION_COUNT && (strncmp(argv[i], "--", 2) != 0 || strlen(table[which].name) != length - 2 ||
                                        strncmp(argv[i] + 2, table[which].name, length - 2) != 0))
            which++;
        if (which == OPTION_COUNT)
            fail("no such option, --help lists them: ", argv[i]);
        int kind = table[which].kind;
        char *value = argv[i][length] == '=' ? argv[i] + length + 1 : kind == FLAG ? "1" : argv[++i];
        if (!value)
            fail("this option needs a value: --", table[which].name);
        if (table[which].to == &o.sample && sample_count < 8)
            samples[sample_count++] = value;
        if (kind == TEXT)
            *(char **)table[which].to = value;
        else
            *(double *)table[which].to = read_number(table[which].name, kind, value);
    }
}

/* --- The log --- */

static mm_trainer *trainer; /* for the signal handler */
static mm_comm *comm;       /* NULL: this process trains alone */
static int leads = 1;       /* rank 0 speaks for all */
static volatile sig_atomic_t stopped;
static int live;            /* standard output is a terminal: a line that moves */
static double started, rate;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that `steps` more will take, at the rate of late; less if --max-seconds comes first. */
static double seconds_for(const mm_train_progress *p, int64_t steps)
{
    double left = rate > 0 ? (double)steps * (double)p->tokens / (double)p->step / rate : 0;
    double allowed = o.max_seconds > 0 ? fmax(0, o.max_seconds - (now() - started)) : left;
    return fmin(left, allowed);
}

/* The moving line makes room for a lasting one. */
static void clear_line(void)
{
    if (live)
        printf("\r\033[K");
}

static int32_t show(void *user, const mm_train_progress *p)
{
    (void)user;
    int64_t step = p->epoch_steps ? p->epoch_step : p->step, steps = p->epoch_steps ? p->epoch_steps : p->total_steps;
    rate = rate > 0 ? 0.95 * rate + 0.05 * p->tokens_per_s : p->tokens_per_s;
    double left = seconds_for(p, live ? p->total_steps - p->step : steps - step);
    clear_line();
    watch_step(p);
    if (p->step % (int64_t)o.log_interval == 0 || p->step == p->total_steps)
        printf("Epoch:[%lld/%lld](%lld/%lld), loss: %.4f, lr: %.8f, epoch_time: %.1fmin, tokens/s: %.0f\n",
               (long long)p->epoch + 1, (long long)o.epochs, (long long)step, (long long)steps, p->loss,
               p->learning_rate, seconds_for(p, steps - step) / 60, rate);
    if (live)
        printf("step %lld/%lld  loss %.4f  lr %.6f  %.0f tokens/s  %d:%02d left", (long long)p->step,
               (long long)p->total_steps, p->loss, p->learning_rate, rate, (int)(left / 60), (int)left % 60);
    fflush(stdout);
    return 0;
}

static void stop(int signal_number)
{
    stopped = signal_number;
    mm_trainer_stop(trainer); /* finish the step, save, return; a second signal ends the process at once */
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- The parts of a run --- */

static int32_t small(const char *option, double value)
{
    if (value > INT32_MAX)
        fail("too large: --", option);
    return (int32_t)value;
}

/* Wait for the other processes, where there are some. */
static void meet(void)
{
    int32_t rank = small("rank", o.rank), size = small("world-size", o.world_size);
    if (!o.comm)
        return;
    if (strncmp(o.comm, "local:", 6) == 0) {
        check(mm_comm_local_create(o.comm + 6, rank, size, NULL, &comm));
    } else if (strncmp(o.comm, "tcp:", 4) == 0) {
        check(mm_comm_tcp_create(o.comm + 4, rank, size, NULL, &comm));
#ifdef PRETRAIN_MPI
    } else if (strcmp(o.comm, "mpi") == 0) {
        int level;
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        check(mm_comm_mpi_create(MPI_COMM_WORLD, &comm));
#endif
    } else {
        fail("--comm can be local:PATH, tcp:HOST:PORT or, where MPI was there to build with, mpi; not ", o.comm);
    }
    leads = comm->rank == 0;
}

static void part(void)
{
#ifdef PRETRAIN_MPI
    if (comm && strcmp(o.comm, "mpi") == 0) {
        mm_comm_mpi_free(comm);
        MPI_Finalize();
        return;
    }
#endif
    mm_comm_free(comm);
}

static mm_model *make_model(mm_tokenizer *tokenizer)
{
    mm_config *config = NULL;
    mm_model *model = NULL;
    char path[4096];
    if (strcmp(o.from_weight, "none") != 0) { /* a directory as it stands, or a name that --save-weight gave */
        snprintf(path, sizeof path, "%s/%s", o.save_dir, o.from_weight);
        check(mm_model_load(access(o.from_weight, F_OK) == 0 ? o.from_weight : path, NULL, &model));
        return model;
    }
    check(o.config ? mm_config_load(o.config, &config) : mm_config_create(o.preset, &config));
    check(mm_config_set_int(config, "vocab_size", mm_tokenizer_vocab_size(tokenizer)));
    if (o.hidden_size > 0)
        check(mm_config_set_int(config, "hidden_size", (int64_t)o.hidden_size));
    if (o.num_hidden_layers > 0)
        check(mm_config_set_int(config, "num_hidden_layers", (int64_t)o.num_hidden_layers));
    if (o.use_moe > 0)
        check(mm_config_set_bool(config, "use_moe", 1));
    check(mm_model_create(config, (uint64_t)o.seed, &model));
    mm_config_free(config); /* the model has a copy */
    return model;
}

/* What was left open follows the model's generation. */
static void complete_options(const mm_model *model)
{
    int64_t version = 2;
    if (mm_config_get_int(mm_model_config(model), "minimind_version", &version) != MM_OK)
        version = 2;
    o.epochs = isnan(o.epochs) ? (version == 3 ? 2 : 1) : o.epochs;
    o.save_interval = isnan(o.save_interval) ? (version == 3 ? 1000 : 100) : o.save_interval;
    o.max_seq_len = isnan(o.max_seq_len) ? (version == 3 ? 340 : 512) : o.max_seq_len;
    if (!o.form)
        o.form = o.pack > 0 ? "pack" : version == 3 ? "pad3" : "pad";
    if (!o.schedule)
        o.schedule = version == 3 ? "minimind3" : "minimind2";
    o.log_interval = o.log_interval > 0 ? o.log_interval : 1;
}

/* The place of `name` in a list that ends with NULL. */
static int32_t choose(const char *option, const char *name, const char *const *names)
{
    for (int32_t i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    fprintf(stderr, "pretrain: --%s can't be \"%s\"\n", option, name);
    exit(EXIT_FAILURE);
}

static mm_loader *make_loader(mm_dataset *dataset, mm_tokenizer *tokenizer)
{
    static const char *const forms[] = { "pad", "pad3", "pack", NULL };
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    mm_loader *loader = NULL;
    l.seed = (uint64_t)o.seed;
    if (comm && (int64_t)o.batch_size % comm->size != 0)
        fail("this many ranks can't share it equally: --", "batch-size");
    l.batch = small("batch-size", o.batch_size) / (comm ? comm->size : 1);
    l.rank = comm ? comm->rank : 0;
    l.world = comm ? comm->size : 1;
    l.max_length = small("max-seq-len", o.max_seq_len);
    l.form = choose("form", o.form, forms);
    l.skip_bad_lines = o.skip_bad_lines > 0;
    l.bos_id = mm_tokenizer_find(tokenizer, "<|im_start|>");
    l.eos_id = mm_tokenizer_find(tokenizer, "<|im_end|>");
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    return loader;
}

static mm_trainer *make_trainer(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer)
{
    static const char *const schedules[] = { "constant", "minimind2", "minimind3", "cosine", NULL };
    mm_trainer_options t = MM_TRAINER_OPTIONS_INIT;
    mm_trainer *made = NULL;
    t.output = o.save_dir;
    t.on_step = leads ? show : NULL;
    t.comm = comm;
    t.learning_rate = o.learning_rate;
    t.max_grad_norm = o.grad_clip;
    t.weight_decay = o.weight_decay;
    t.max_seconds = o.max_seconds;
    t.epochs = (int64_t)o.epochs;
    t.max_steps = (int64_t)o.max_steps;
    t.accumulation_steps = (int64_t)o.accumulation_steps;
    t.warmup_steps = (int64_t)o.warmup_steps;
    t.save_interval = (int64_t)o.save_interval;
    t.log_interval = 1; /* show() says less often what it prints */
    t.schedule = choose("schedule", o.schedule, schedules);
    t.keep_last = small("keep-last", o.keep_last);
    t.threads = small("threads", o.threads);
    t.kernels = o.kernels;
    check(mm_trainer_create(model, loader, tokenizer, &t, &made));
    return made;
}

/* Go back to a checkpoint if one is asked for. As with MiniMind, --from-resume 1 on a new directory begins from scratch. */
static void resume(void)
{
    char latest[4096];
    snprintf(latest, sizeof latest, "%s/latest", o.save_dir);
    int automatic = o.resume > 0 || strcmp(o.from_resume, "1") == 0;
    if (strcmp(o.from_resume, "0") == 0 && !automatic)
        return;
    if (automatic && access(latest, F_OK) != 0) {
        if (leads)
            printf("no checkpoint in %s yet: starting from scratch\n", o.save_dir);
        return;
    }
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    check(mm_trainer_resume(trainer, automatic ? o.save_dir : o.from_resume));
    check(mm_trainer_progress(trainer, &p));
    if (leads)
        printf("going on from step %lld of %lld\n", (long long)p.step, (long long)p.total_steps);
}

static void watch(mm_model *model, const mm_tokenizer *tokenizer)
{
    char path[4096], title[4096];
    snprintf(path, sizeof path, "%s/report", o.save_dir);
    snprintf(title, sizeof title, "Pretraining %s/%s", o.save_dir, o.save_weight);
    watch_plan plan = { .program = "pretrain", .title = title, .directory = o.report ? o.report : path };
    plan.prompts = samples;
    plan.count = sample_count;
    plan.max_length = small("max-seq-len", o.max_seq_len);
    plan.threads = small("threads", o.threads);
    plan.kernels = o.kernels;
    watch_open(trainer, model, tokenizer, &plan);
    watch_fact("Rows from", o.data_path);
}

static void run(void)
{
    started = now();
    if (mm_trainer_run(trainer) == MM_OK)
        return;
    clear_line();
    fflush(stdout);
    fprintf(stderr, "pretrain: %s\n", mm_last_error());
    if (mm_trainer_save(trainer) == MM_OK && leads) /* whatever went wrong, what was learnt is kept */
        fprintf(stderr, "pretrain: saved in %s; --from-resume 1 goes on from there\n", o.save_dir);
    exit(EXIT_FAILURE);
}

static void save(const mm_model *model, const mm_tokenizer *tokenizer)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", o.save_dir, o.save_weight);
    check(mm_model_save(model, path));
    check(mm_tokenizer_save(tokenizer, path));
    clear_line();
    printf("the model is in %s\n", path);
    if (stopped)
        printf("stopped before the end: the same command with --from-resume 1 goes on\n");
}

int main(int argc, char **argv)
{
    mm_tokenizer *tokenizer = NULL;
    mm_dataset *dataset = NULL;
    read_options(argc, argv);
    meet();
    live = leads && isatty(STDOUT_FILENO);
    check(mm_tokenizer_load(o.tokenizer, &tokenizer));
    check(mm_dataset_open(o.data_path, &dataset));
    mm_model *model = make_model(tokenizer);
    complete_options(model);
    mm_loader *loader = make_loader(dataset, tokenizer);
    trainer = make_trainer(model, loader, tokenizer);
    mm_param_count count = MM_PARAM_COUNT_INIT;
    check(mm_count_params(mm_model_config(model), &count));
    if (leads)
        printf("%.3fM parameters, %lld rows\n", (double)count.total / 1e6, (long long)mm_dataset_rows(dataset));
    resume();
    if (leads)
        watch(model, tokenizer);
    catch_signals();
    run();

    if (leads) {
        save(model, tokenizer);
        watch_close(trainer);
    }
    mm_trainer_free(trainer);
    mm_loader_free(loader);
    mm_dataset_free(dataset);
    mm_tokenizer_free(tokenizer);
    mm_model_free(model);
    part();
    return EXIT_SUCCESS;
}
