#define _POSIX_C_SOURCE 200809L

#include "common.h"
#include "watch.h"

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
    .dtype = "float32",
    .optimizer = "adamw",
    .lora_alpha = 16,
    .ranks = { .world_size = NAN },
};

/* clang-format off */
static char *unused;
static double nothing;
static const option_row shared[] = {
    { "Model and data", HEADING, NULL, NULL },
    { "data-path", TEXT, &o.data_path, "FILE  rows to learn from, JSON lines" },
    { "validation-path", TEXT, &o.validation_path, "FILE  rows to measure on, which are not learnt" },
    { "skip-bad-lines", FLAG, &o.skip_bad_lines, "      pass over lines that are no rows" },
    { "max-seq-len", COUNT, &o.max_seq_len, "N     tokens per row" },
    { "template", TEXT, &o.template_name, "NAME  of conversations: minimind2, minimind3 or minillm (the tokenizer's)" },
    { "strip-empty-think", FLAG, &o.strip_empty_think, "      learn conversations without MiniMind-3's empty think blocks" },
    { "tokenizer", TEXT, &o.tokenizer, "DIR   with a tokenizer.json (the model's own)" },
    { "from-weight", TEXT, &o.from_weight, "NAME  of a model in SAVE_DIR to begin from, or a model's directory" },
    { "Training", HEADING, NULL, NULL },
    { "epochs", COUNT, &o.epochs, "N" },
    { "batch-size", COUNT, &o.batch_size, "N     rows per step, of all ranks together" },
    { "accumulation-steps", COUNT, &o.accumulation_steps, "N     steps per update of the weights" },
    { "learning-rate", REAL, &o.learning_rate, "X" },
    { "schedule", TEXT, &o.schedule, "NAME  constant, minimind2, minimind3, cosine, linear or wsd (minimind2)" },
    { "warmup-steps", COUNT, &o.warmup_steps, "N     of the schedules cosine, linear and wsd" },
    { "optimizer", TEXT, &o.optimizer, "NAME  adamw or muon" },
    { "weight-decay", REAL, &o.weight_decay, "X" },
    { "grad-clip", REAL, &o.grad_clip, "X     largest norm of the gradients, 0 for any" },
    { "max-steps", COUNT, &o.max_steps, "N     stop after so many steps, 0 for no limit" },
    { "max-seconds", REAL, &o.max_seconds, "X     stop after so long, 0 for no limit" },
    { "eval-interval", COUNT, &o.eval_interval, "N     steps between validations, 0: at the end" },
    { "patience", COUNT, &o.patience, "N     end after so many validations without a better one, 0: never" },
    { "lora-rank", COUNT, &o.lora_rank, "N     learn an adapter of this rank, and leave the model as it is; 0: the model" },
    { "lora-targets", TEXT, &o.lora_targets, "NAMES which projections, * for all, minimind for MiniMind's (the attention's)" },
    { "seed", COUNT, &o.seed, "N" },
    { "dtype", TEXT, &o.dtype, "NAME  what products round their operands to: float32, bfloat16 or float16" },
    { "threads", COUNT, &o.threads, "N     0 for one per core" },
    { "kernels", TEXT, &o.kernels, "NAME  how to compute (the fastest here)" },
    { "Checkpoints and reports", HEADING, NULL, NULL },
    { "save-dir", TEXT, &o.save_dir, "DIR   the model comes to DIR/NAME, checkpoints and report to DIR/NAME.run" },
    { "out-dir", TEXT, &o.save_dir, NULL },
    { "save-weight", TEXT, &o.save_weight, "NAME  this one or, if it has a /, NAME itself instead of DIR/NAME" },
    { "save-interval", COUNT, &o.save_interval, "N     steps between checkpoints" },
    { "keep-last", COUNT, &o.keep_last, "N     checkpoints kept, 0 for all" },
    { "from-resume", TEXT, &o.from_resume, "0|1   1: go on from NAME.run, if there is a checkpoint; or a checkpoint's directory" },
    { "resume", FLAG, &o.resume, "      the same as --from-resume 1; with more --epochs or --max-steps a run becomes longer" },
    { "log-interval", COUNT, &o.log_interval, "N     steps between lines of the log" },
    { "report", TEXT, &o.report, "DIR   curves and samples: report.html, metrics.jsonl, TensorBoard files (NAME.run/report)" },
    { "sample", LIST, &o.samples, "TEXT  a question or a beginning that is put ten times in a run, for the report; up to 8" },
    { "regression", TEXT, &o.regression, "FILE  prompts and what their answers must contain: how many pass, in log and report" },
    { "regression-interval", COUNT, &o.regression_interval, "N     steps between these, 0: ten times in a run" },
    { "Several processes", HEADING, NULL, NULL },
    { "comm", TEXT, &o.ranks.comm, "HOW   train with others: local:PATH, tcp:HOST:PORT of rank 0, or mpi" },
    { "rank", COUNT, &o.ranks.rank, "N     of this process, from 0; not with MPI, which knows it" },
    { "world-size", COUNT, &o.ranks.world_size, "N     processes in all; not with MPI, which knows it" },
    { "device", TEXT, &unused, NULL }, { "num-workers", TEXT, &unused, NULL }, { "use-compile", TEXT, &unused, NULL },
    { "use-wandb", FLAG, &nothing, NULL }, { "wandb-project", TEXT, &unused, NULL },
    { NULL, 0, NULL, NULL },
};
/* clang-format on */

