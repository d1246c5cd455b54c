/* Checks the library against cases of exact inputs and outputs: build/tests/golden CASE_DIR...
 *
 * A case is a directory with config.json, model.safetensors, inputs.safetensors, expected.safetensors and case.json,
 * whose tolerances decide. Every kernel path of this build and processor runs it, with 1 and 2 threads; it passes only
 * if all do. (With MM_CPU and MM_TEST_OTHER, every path that it does not meet without them.) */
#define _GNU_SOURCE /* getopt_long */

#include <getopt.h>
#include <math.h>
#include <minimind.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include "others.h"

typedef struct tolerances {
    double logits_rel, grad_rel, grad_floor, train_loss_rel, final_rel, final_grad_floor;
} tolerances;

typedef struct golden {
    const char *directory;
    const char *name;
    mmi_json *info; /* case.json */
    mmi_st_file inputs, expected;
    tolerances tol;
    int32_t *ids, *targets, *mask; /* mask NULL: none */
    int64_t B, T, steps;
} golden;

/* The worst seen over all paths. */
typedef struct report {
    bool failed, unsupported;
    double logits, grad, train_loss, final;
    char worst_grad[128];
    const char *greedy; /* "yes", "no", "-" */
    char why[1024];
} report;

typedef struct choice {
    char kernels[256]; /* comma separated; empty: all */
    int threads;       /* 0: 1 and 2 */
} choice;

static void blame(report *r, const char *path, int threads, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!r->failed)
        snprintf(r->why, sizeof r->why, "%s, %d thread%s: %s", path, threads, threads == 1 ? "" : "s", text);
    r->failed = true;
}

/* --- Reading a case --- */

static const mmi_st_entry *entry(const mmi_st_file *file, const char *prefix, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return mmi_st_find(file, full);
}

/* NULL unless the file has as many of them. */
static int32_t *read_ints(const mmi_st_file *file, const char *name, int64_t count)
{
    const mmi_st_entry *e = mmi_st_find(file, name);
    if (!e || e->dtype != MM_I64 || e->elements != count)
        return NULL;
    int32_t *out = mmi_alloc((size_t)e->elements, sizeof *out);
    for (int64_t i = 0; out && i < e->elements; i++) {
        int64_t value;
        memcpy(&value, (const char *)e->data + 8 * i, 8);
        out[i] = (int32_t)value;
    }
    return out;
}

static double number(const golden *g, const char *group, const char *key)
{
    return mmi_json_number(mmi_json_get(mmi_json_get(g->info, group), key), NAN);
}

static void close_case(golden *g)
{
    mmi_json_free(g->info);
    mmi_st_close(&g->inputs);
    mmi_st_close(&g->expected);
    mmi_free(g->ids);
    mmi_free(g->targets);
    mmi_free(g->mask);
}

static mm_status open_file(const char *directory, const char *name, mmi_st_file *out)
{
    char *path = mmi_path_join(directory, name);
    mm_status status = path ? mmi_st_open(path, out) : MM_ERR_MEMORY;
    mmi_free(path);
    return status;
}

static bool has_floats(const mmi_st_file *file, const char *name, int64_t at_least)
{
    const mmi_st_entry *e = mmi_st_find(file, name);
    return e && e->dtype == MM_F32 && e->elements >= at_least;
}

