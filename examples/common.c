#define _POSIX_C_SOURCE 200809L

#include "common.h"
#include "watch.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

settings o = {
    .save_dir = "out",
    .from_weight = "none",
    .from_resume = "0",
    .epochs = 1,
    .batch_size = 32,
    .learning_rate = 5e-4,
    .accumulation_steps = 1,
    .grad_clip = 1,
    .weight_decay = 0.01,
    .log_interval = 100,
    .save_interval = 100,
    .keep_last = 2,
    .max_seq_len = 512,
    .seed = 42,
};

/* clang-format off */
static char *unused;
static double nothing;
static char *report, *sample;
static const char *samples[8];
static int32_t sample_count;
static const option_row shared[] = {
    { "data-path", TEXT, &o.data_path, "FILE  rows to learn from, JSON lines" },
    { "validation-path", TEXT, &o.validation_path, "FILE  rows to measure on, which are not learnt" },
    { "tokenizer", TEXT, &o.tokenizer, "DIR   with a tokenizer.json (the model's own)" },
    { "save-dir", TEXT, &o.save_dir, "DIR   checkpoints and the model come here" },
    { "out-dir", TEXT, &o.save_dir, NULL },
    { "save-weight", TEXT, &o.save_weight, "NAME  the model is saved as SAVE_DIR/NAME, or where a path from / on says" },
    { "from-weight", TEXT, &o.from_weight, "NAME  of a saved model to begin from, or its directory" },
    { "from-resume", TEXT, &o.from_resume, "0|1   1: go on from SAVE_DIR, if there is a checkpoint; or its directory" },
    { "resume", FLAG, &o.resume, "      the same as --from-resume 1" },
    { "epochs", COUNT, &o.epochs, "N" },
    { "batch-size", COUNT, &o.batch_size, "N     rows per step" },
    { "learning-rate", REAL, &o.learning_rate, "X" },
    { "accumulation-steps", COUNT, &o.accumulation_steps, "N     steps per update of the weights" },
    { "grad-clip", REAL, &o.grad_clip, "X     largest norm of the gradients, 0 for any" },
    { "weight-decay", REAL, &o.weight_decay, "X" },
    { "schedule", TEXT, &o.schedule, "NAME  constant, minimind2, minimind3, cosine, linear or wsd (the model's)" },
    { "warmup-steps", COUNT, &o.warmup_steps, "N     of the schedules cosine, linear and wsd" },
    { "max-steps", COUNT, &o.max_steps, "N     stop after so many steps, 0 for no limit" },
    { "max-seconds", REAL, &o.max_seconds, "X     stop after so long, 0 for no limit" },
    { "log-interval", COUNT, &o.log_interval, "N     steps between lines of the log" },
    { "save-interval", COUNT, &o.save_interval, "N     steps between checkpoints" },
    { "eval-interval", COUNT, &o.eval_interval, "N     steps between validations, 0: at the end" },
    { "patience", COUNT, &o.patience, "N     end after so many validations without a better one, 0: never" },
    { "keep-last", COUNT, &o.keep_last, "N     checkpoints kept, 0 for all" },
    { "max-seq-len", COUNT, &o.max_seq_len, "N     tokens per row" },
    { "template", TEXT, &o.template_name, "NAME  of conversations: minimind2, minimind3 or minillm (the tokenizer's)" },
    { "seed", COUNT, &o.seed, "N" },
    { "threads", COUNT, &o.threads, "N     0 for one per processor" },
    { "kernels", TEXT, &o.kernels, "NAME  how to compute (the fastest here)" },
    { "report", TEXT, &report, "DIR   curves and samples: report.html, metrics.jsonl, TensorBoard files (SAVE_DIR/report)" },
    { "sample", TEXT, &sample, "TEXT  a question that is asked ten times in a run, for the report; up to 8 of them" },
    { "skip-bad-lines", FLAG, &o.skip_bad_lines, "      pass over lines that are no rows" },
    { "device", TEXT, &unused, NULL }, { "dtype", TEXT, &unused, NULL }, { "num-workers", TEXT, &unused, NULL },
    { "use-compile", TEXT, &unused, NULL }, { "use-wandb", FLAG, &nothing, NULL }, { "wandb-project", TEXT, &unused, NULL },
    { NULL, 0, NULL, NULL },
};
/* clang-format on */

static const char *program = "example";

void fail(const char *what, const char *which)
{
    fprintf(stderr, "%s: %s%s\n", program, what, which);
    exit(EXIT_FAILURE);
}

void check(mm_status status)
{
    if (status != MM_OK)
        fail(mm_last_error(), "");
}

/* --- Options --- */

static void show_default(const option_row *row)
{
    if (row->kind == TEXT && *(char **)row->to)
        printf(" (%s)", *(char **)row->to);
    else if ((row->kind == COUNT || row->kind == REAL) && !isnan(*(double *)row->to))
        printf(" (%g)", *(double *)row->to);
    putchar('\n');
}