static mm_comm *comm; /* NULL: this process trains alone */
static int leads = 1; /* rank 0 speaks for all */

/* Does a path end in a name? "..", "." and "/" are directories that have theirs elsewhere. */
static int ends_in_a_name(const char *path)
{
    size_t end = strlen(path), begin;
    while (end > 0 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    size_t length = end - begin;
    return length > 2 || strspn(path + begin, ".") < length;
}

void read_options(int argc, char **argv, const char *about, const option_row *own)
{
    read_tables(argc, argv, about, own, shared);
    if (o.check)
        o.check();
    comm = meet(&o.ranks);
    leads = !comm || comm->rank == 0;
    o.log_interval = o.log_interval > 0 ? o.log_interval : 1;
    if (!o.save_dir[0] || !ends_in_a_name(o.save_weight))
        fail("a directory without a name: --", o.save_dir[0] ? "save-weight" : "save-dir");
}

/* --- The parts of a run --- */

/* What this run saves beside what it learns, so that the next stage, in the same --save-dir, leaves it alone. */
static char run_directory[4200];

/* What was learnt is saved as NAME in --save-dir, or where a NAME with a / says. */
static const char *place_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s%s%s", strchr(name, '/') ? "" : o.save_dir, strchr(name, '/') ? "" : "/", name);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    return path;
}

static int holds_a_model(const char *directory)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", directory);
    return access(path, F_OK) == 0;
}

/* A NAME is one of --save-dir, or else a directory, whatever other files have that name. */
static const char *directory_of(const char *where)
{
    const char *saved = place_of(where), *found = holds_a_model(where) && !holds_a_model(saved) ? where : saved;
    if (!holds_a_model(found)) /* else a tokenizer would be looked for in a file of weights */
        fail("no directory of a model, which has a config.json (convert makes one of a .pth or a GGUF): ", found);
    return found;
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
    if (mm_tokenizer_load(o.tokenizer ? o.tokenizer : directory_of(o.from_weight), &tokenizer) != MM_OK)
        fail(mm_last_error(), o.tokenizer ? "; --tokenizer DIR is a directory with a tokenizer.json" : "");
    return tokenizer;
}

static void expect(const mm_config *config, const char *option, const char *key, double wanted)
{
    int64_t value = 0;
    char message[160];
    check(mm_config_get_int(config, key, &value));
    snprintf(message, sizeof message, "%s is %lld in the model of %s, it can't become %.0f", key, (long long)value,
             option, wanted);
    if (wanted > 0 && wanted != (double)value)
        fail(message, "");
}

void expect_shape(const mm_model *model, const char *option, double hidden_size, double num_hidden_layers,
                  double use_moe)
{
    const mm_config *config = mm_model_config(model);
    int32_t has_experts = 0;
    expect(config, option, "hidden_size", hidden_size);
    expect(config, option, "num_hidden_layers", num_hidden_layers);
    mm_status status = mm_config_get_bool(config, "use_moe", &has_experts);
    if (status != MM_ERR_STATE) /* a key that this family of models lacks */
        check(status);
    if (!isnan(use_moe) && (use_moe > 0) != (has_experts > 0)) {
        char message[160];
        snprintf(message, sizeof message, "the model of %s has %sexperts, it takes no --use-moe%s", option,
                 has_experts ? "" : "no ", has_experts ? " 0" : "");
        fail(message, "");
    }
}