/* Without any of these a case would say nothing, or what lies behind a tensor would be read. */
static mm_status read_case(golden *g)
{
    const mmi_st_entry *shape = mmi_st_find(&g->inputs, "input_ids");
    bool masked = mmi_st_find(&g->inputs, "attention_mask") != NULL;
    if (!shape || shape->rank != 2)
        return mmi_fail(MM_ERR_FORMAT, "input_ids is missing, or no [B, T]");
    g->B = shape->shape[0];
    g->T = shape->shape[1];
    g->ids = read_ints(&g->inputs, "input_ids", g->B * g->T);
    g->targets = read_ints(&g->inputs, "targets", g->B * g->T);
    g->mask = masked ? read_ints(&g->inputs, "attention_mask", g->B * g->T) : NULL;
    if (!g->ids || !g->targets || (masked && !g->mask))
        return mmi_fail(MM_ERR_FORMAT, "input_ids, targets and attention_mask are not I64 of one shape");
    g->steps = mmi_json_int(mmi_json_get(g->info, "train_steps"), 0);
    if (g->steps < 1 || !has_floats(&g->expected, "train_losses", g->steps) ||
        !has_floats(&g->expected, "grad_norm", 1) || !has_floats(&g->expected, "logits", 1))
        return mmi_fail(MM_ERR_FORMAT, "there are no train_steps, train_losses, grad_norm or logits to compare");
    return MM_OK;
}

static mm_status open_case(const char *directory, golden *g)
{
    *g = (golden){ .directory = directory, .name = directory };
    char *path = mmi_path_join(directory, "case.json");
    mm_status status = path ? mmi_json_read_file(path, &g->info) : MM_ERR_MEMORY;
    mmi_free(path);
    if (status == MM_OK)
        status = open_file(directory, "inputs.safetensors", &g->inputs);
    if (status == MM_OK)
        status = open_file(directory, "expected.safetensors", &g->expected);
    if (status != MM_OK)
        return status;
    const char *name = mmi_json_string(mmi_json_get(g->info, "name"), NULL);
    g->name = name ? name : directory;
    g->tol = (tolerances){ number(g, "tolerances", "logits_rel"), number(g, "tolerances", "grad_rel"),
                           number(g, "tolerances", "grad_floor"), number(g, "tolerances", "train_loss_rel"),
                           number(g, "tolerances", "final_rel"),  number(g, "tolerances", "final_grad_floor") };
    return read_case(g);
}

static float expected_at(const mmi_st_entry *e, int64_t i)
{
    float value;
    memcpy(&value, (const char *)e->data + 4 * i, 4);
    return value;
}

/* --- Comparing --- */

/* An error relative to max(‖b‖, floor), with NaN counted as the worst. */
static double relative(double difference2, double size2, double floor)
{
    double size = fmax(sqrt(size2), floor), difference = sqrt(difference2);
    if (isnan(difference) || isnan(size))
        return INFINITY;
    if (difference == 0)
        return 0;
    return size > 0 ? difference / size : INFINITY;
}

static double scalar_error(double got, const mmi_st_entry *e, int64_t i)
{
    double want = expected_at(e, i);
    return relative((got - want) * (got - want), want * want, 0);
}

static double logits_error(const golden *g, const mm_view *v)
{
    const mmi_st_entry *e = mmi_st_find(&g->expected, "logits");
    int64_t V = v->shape[2];
    double difference = 0, size = 0;
    if (e->elements != g->B * g->T * V)
        return INFINITY;
    for (int64_t row = 0; row < g->B * g->T; row++) {
        if (g->mask && g->mask[row] == 0)
            continue;
        for (int64_t i = row * V; i < (row + 1) * V; i++) {
            double want = expected_at(e, i), d = ((const float *)v->data)[i] - want;
            difference += d * d;
            size += want * want;
        }
    }
    return relative(difference, size, 0);
}

static double tensor_error(const float *got, const mmi_st_entry *e, const mmi_st_entry *grad, double grad_at_least,
                           double floor)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < e->elements; i++) {
        if (grad) {
            float slope = expected_at(grad, i);
            if (slope != 0 && fabs(slope) < grad_at_least)
                continue;
        }
        double want = expected_at(e, i), d = got[i] - want;
        difference += d * d;
        size += want * want;
    }
    return relative(difference, size, floor);
}

static bool is_skipped(const golden *g, const char *name)
{
    const mmi_json *list = mmi_json_get(g->info, "final_skip");
    for (size_t i = 0; i < mmi_json_size(list); i++) {
        const char *skipped = mmi_json_string(mmi_json_at(list, i), NULL);
        if (skipped && strcmp(skipped, name) == 0)
            return true;
    }
    return false;
}