static void help(const char *about, const option_row *own)
{
    printf("usage: %s [OPTION VALUE]...\n\n%s Ctrl-C saves and stops.\n\n", program, about);
    for (int table = 0; table < 2; table++)
        for (const option_row *row = table ? shared : own; row->name; row++)
            if (row->help) {
                printf("  --%-19s %s", row->name, row->help);
                show_default(row);
            }
    puts("\n--device, --dtype, --num-workers, --use-compile, --use-wandb and --wandb-project are taken\n"
         "as MiniMind takes them, and have no effect here.");
}

static double read_number(const option_row *row, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0) || value > 9e15 || (row->kind == COUNT && value != floor(value)))
        fail(row->kind == COUNT ? "not a whole number from 0 up, but asked for by --" : "not a number from 0 up: --",
             row->name);
    return value;
}

static void take(const option_row *row, char *value)
{
    if (row->kind == TEXT)
        *(char **)row->to = value;
    else
        *(double *)row->to = row->kind == FLAG ? 1 : read_number(row, value);
}

void read_options(int argc, char **argv, const char *about, const option_row *own)
{
    const option_row *rows[96];
    struct option table[97] = { { NULL, 0, NULL, 0 } };
    int count = 0, which, found;
    for (int t = 0; t < 2; t++)
        for (const option_row *row = t ? shared : own; row->name && count < 95; row++) {
            rows[count] = row;
            table[count++] = (struct option){ row->name, row->kind == FLAG ? no_argument : required_argument, NULL, 0 };
        }
    table[count] = (struct option){ "help", no_argument, NULL, 0 };
    for (int i = 1; i < argc; i++)
        for (char *c = argv[i]; strncmp(argv[i], "--", 2) == 0 && *c && *c != '='; c++)
            *c = *c == '_' ? '-' : *c;
    program = argv[0] = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    while ((found = getopt_long(argc, argv, "", table, &which)) != -1) {
        if (found != 0)
            exit(EXIT_FAILURE); /* getopt_long has said why */
        if (which == count) {
            help(about, own);
            exit(EXIT_SUCCESS);
        }
        take(rows[which], optarg);
        if (rows[which]->to == &sample && sample_count < 8)
            samples[sample_count++] = optarg;
    }
    if (optind < argc)
        fail("no such option, --help lists them: ", argv[optind]);
}

int32_t choose(const char *option, const char *name, const char *const *names)
{
    for (int32_t i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    fprintf(stderr, "%s: --%s can't be \"%s\"\n", program, option, name);
    exit(EXIT_FAILURE);
}

static int32_t small(const char *option, double value)
{
    if (value > INT32_MAX)
        fail("too large: --", option);
    return (int32_t)value;
}

/* --- The parts of a run --- */

static const char *directory_of(const char *where)
{
    static char path[4096];
    if (access(where, F_OK) == 0)
        return where;
    snprintf(path, sizeof path, "%s/%s", o.save_dir, where);
    return path;
}

mm_model *load_model(const char *where)
{
    mm_model *model = NULL;
    check(mm_model_load(directory_of(where), NULL, &model));
    return model;
}

mm_tokenizer *load_tokenizer(void)
{
    mm_tokenizer *tokenizer = NULL;
    check(mm_tokenizer_load(o.tokenizer ? o.tokenizer : directory_of(o.from_weight), &tokenizer));
    return tokenizer;
}

mm_loader *make_loader(const char *path, mm_tokenizer *tokenizer, int32_t kind, int32_t form)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    l.seed = (uint64_t)o.seed;
    l.batch = small("batch-size", o.batch_size);
    l.max_length = small("max-seq-len", o.max_seq_len);
    l.kind = kind;
    l.form = form;
    l.template_name = o.template_name;
    l.skip_bad_lines = o.skip_bad_lines > 0;
    l.bos_id = mm_tokenizer_find(tokenizer, "<|im_start|>");
    l.eos_id = mm_tokenizer_find(tokenizer, "<|im_end|>");
    check(mm_dataset_open(path, &dataset));
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    mm_dataset_free(dataset); /* the loader keeps it */
    return loader;
}

static int32_t show(void *user, const mm_train_progress *p);
static int live; /* standard output is a terminal: a line that moves */

mm_trainer_options trainer_options(mm_tokenizer *tokenizer, int32_t kind, int32_t form)
{
    static const char *const schedules[] = { "constant", "minimind2", "minimind3", "cosine", "linear", "wsd", NULL };
    mm_trainer_options t = MM_TRAINER_OPTIONS_INIT;
    live = isatty(STDOUT_FILENO);
    o.log_interval = o.log_interval > 0 ? o.log_interval : 1;
    t.output = o.save_dir;
    t.on_step = show;
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
    t.schedule = choose("schedule", o.schedule ? o.schedule : "minimind2", schedules);
    t.keep_last = small("keep-last", o.keep_last);
    t.threads = small("threads", o.threads);
    t.kernels = o.kernels;
    t.eval_interval = (int64_t)o.eval_interval;
    t.patience = (int64_t)o.patience;
    t.background_save = 1;
    if (o.validation_path) {
        t.validation = make_loader(o.validation_path, tokenizer, kind, form);
        t.keep_best = 1;
    }
    return t;
}