/* Rows that teach nothing cost time: say so before hours of it, and don't begin where there are no others. A prompt that has no
 * reference answer is none of them. */
static void tell_of_unlearnt(mm_loader *loader, const mm_dataset *dataset, const char *path)
{
    int64_t rows = mm_dataset_rows(dataset), looked_at = rows < 1000 ? rows : 1000, cut = 0, empty = 0;
    for (int64_t i = 0; i < looked_at; i++) {
        mm_row_report report = MM_ROW_REPORT_INIT;
        int64_t row = i * rows / looked_at; /* evenly from all of them; bad ones are the trainer's affair */
        if (mm_loader_check_row(loader, row, &report) != MM_OK || !(report.remarks & MM_REMARK_UNLEARNT))
            continue;
        cut += (report.remarks & MM_REMARK_CUT) != 0;
        empty += (report.remarks & MM_REMARK_CUT) == 0;
    }
    if (cut > 0)
        printf("%s: nothing to learn within --max-seq-len %.0f tokens in %lld of %lld rows looked at\n", path, o.max_seq_len,
               (long long)cut, (long long)looked_at);
    if (empty > 0)
        printf("%s: nothing to learn, such as an answer, in %lld of %lld rows looked at\n", path, (long long)empty,
               (long long)looked_at);
    if (rows > 0 && cut + empty == rows) {
        fflush(stdout);
        fail("there is nothing to learn in ", path);
    }
}

mm_loader *make_loader(const char *path, mm_tokenizer *tokenizer, int32_t kind, int32_t form)
{
    mm_dataset *dataset = NULL;
    mm_loader *loader = NULL;
    mm_loader_options l = MM_LOADER_OPTIONS_INIT;
    l.seed = (uint64_t)o.seed;
    if (comm && (int64_t)o.batch_size % comm->size != 0)
        fail("this many ranks can't share it equally: --", "batch-size");
    l.batch = small("batch-size", o.batch_size) / (comm ? comm->size : 1);
    l.rank = comm ? comm->rank : 0;
    l.world = comm ? comm->size : 1;
    l.max_length = small("max-seq-len", o.max_seq_len);
    l.kind = kind;
    l.form = form;
    l.template_name = o.template_name;
    l.strip_empty_think = o.strip_empty_think > 0 && kind != MM_ROW_PROMPT;
    if (l.strip_empty_think && kind == MM_ROW_TEXT)
        fail("texts have no think blocks that could be left out, these rows take no --", "strip-empty-think");
    l.trim = 1; /* padding behind the last target costs time and teaches nothing */
    l.skip_bad_lines = o.skip_bad_lines > 0;
    l.bos_id = mm_tokenizer_find(tokenizer, "<|im_start|>");
    l.eos_id = mm_tokenizer_find(tokenizer, "<|im_end|>");
    check(mm_dataset_open(path, &dataset));
    check(mm_loader_create(dataset, tokenizer, &l, &loader));
    if (path == o.data_path)
        o.rows = mm_dataset_rows(dataset);
    if (leads && kind != MM_ROW_PROMPT && form != MM_ROWS_PACK) /* of packed rows nothing is cut */
        tell_of_unlearnt(loader, dataset, path);
    mm_dataset_free(dataset); /* the loader keeps it */
    return loader;
}

static int32_t show(void *user, const mm_train_progress *p);
static int talks;      /* rows are conversations of some kind, not texts */
static int32_t bos_id; /* that they begin with; -1: none */