/* --- One path --- */

typedef struct trial {
    const golden *g;
    report *r;
    const char *path;
    int threads;
    mm_model *model;
    mm_context *ctx;
    mm_optimizer *optimizer;
} trial;

#define BLAME(t, ...) blame((t)->r, (t)->path, (t)->threads, __VA_ARGS__)

static void keep_worst(double *worst, double error)
{
    if (error > *worst)
        *worst = error;
}

static void check_scalar(trial *t, const char *name, double got, double tolerance)
{
    const mmi_st_entry *e = mmi_st_find(&t->g->expected, name);
    double error = e ? scalar_error(got, e, 0) : INFINITY;
    if (!(error <= tolerance))
        BLAME(t, "%s is %.9g, expected %.9g", name, got, e ? expected_at(e, 0) : NAN);
}

static bool forward(trial *t, mm_output *out)
{
    mm_batch batch = MM_BATCH_INIT;
    batch.ids = t->g->ids;
    batch.targets = t->g->targets;
    batch.attention_mask = t->g->mask;
    batch.batch = (int32_t)t->g->B;
    batch.length = (int32_t)t->g->T;
    batch.mode = MM_TRAIN;
    if (mm_forward(t->ctx, &batch, out) == MM_OK)
        return true;
    BLAME(t, "forward: %s", mm_last_error());
    return false;
}

static void check_gradients(trial *t)
{
    const golden *g = t->g;
    double norm = 0;
    mm_grad_norm(t->ctx, &norm);
    check_scalar(t, "grad_norm", norm, g->tol.grad_rel);
    const mmi_st_entry *expected_norm = mmi_st_find(&g->expected, "grad_norm");
    double floor = g->tol.grad_floor * (expected_norm ? expected_at(expected_norm, 0) : NAN);
    for (int64_t i = 0; i < mm_model_tensor_count(t->model); i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view grad;
        mm_layout_get(mm_model_config(t->model), i, &info);
        mm_grad(t->ctx, i, &grad);
        const mmi_st_entry *e = entry(&g->expected, "grad.", info.name);
        double error = e && e->elements == info.elements ? tensor_error(grad.data, e, NULL, 0, floor) : INFINITY;
        if (error > t->r->grad) {
            t->r->grad = error;
            snprintf(t->r->worst_grad, sizeof t->r->worst_grad, "%s", info.name);
        }
        if (!(error <= g->tol.grad_rel))
            BLAME(t, "gradient of %s is off by %.3g", info.name, error);
    }
}

static void check_first_step(trial *t, const mm_output *out)
{
    const golden *g = t->g;
    double error = logits_error(g, &out->logits);
    keep_worst(&t->r->logits, error);
    if (!(error <= g->tol.logits_rel))
        BLAME(t, "logits are off by %.3g", error);
    check_scalar(t, "loss", out->loss, g->tol.train_loss_rel);
    check_scalar(t, "aux_loss", out->aux_loss, g->tol.train_loss_rel);
    check_scalar(t, "total_loss", out->loss + out->aux_loss, g->tol.train_loss_rel);
    check_gradients(t);
}

static void check_final(trial *t)
{
    const golden *g = t->g;
    const mmi_st_entry *norm = mmi_st_find(&g->expected, "grad_norm");
    double at_least = g->tol.final_grad_floor * expected_at(norm, 0);
    for (int64_t i = 0; i < mm_model_tensor_count(t->model); i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        mm_view w;
        mm_layout_get(mm_model_config(t->model), i, &info);
        mm_model_tensor(t->model, i, &w);
        const mmi_st_entry *e = entry(&g->expected, "final.", info.name);
        if (is_skipped(g, info.name))
            continue;
        double error = INFINITY;
        if (e && e->elements == info.elements)
            error = tensor_error(w.data, e, entry(&g->expected, "grad.", info.name), at_least, 0);
        keep_worst(&t->r->final, error);
        if (!(error <= g->tol.final_rel))
            BLAME(t, "final %s is off by %.3g", info.name, error);
    }
}