/* --- The log --- */

static mm_trainer *trainer; /* for the signal handler */
static volatile sig_atomic_t stopped;
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

static void show_metrics(const mm_train_metric *metrics, int64_t count)
{
    for (int64_t i = 0; metrics && i < count; i++)
        printf(", %s: %.4f", metrics[i].name, metrics[i].value);
}

/* What lasts: a line at every --log-interval, and one for each validation. */
static void show_lines(const mm_train_progress *p)
{
    static int64_t evaluations;
    int whole =
        p->epoch_steps > 0 && p->epoch_steps <= p->total_steps; /* else --max-steps ends it before the epoch does */
    int64_t step = whole ? p->epoch_step : p->step, steps = whole ? p->epoch_steps : p->total_steps;
    if (p->step % (int64_t)o.log_interval == 0 || p->step == p->total_steps) {
        printf("Epoch:[%lld/%lld](%lld/%lld), loss: %.4f", (long long)p->epoch + 1, (long long)o.epochs,
               (long long)step, (long long)steps, p->loss);
        show_metrics(p->metrics, p->metric_count);
        printf(", lr: %.8f, epoch_time: %.1fmin, tokens/s: %.0f\n", p->learning_rate, seconds_for(p, steps - step) / 60,
               rate);
    }
    if (p->evaluations > evaluations) {
        printf("validation after step %lld: loss: %.4f", (long long)p->step, p->validation_loss);
        show_metrics(p->validation_metrics, p->metric_count);
        printf(", best: %.4f after step %lld\n", p->best_loss, (long long)p->best_step);
    }
    evaluations = p->evaluations;
}

static int32_t show(void *user, const mm_train_progress *p)
{
    (void)user;
    rate = rate > 0 ? 0.95 * rate + 0.05 * p->tokens_per_s : p->tokens_per_s;
    double left = seconds_for(p, p->total_steps - p->step);
    if (live)
        printf("\r\033[K"); /* the moving line makes room */
    watch_step(p);
    show_lines(p);
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

/* --- The run --- */

/* Go back to a checkpoint if one is asked for. As with MiniMind, --from-resume 1 on a new directory begins from
 * scratch. */
static void resume(void)
{
    char latest[4096];
    snprintf(latest, sizeof latest, "%s/latest", o.save_dir);
    int automatic = o.resume > 0 || strcmp(o.from_resume, "1") == 0;
    if (strcmp(o.from_resume, "0") == 0 && !automatic)
        return;
    if (automatic && access(latest, F_OK) != 0) {
        printf("no checkpoint in %s yet: starting from scratch\n", o.save_dir);
        return;
    }
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    check(mm_trainer_resume(trainer, automatic ? o.save_dir : o.from_resume));
    check(mm_trainer_progress(trainer, &p));
    printf("going on from step %lld of %lld\n", (long long)p.step, (long long)p.total_steps);
}

static void run(void)
{
    struct sigaction action = { .sa_handler = stop, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    started = now();
    if (mm_trainer_run(trainer) == MM_OK)
        return;
    printf("%s", live ? "\r\033[K" : "");
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program, mm_last_error());
    if (mm_trainer_save(trainer) == MM_OK) /* whatever went wrong, what was learnt is kept */
        fprintf(stderr, "%s: saved in %s; --from-resume 1 goes on from there\n", program, o.save_dir);
    exit(EXIT_FAILURE);
}

static void watch(mm_model *model, const mm_tokenizer *tokenizer)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/report", o.save_dir);
    watch_plan plan = { .program = program, .title = o.save_weight, .directory = report ? report : path, .chat = 1 };
    plan.prompts = samples;
    plan.count = sample_count;
    plan.max_length = small("max-seq-len", o.max_seq_len);
    plan.threads = small("threads", o.threads);
    plan.kernels = o.kernels;
    plan.template_name = o.template_name;
    watch_open(trainer, model, tokenizer, &plan);
    watch_fact("Rows from", o.data_path);
}

void train(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer, const mm_trainer_options *options)
{
    char path[4096];
    mm_param_count count = MM_PARAM_COUNT_INIT;
    check(mm_trainer_create(model, loader, tokenizer, options, &trainer));
    check(mm_count_params(mm_model_config(model), &count));
    printf("%.3fM parameters\n", (double)count.total / 1e6);
    resume();
    watch(model, tokenizer);
    run();
    if (o.save_weight[0] == '/')
        snprintf(path, sizeof path, "%s", o.save_weight);
    else
        snprintf(path, sizeof path, "%s/%s", o.save_dir, o.save_weight);
    check(mm_model_save(model, path));
    check(mm_tokenizer_save(tokenizer, path));
    printf("%sthe model is in %s\n", live ? "\r\033[K" : "", path);
    watch_close(trainer);
    if (stopped)
        printf("stopped before the end: the same command with --from-resume 1 goes on\n");
    mm_trainer_free(trainer);
    mm_loader_free(options->validation);
}