mm_trainer_options trainer_options(mm_tokenizer *tokenizer, int32_t kind, int32_t form)
{
    static const char *const schedules[] = { "constant", "minimind2", "minimind3", "cosine", "linear", "wsd", NULL };
    static const char *const optimizers[] = { "adamw", "muon", NULL };
    static const char *const dtypes[] = { "float32", "bfloat16", "float16", NULL }; /* MM_F32, MM_BF16, MM_F16 */
    mm_trainer_options t = MM_TRAINER_OPTIONS_INIT;
    talks = kind != MM_ROW_TEXT;
    int begins = talks || form != MM_ROWS_PAD; /* templates begin with it, too */
    bos_id = begins ? mm_tokenizer_find(tokenizer, "<|im_start|>") : -1;
    if (o.lora_targets && !o.from_lora && o.lora_rank < 1)
        fail("only an adapter has targets, and --lora-rank makes one; without it there is no --", "lora-targets");
    for (int32_t i = 0; i < o.samples.count && bos_id < 0 && !talks; i++)
        if (!o.samples.items[i][0])
            fail("padded rows begin with their text, so an empty beginning is none: --", "sample");
    snprintf(run_directory, sizeof run_directory, "%s.run", place_of(o.save_weight));
    t.output = run_directory;
    t.on_step = leads ? show : NULL;
    t.comm = comm;
    t.optimizer = choose("optimizer", o.optimizer, optimizers);
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
    if (o.warmup_steps > 0 && t.schedule < MM_SCHEDULE_COSINE)
        fail("of the schedules cosine, linear and wsd have a warm-up, this one takes no --", "warmup-steps");
    t.keep_last = small("keep-last", o.keep_last);
    t.threads = small("threads", o.threads);
    t.kernels = o.kernels;
    t.compute = choose("dtype", o.dtype, dtypes);
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

static int is_shown(const char *metric)
{
    int found = !o.metrics;
    for (int i = 0; o.metrics && o.metrics[i]; i++)
        found |= strcmp(metric, o.metrics[i]) == 0;
    return found;
}

static void show_metrics(const mm_train_metric *metrics, int64_t count)
{
    for (int64_t i = 0; metrics && i < count; i++)
        if (is_shown(metrics[i].name))
            printf(", %s: %.4f", metrics[i].name, metrics[i].value);
}

static mm_train_progress last; /* step, without its readings, which are lent */
static int64_t printed;       /* the step of the last line */

static void print_step(const mm_train_progress *p)
{
    int whole =
        p->epoch_steps > 0 && p->epoch_steps <= p->total_steps; /* else --max-steps ends it before the epoch does */
    int64_t step = whole ? p->epoch_step : p->step, steps = whole ? p->epoch_steps : p->total_steps;
    printf("Epoch:[%lld/%lld](%lld/%lld), loss: %.4f", (long long)p->epoch + 1, (long long)o.epochs, (long long)step,
           (long long)steps, p->loss);
    show_metrics(p->metrics, p->metric_count);
    printf(", lr: %.4g, epoch_time: %.1fmin, tokens/s: %.0f\n", p->learning_rate, seconds_for(p, steps - step) / 60, rate);
    printed = p->step;
}

/* What lasts: a line at every --log-interval, and one for each validation. */
static void show_lines(const mm_train_progress *p)
{
    if (p->step % (int64_t)o.log_interval == 0 || p->step == p->total_steps)
        print_step(p);
    if (p->evaluated_step == p->step) {
        printf("validation after step %lld: loss: %.4f", (long long)p->step, p->validation_loss);
        show_metrics(p->validation_metrics, p->metric_count);
        printf(", best: %.4f after step %lld\n", p->best_loss, (long long)p->best_step);
    }
}

static struct {
    mm_model *model;
    const mm_tokenizer *tokenizer;
    mm_adapter *adapter;
    int64_t step; /* that the run begins with */
} watched;

static void watch(void);

/* "4:05", "25:04:05". */
static const char *clock_of(double seconds)
{
    static char text[40];
    int64_t s = (int64_t)fmin(seconds, 1e15), hours = s / 3600;
    if (hours > 0)
        snprintf(text, sizeof text, "%lld:%02d:%02d", (long long)hours, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, sizeof text, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

static int32_t show(void *user, const mm_train_progress *p)
{
    (void)user;
    watch(); /* a run that never comes so far leaves the report of the one before as it is */
    rate = rate > 0 ? 0.95 * rate + 0.05 * p->tokens_per_s : p->tokens_per_s;
    char line[160];
    show_moving(stdout, ""); /* it makes room */
    if (o.on_step)
        o.on_step(p);
    show_lines(p);
    watch_step(p);
    last = *p;
    last.metrics = NULL;
    fflush(stdout);
    snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  lr %.3g  %.0f tokens/s  %s left", (long long)p->step,
             (long long)p->total_steps, p->loss, p->learning_rate, rate,
             clock_of(seconds_for(p, p->total_steps - p->step)));
    show_moving(stdout, line);
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
    char latest[4300];
    snprintf(latest, sizeof latest, "%s/latest", run_directory);
    int automatic = o.resume > 0 || strcmp(o.from_resume, "1") == 0;
    if (strcmp(o.from_resume, "0") == 0 && !automatic) {
        if (leads && access(latest, F_OK) == 0)
            printf("%s has an earlier run's checkpoints, which this run's will replace; --from-resume 1 goes on from them\n",
                   run_directory);
        return;
    }
    if (automatic && access(latest, F_OK) != 0) {
        if (leads)
            printf("no checkpoint in %s yet: starting from scratch\n", run_directory);
        return;
    }
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    check(mm_trainer_resume(trainer, automatic ? run_directory : o.from_resume));
    check(mm_trainer_progress(trainer, &p));
    if (leads)
        printf("going on from step %lld of %lld\n", (long long)p.step, (long long)p.total_steps);
}

/* Ctrl-C and a request to end; a terminal that goes, and a reader of the log that goes. These two are left alone where
 * somebody ignores them, as nohup does; and they come again, from the shell and from the system, and with each line, so
 * they don't end the process at once. */
static void on_signals(void (*handler)(int))
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    struct sigaction action = { .sa_handler = handler }, before;
    for (int i = 0; i < 4; i++) {
        action.sa_flags = i < 2 ? (int)SA_RESETHAND : 0;
        sigaction(numbers[i], NULL, &before);
        if (i < 2 || before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

/* Train to the end, or to a signal. */
static void run(void)
{
    const size_t there = part_there(run_directory);
    on_signals(stop);
    started = now();
    if (mm_trainer_run(trainer) == MM_OK)
        return;
    if (leads)
        show_moving(stdout, "");
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program, mm_last_error());
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    int learnt = mm_trainer_progress(trainer, &p) == MM_OK && p.step > watched.step;
    if (learnt && mm_trainer_save(trainer) == MM_OK && leads) /* whatever went wrong, what was learnt is kept */
        fprintf(stderr, "%s: saved in %s; --from-resume 1 goes on from there\n", program, run_directory);
    else if (leads)
        remove_empty(run_directory, there); /* made for nothing */
    exit(EXIT_FAILURE);
}

/* Begin the report, once. */
static void watch(void)
{
    static int begun;
    if (begun++)
        return;
    char path[4300], title[4200];
    snprintf(path, sizeof path, "%s/report", run_directory);
    snprintf(title, sizeof title, "%s: %s", program, place_of(o.save_weight));
    watch_plan plan = { .program = program, .title = title, .directory = o.report ? o.report : path, .chat = talks };
    plan.begun = watched.step;
    plan.adapter = watched.adapter;
    plan.prompts = o.samples.items;
    plan.count = o.samples.count;
    plan.bos_id = bos_id;
    plan.regression = o.regression;
    plan.regression_interval = (int64_t)o.regression_interval;
    plan.max_length = small("max-seq-len", o.max_seq_len);
    plan.threads = small("threads", o.threads);
    plan.kernels = o.kernels;
    plan.template_name = o.template_name;
    watch_open(trainer, watched.model, watched.tokenizer, &plan);
    watch_fact("Rows from", o.data_path);
}

static mm_adapter *make_adapter(mm_model *model)
{
    mm_adapter_options a = MM_ADAPTER_OPTIONS_INIT;
    mm_adapter *adapter = NULL;
    if (o.from_lora) {
        check(mm_adapter_load(model, o.from_lora, &adapter));
    } else if (o.lora_rank > 0) {
        a.targets = o.lora_targets;
        a.rank = small("lora-rank", o.lora_rank);
        a.alpha = o.lora_alpha;
        a.dropout = o.lora_dropout;
        a.seed = (uint64_t)o.seed;
        check(mm_adapter_create(model, &a, &adapter));
    }
    return adapter;
}

static void say_sizes(const mm_model *model, const mm_adapter *adapter)
{
    mm_param_count count = MM_PARAM_COUNT_INIT;
    double small_part = (double)mm_adapter_count_params(adapter);
    check(mm_count_params(mm_model_config(model), &count));
    printf("%.3fM parameters, ", (double)count.total / 1e6);
    if (adapter)
        printf("%.3fM in the adapter (%.2f%%), ", small_part / 1e6, 100 * small_part / (double)count.total);
    printf("%lld rows\n", (long long)o.rows);
}

static void save(const mm_model *model, const mm_tokenizer *tokenizer, const mm_adapter *adapter)
{
    const char *path = place_of(o.save_weight), *what = adapter ? "adapter" : "model";
    char kept[4300];
    mm_status status = adapter ? mm_adapter_save(adapter, path) : mm_model_save(model, path);
    if (!adapter && status == MM_OK)
        status = mm_tokenizer_save(tokenizer, path);
    snprintf(kept, sizeof kept, "; what was learnt is in %s, and --from-resume 1 saves the %s", run_directory, what);
    if (status != MM_OK)
        fail(mm_last_error(), kept);
    printf("the %s is in %s\n", what, path);
}

/* How many validations in a row were no better than the best one, also when some of them are an earlier run's. */
static int64_t worse(const mm_train_progress *p)
{
    int64_t interval = (int64_t)o.eval_interval;
    return interval > 0 ? p->evaluated_step / interval - p->best_step / interval : 0;
}

/* One line on why there are fewer steps than were asked for. Packed rows are not always counted before they are read:
 * it is the data that ended them where nothing else did. */
static void say_what_ended_it(const mm_train_progress *p, double seconds)
{
    static const char again[] = "the same command with --from-resume 1 goes on";
    int64_t wanted = o.max_steps > (double)p->total_steps ? (int64_t)o.max_steps : p->total_steps;
    int read = p->epoch_steps > 0 && p->epoch + 1 >= (int64_t)o.epochs && p->epoch_step >= p->epoch_steps;
    if (p->step >= wanted)
        return;
    if (stopped && p->step < p->total_steps)
        printf("stopped before the end: %s\n", again);
    else if (!read && o.patience > 0 && worse(p) >= (int64_t)o.patience)
        printf("stopped before the end: no better validation in %.0f; the model is the last one, the best, after step "
               "%lld, is in %s/step-%lld\n",
               o.patience, (long long)p->best_step, run_directory, (long long)p->best_step);
    else if (!read && o.max_seconds > 0 && seconds >= o.max_seconds)
        printf("stopped before the end: --max-seconds %g are over; %s\n", o.max_seconds, again);
    else if (!read && comm)
        printf("stopped before the end: another rank asked for it, or the data ended; %s\n", again);
    else
        printf("the data ended after %lld of %lld steps\n", (long long)p->step, (long long)wanted);
}

void train(mm_model *model, mm_loader *loader, mm_tokenizer *tokenizer, const mm_trainer_options *options)
{
    mm_trainer_options t = *options;
    if (leads) {
        watch_check(o.report, o.regression);
        must_take_files("", place_of(o.save_weight)); /* rather now than behind the last step */
    }
    t.adapter = make_adapter(model);
    check(mm_trainer_create(model, loader, tokenizer, &t, &trainer));
    if (leads)
        say_sizes(model, t.adapter);
    resume();
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    check(mm_trainer_progress(trainer, &p));
    watched.model = model;
    watched.tokenizer = tokenizer;
    watched.adapter = t.adapter;
    watched.step = p.step;
    run();
    double seconds = now() - started;
    check(mm_trainer_progress(trainer, &p));
    if (leads) {
        if (watched.step > 0) /* where nothing was left to do, a report may lack its end */
            watch();
        show_moving(stdout, "");
        if (last.step > printed)
            print_step(&last);
        save(model, tokenizer, t.adapter);
        watch_close(trainer);
        say_what_ended_it(&p, seconds);
    }
    on_signals(SIG_DFL); /* stop() needs a trainer; it is not at work, as the library's threads take no signals */
    mm_trainer_free(trainer);
    mm_loader_free(t.validation);
    mm_adapter_free(t.adapter);
    part(comm, &o.ranks);
}