static void check_training(trial *t)
{
    const golden *g = t->g;
    const mmi_st_entry *curve = mmi_st_find(&g->expected, "train_losses");
    mm_step step = MM_STEP_INIT;
    step.learning_rate = number(g, "adamw", "lr");
    step.max_grad_norm = number(g, "adamw", "clip_grad_norm");
    double difference = 0, size = 0;
    for (int64_t i = 0; i < g->steps; i++) {
        mm_output out = MM_OUTPUT_INIT;
        mm_zero_grad(t->ctx);
        if (!forward(t, &out))
            return;
        if (mm_backward(t->ctx, NULL) != MM_OK) {
            BLAME(t, "backward: %s", mm_last_error());
            return;
        }
        if (i == 0)
            check_first_step(t, &out);
        if (mm_optimizer_step(t->optimizer, t->ctx, &step) != MM_OK) {
            BLAME(t, "optimizer: %s", mm_last_error());
            return;
        }
        double want = expected_at(curve, i), d = out.loss + out.aux_loss - want;
        difference += d * d;
        size += want * want;
    }
    double error = relative(difference, size, 0);
    keep_worst(&t->r->train_loss, error);
    if (!(error <= g->tol.train_loss_rel))
        BLAME(t, "training losses are off by %.3g", error);
    check_final(t);
}

static void check_greedy(trial *t)
{
    const golden *g = t->g;
    const mmi_json *greedy = mmi_json_get(g->info, "greedy");
    if (mmi_json_what(greedy) != MMI_JSON_OBJECT)
        return;
    int32_t prompt_length = (int32_t)mmi_json_int(mmi_json_get(greedy, "prompt_len"), 0);
    int32_t new_tokens = (int32_t)mmi_json_int(mmi_json_get(greedy, "new_tokens"), 0);
    int32_t *want = read_ints(&g->expected, "greedy", new_tokens);
    mm_model *model = NULL; /* fresh weights: the trial's were trained */
    mm_context *ctx = NULL;
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.max_length = prompt_length;
    o.max_context = prompt_length + new_tokens;
    o.threads = t->threads;
    o.kernels = t->path;
    mm_sampling sampling = MM_SAMPLING_INIT;
    sampling.temperature = 0;
    mm_generate_options how = MM_GENERATE_OPTIONS_INIT;
    how.prompts = (const int32_t *const[]){ g->ids };
    how.prompt_lengths = &prompt_length;
    how.stop_ids = &prompt_length; /* with count 0: nothing stops */
    how.sampling = &sampling;
    how.max_new_tokens = new_tokens;
    mm_generate_result made = MM_GENERATE_RESULT_INIT;
    bool same = want && mm_model_load(g->directory, NULL, &model) == MM_OK &&
                mm_context_create(model, &o, &ctx) == MM_OK && mm_generate(ctx, &how, &made) == MM_OK;
    if (!same)
        BLAME(t, "greedy: %s", mm_last_error());
    else if (made.lengths[0] != new_tokens || memcmp(made.ids, want, (size_t)new_tokens * sizeof *want) != 0) {
        same = false;
        BLAME(t, "greedy tokens differ");
    }
    if (!t->r->greedy || !same)
        t->r->greedy = same ? "yes" : "no";
    mm_context_free(ctx);
    mm_model_free(model);
    mmi_free(want);
}

static mm_status start_trial(trial *t)
{
    const golden *g = t->g;
    mm_context_options o = MM_CONTEXT_OPTIONS_INIT;
    o.mode = MM_TRAIN;
    o.max_batch = (int32_t)g->B;
    o.max_length = (int32_t)g->T;
    o.outputs = MM_OUT_LOSS | MM_OUT_LOGITS;
    o.threads = t->threads;
    o.kernels = t->path;
    mm_adamw_options adamw = MM_ADAMW_OPTIONS_INIT;
    adamw.beta1 = number(g, "adamw", "beta1");
    adamw.beta2 = number(g, "adamw", "beta2");
    adamw.eps = number(g, "adamw", "eps");
    adamw.weight_decay = number(g, "adamw", "weight_decay");
    mm_status status = mm_model_load(g->directory, NULL, &t->model);
    if (status == MM_OK)
        status = mm_context_create(t->model, &o, &t->ctx);
    if (status == MM_OK)
        status = mm_adamw_create(t->model, &adamw, &t->optimizer);
    return status;
}

static void run_trial(const golden *g, report *r, const char *path, int threads)
{
    trial t = { .g = g, .r = r, .path = path, .threads = threads };
    mm_status status = start_trial(&t);
    if (status != MM_OK) {
        r->unsupported |= status == MM_ERR_UNSUPPORTED;
        BLAME(&t, "%s", mm_last_error());
    } else {
        check_training(&t);
        check_greedy(&t);
    }
    mm_optimizer_free(t.optimizer);
    mm_context_free(t.ctx);
    mm_model_free(t.model);
}

/* --- The program --- */

static bool is_chosen(const choice *c, const char *path)
{
    if (c->kernels[0] == '\0')
        return true;
    size_t n = strlen(path);
    for (const char *p = c->kernels; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, path, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

static bool check_case(const char *directory, const choice *c)
{
    golden g;
    report r = { 0 };
    int paths = 0;
    if (open_case(directory, &g) != MM_OK) {
        printf("%-38s FAILED: can't be read: %s\n", directory, mm_last_error());
        close_case(&g);
        return false;
    }
    EACH_KERNELS (i)
        for (int threads = 1; threads <= 2; threads++)
            if (is_chosen(c, mm_kernels_name(i)) && (c->threads == 0 ? true : threads == 1)) {
                run_trial(&g, &r, mm_kernels_name(i), c->threads ? c->threads : threads);
                paths++;
            }
    if (paths == 0)
        snprintf(r.why, sizeof r.why, "no kernel path was chosen that this machine has");
    bool passed = paths > 0 && !r.failed;
    if (r.unsupported)
        printf("%-38s unsupported: %s\n", g.name, r.why);
    else
        printf("%-38s logits %.1e  grad %.1e (%s)  train loss %.1e  final %.1e  greedy %s%s%s\n", g.name, r.logits,
               r.grad, r.worst_grad[0] ? r.worst_grad : "-", r.train_loss, r.final, r.greedy ? r.greedy : "-",
               passed ? "" : "  FAILED: ", r.why);
    close_case(&g);
    return passed;
}

static int usage(FILE *to)
{
    fprintf(to, "usage: golden [--kernels=NAME,...] [--threads=N] CASE_DIR...\nkernels here:");
    for (int32_t i = 0; i < mm_kernels_count(); i++)
        fprintf(to, " %s", mm_kernels_name(i));
    fprintf(to, "\n");
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "kernels", required_argument, NULL, 'k' },
                                             { "threads", required_argument, NULL, 't' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    choice c = { 0 };
    for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (o == 'k' && strlen(optarg) < sizeof c.kernels)
            strcpy(c.kernels, optarg);
        else if (o == 't' && atoi(optarg) > 0)
            c.threads = atoi(optarg);
        else
            return usage(o == 'h' ? stdout : stderr);
    }
    if (optind == argc)
        return usage(stderr);
    if (kernels_from(0) == mm_kernels_count()) {
        printf("every kernel path here is run without MM_CPU, too\n");
        return 77; /* passed over */
    }
    int passed = 0, failed = 0;
    for (int i = optind; i < argc; i++)
        check_case(argv[i], &c) ? passed++ : failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
