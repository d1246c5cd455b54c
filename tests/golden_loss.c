/* Checks the objectives, the optimizer and the schedules against exact values: build/tests/golden_loss FILE.json...
 *
 * A file names its kind (dpo, distill, grpo, adamw), its numbers and its tolerances; the tensors lie beside it, under
 * the same name with .safetensors. A file that is a list holds learning-rate tables. Files with other endings are
 * passed over. */
#include <math.h>
#include <minimind.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernels.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/safetensors.h"

#define SCHEDULE_REL 1e-12

typedef struct fixture {
    const char *path;
    mmi_json *info;
    mmi_st_file tensors;
    double loss_tolerance, grad_tolerance, param_tolerance;
    int64_t compared; /* numbers: a file that has none tells nothing */
    double worst;     /* error over tolerance */
    char why[256];
} fixture;

/* --- Reading --- */

static double number(const fixture *f, const char *key, double fallback)
{
    return mmi_json_number(mmi_json_get(f->info, key), fallback);
}

static bool says(const fixture *f, const char *key, const char *word)
{
    const char *text = mmi_json_string(mmi_json_get(f->info, key), NULL);
    return text && strcmp(text, word) == 0;
}

static const mmi_st_entry *tensor(const fixture *f, const char *name, int32_t dtype)
{
    const mmi_st_entry *e = mmi_st_find(&f->tensors, name);
    if (e && e->dtype == dtype)
        return e;
    fprintf(stderr, "%s: tensor %s is missing or of another dtype\n", f->path, name);
    exit(1);
}

static void *room(int64_t n, size_t size)
{
    void *memory = mmi_calloc((size_t)(n > 0 ? n : 1), size);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static float *floats(const fixture *f, const char *name)
{
    const mmi_st_entry *e = tensor(f, name, MM_F32);
    return memcpy(room(e->elements, sizeof(float)), e->data, e->bytes);
}

static int32_t *ints(const fixture *f, const char *name)
{
    const mmi_st_entry *e = tensor(f, name, MM_I64);
    int32_t *out = room(e->elements, sizeof *out);
    for (int64_t i = 0; i < e->elements; i++) {
        int64_t value;
        memcpy(&value, (const char *)e->data + 8 * i, 8);
        out[i] = (int32_t)value;
    }
    return out;
}

/* --- Comparing --- */

static void compare(fixture *f, const char *name, const float *want, const double *got64, const float *got32, int64_t n,
                    double tolerance)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double got = got64 ? got64[i] : got32[i];
        difference += (got - want[i]) * (got - want[i]);
        size += (double)want[i] * want[i];
    }
    f->compared += n;
    double error = sqrt(difference) / (size > 0 ? sqrt(size) : 1);
    double share = isnan(error) || isnan(tolerance) ? INFINITY : error / tolerance;
    if (share > f->worst) {
        f->worst = share;
        snprintf(f->why, sizeof f->why, "%s is off by %.3g, %.3g allowed", name, error, tolerance);
    }
}

static void compare_expected(fixture *f, const char *name, const double *got64, const float *got32, double tolerance)
{
    char full[128];
    snprintf(full, sizeof full, "expected.%s", name);
    const mmi_st_entry *e = tensor(f, full, MM_F32);
    float *want = floats(f, full);
    compare(f, name, want, got64, got32, e->elements, tolerance);
    mmi_free(want);
}

static bool worked(fixture *f, mm_status status)
{
    if (status == MM_OK)
        return true;
    f->worst = INFINITY;
    snprintf(f->why, sizeof f->why, "%s", mm_last_error());
    return false;
}

/* --- From logits to logprobs and back, as forward and backward do --- */

static float logsumexp(const mmi_kernels *k, const float *x, int64_t n)
{
    const float most = k->largest(x, n);
    return (float)(most + log(k->softmax_weights(NULL, x, most, 1, n)));
}

static void logprobs_of(float *logprobs, const float *logits, const int32_t *targets, int64_t rows, int64_t V)
{
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    for (int64_t i = 0; i < rows; i++)
        logprobs[i] = logits[i * V + targets[i]] - logsumexp(&k, logits + i * V, V);
}

static void logits_gradient(float *d_logits, const float *d_logprobs, const float *logits, const int32_t *targets,
                            int64_t rows, int64_t V)
{
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    for (int64_t i = 0; i < rows; i++) {
        float *d = d_logits + i * V;
        memcpy(d, logits + i * V, (size_t)V * sizeof *d);
        k.softmax_scaled(d, logsumexp(&k, d, V), -d_logprobs[i], V);
        d[targets[i]] += d_logprobs[i];
    }
}

/* --- The kinds --- */

static void check_dpo(fixture *f)
{
    const mmi_st_entry *e = tensor(f, "policy_logits", MM_F32);
    int64_t rows = e->shape[0], T = e->shape[1], V = e->shape[2];
    float *policy = floats(f, "policy_logits"), *ref = floats(f, "ref_logits");
    int32_t *targets = ints(f, "targets"), *mask = ints(f, "mask");
    float *logprobs = room(rows * T, sizeof(float)), *ref_logprobs = room(rows * T, sizeof(float));
    float *d = room(rows * T, sizeof(float)), *d_logits = room(rows * T * V, sizeof(float));
    double *scores = room(rows, sizeof(double)), *ref_scores = room(rows, sizeof(double));
    mm_dpo_options o = MM_DPO_OPTIONS_INIT;
    mm_dpo_result r = MM_DPO_RESULT_INIT;
    o.beta = number(f, "beta", NAN);
    o.reduction = says(f, "reduction", "mean") ? MM_REDUCE_MEAN : MM_REDUCE_SUM;
    logprobs_of(logprobs, policy, targets, rows * T, V);
    logprobs_of(ref_logprobs, ref, targets, rows * T, V);
    if (worked(f, mm_sequence_scores(scores, logprobs, mask, rows, T, o.reduction)) &&
        worked(f, mm_sequence_scores(ref_scores, ref_logprobs, mask, rows, T, o.reduction)) &&
        worked(f, mm_dpo(&o, rows / 2, T, logprobs, ref_scores, mask, d, &r))) {
        logits_gradient(d_logits, d, policy, targets, rows * T, V);
        compare_expected(f, "loss", &r.loss, NULL, f->loss_tolerance);
        compare_expected(f, "policy_seq_logps", scores, NULL, f->loss_tolerance);
        compare_expected(f, "ref_seq_logps", ref_scores, NULL, f->loss_tolerance);
        compare_expected(f, "grad_policy_logits", NULL, d_logits, f->grad_tolerance);
    }
    void *all[] = { policy, ref, targets, mask, logprobs, ref_logprobs, d, d_logits, scores, ref_scores };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mmi_free(all[i]);
}

static void check_distill(fixture *f)
{
    const mmi_st_entry *s = tensor(f, "student_logits", MM_F32), *t = tensor(f, "teacher_logits", MM_F32);
    int64_t rows = s->shape[0] * s->shape[1], V = s->shape[2];
    float *student = floats(f, "student_logits"), *teacher = floats(f, "teacher_logits"),
          *d = room(rows * V, sizeof *d);
    int32_t *targets = ints(f, "targets");
    mm_distill_options o = MM_DISTILL_OPTIONS_INIT;
    mm_distill_result r = MM_DISTILL_RESULT_INIT;
    o.alpha = number(f, "alpha", NAN);
    o.temperature = number(f, "temperature", NAN);
    if (worked(f, mm_distill(&o, rows, V, t->shape[2], student, teacher, targets, d, &r))) {
        compare_expected(f, "total", &r.total, NULL, f->loss_tolerance);
        compare_expected(f, "ce", &r.cross_entropy, NULL, f->loss_tolerance);
        compare_expected(f, "kl", &r.kl, NULL, f->loss_tolerance);
        compare_expected(f, "grad_student_logits", NULL, d, f->grad_tolerance);
    }
    void *all[] = { student, teacher, d, targets };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mmi_free(all[i]);
}

static void check_policy(fixture *f)
{
    const mmi_st_entry *e = tensor(f, "policy_logits", MM_F32);
    int64_t rows = e->shape[0], T = e->shape[1], V = e->shape[2];
    float *policy = floats(f, "policy_logits"), *old = floats(f, "old_logps"), *ref = floats(f, "ref_logps");
    float *rewards32 = floats(f, "rewards");
    int32_t *targets = ints(f, "targets"), *mask = ints(f, "completion_mask");
    float *logprobs = room(rows * T, sizeof(float)), *d = room(rows * T, sizeof(float));
    float *d_logits = room(rows * T * V, sizeof(float));
    double *rewards = room(rows, sizeof(double)), *advantages = room(rows, sizeof(double));
    mm_policy_options o = MM_POLICY_OPTIONS_INIT;
    mm_policy_result r = MM_POLICY_RESULT_INIT;
    o.beta = number(f, "beta", NAN);
    o.epsilon = number(f, "epsilon", o.epsilon);
    o.epsilon_high = number(f, "epsilon_high", o.epsilon_high);
    o.variant = says(f, "variant", "cispo") ? MM_POLICY_CISPO : MM_POLICY_GRPO;
    for (int64_t i = 0; i < rows; i++)
        rewards[i] = rewards32[i];
    logprobs_of(logprobs, policy, targets, rows * T, V);
    if (worked(f, mm_group_advantages(advantages, rewards, rows, (int64_t)number(f, "group_size", 0))) &&
        worked(f, mm_policy_loss(&o, rows, T, logprobs, old, ref, mask, advantages, d, &r))) {
        logits_gradient(d_logits, d, policy, targets, rows * T, V);
        compare_expected(f, "loss", &r.loss, NULL, f->loss_tolerance);
        compare_expected(f, "mean_kl", &r.mean_kl, NULL, f->loss_tolerance);
        compare_expected(f, "advantages", advantages, NULL, f->loss_tolerance);
        compare_expected(f, "policy_logps", NULL, logprobs, f->loss_tolerance);
        compare_expected(f, "grad_policy_logits", NULL, d_logits, f->grad_tolerance);
    }
    void *all[] = { policy, old, ref, rewards32, targets, mask, logprobs, d, d_logits, rewards, advantages };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mmi_free(all[i]);
}

/* The optimizer's kernel on one group of parameters, on one kernel path. */
static void check_adamw_path(fixture *f, const mmi_kernels *k)
{
    enum { MOST = 64 };
    float *w[MOST], *m[MOST], *v[MOST], *g[MOST];
    int64_t n[MOST];
    int count = 0;
    char name[64];
    for (; count < MOST; count++) {
        snprintf(name, sizeof name, "param.%d", count);
        const mmi_st_entry *e = mmi_st_find(&f->tensors, name);
        if (!e)
            break;
        n[count] = e->elements;
        w[count] = floats(f, name);
        m[count] = room(e->elements, sizeof(float));
        v[count] = room(e->elements, sizeof(float));
        snprintf(name, sizeof name, "grad.%d", count);
        g[count] = floats(f, name);
    }
    const mmi_json *rates = mmi_json_get(f->info, "lr");
    double beta1 = number(f, "beta1", NAN), beta2 = number(f, "beta2", NAN), clip = number(f, "clip_grad_norm", 0);
    float *norms = floats(f, "expected.grad_norm");
    for (size_t step = 0; step < mmi_json_size(rates); step++) {
        double square = 0;
        for (int i = 0; i < count; i++)
            square += k->sum_squares(g[i] + (int64_t)step * n[i], n[i]);
        double norm = sqrt(square), scale = clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1;
        compare(f, "grad_norm", norms + step, &norm, NULL, 1, f->param_tolerance);
        for (int i = 0; i < count; i++) {
            k->adamw(w[i], m[i], v[i], g[i] + (int64_t)step * n[i], n[i], scale,
                     mmi_json_number(mmi_json_at(rates, step), NAN), beta1, beta2, number(f, "eps", NAN),
                     number(f, "weight_decay", NAN), 1 - pow(beta1, (double)step + 1),
                     1 - pow(beta2, (double)step + 1));
            snprintf(name, sizeof name, "expected.param.%d", i);
            float *want = floats(f, name);
            compare(f, name, want + (int64_t)step * n[i], NULL, w[i], n[i], f->param_tolerance);
            mmi_free(want);
        }
    }
    mmi_free(norms);
    for (int i = 0; i < count; i++) {
        mmi_free(w[i]);
        mmi_free(m[i]);
        mmi_free(v[i]);
        mmi_free(g[i]);
    }
}

static void check_adamw(fixture *f)
{
    for (int32_t i = 0; i < mmi_path_count(); i++) {
        mmi_kernels k;
        mmi_kernels_init(&k, mmi_path_get(i)->cpu);
        check_adamw_path(f, &k);
    }
}

static void check_schedules(fixture *f)
{
    static const struct {
        const char *name;
        int32_t rule;
    } rules[] = { { "minimind2", MM_SCHEDULE_MINIMIND2 },
                  { "minimind3", MM_SCHEDULE_MINIMIND3 },
                  { "minillm", MM_SCHEDULE_COSINE } };
    for (size_t i = 0; i < mmi_json_size(f->info); i++) {
        const mmi_json *table = mmi_json_at(f->info, i), *rows = mmi_json_get(table, "table");
        const char *name = mmi_json_string(mmi_json_get(table, "rule"), NULL);
        int32_t rule = -1;
        for (size_t r = 0; name && r < sizeof rules / sizeof *rules; r++)
            if (strcmp(rules[r].name, name) == 0)
                rule = rules[r].rule;
        for (size_t s = 0; s < mmi_json_size(rows); s++) {
            const mmi_json *row = mmi_json_at(rows, s);
            double got = 0, want = mmi_json_number(mmi_json_at(row, 1), NAN);
            mm_status status = mm_schedule_lr(
                rule, mmi_json_int(mmi_json_at(row, 0), -1), mmi_json_int(mmi_json_get(table, "total"), 0),
                mmi_json_int(mmi_json_get(table, "warmup"), 0), mmi_json_number(mmi_json_get(table, "lr"), NAN), &got);
            if (!worked(f, status))
                return;
            f->compared++;
            double error = want != 0 ? fabs(got - want) / fabs(want) : fabs(got);
            if (!(error / SCHEDULE_REL <= f->worst)) {
                f->worst = isnan(error) ? INFINITY : error / SCHEDULE_REL;
                snprintf(f->why, sizeof f->why, "%s: %.17g instead of %.17g", name, got, want);
            }
        }
    }
}

/* --- The program --- */

static bool has_ending(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

static bool open_tensors(fixture *f)
{
    size_t stem = strlen(f->path) - strlen(".json");
    char *path = room((int64_t)stem + 16, 1);
    memcpy(path, f->path, stem);
    strcpy(path + stem, ".safetensors");
    mm_status status = mmi_st_open(path, &f->tensors);
    mmi_free(path);
    return worked(f, status);
}

static bool check_file(const char *path)
{
    fixture f = { .path = path };
    bool known = true;
    if (worked(&f, mmi_json_read_file(path, &f.info))) {
        const mmi_json *tolerances = mmi_json_get(f.info, "tolerances");
        f.loss_tolerance = mmi_json_number(mmi_json_get(tolerances, "loss_rel"), NAN);
        f.grad_tolerance = mmi_json_number(mmi_json_get(tolerances, "grad_rel"), NAN);
        f.param_tolerance = mmi_json_number(mmi_json_get(tolerances, "param_rel"), NAN);
        if (mmi_json_what(f.info) == MMI_JSON_ARRAY)
            check_schedules(&f);
        else if (open_tensors(&f)) {
            if (says(&f, "kind", "dpo"))
                check_dpo(&f);
            else if (says(&f, "kind", "distill"))
                check_distill(&f);
            else if (says(&f, "kind", "grpo"))
                check_policy(&f);
            else if (says(&f, "kind", "adamw"))
                check_adamw(&f);
            else
                known = false;
        }
    }
    bool passed = known && f.compared > 0 && f.worst <= 1;
    if (!known)
        printf("%s: FAILED: unknown kind\n", path);
    else if (f.compared == 0 && f.worst <= 1)
        printf("%s: FAILED: holds no numbers to compare\n", path);
    else
        printf("%s: %.2g of what is allowed%s%s\n", path, f.worst, passed ? "" : ": FAILED: ", passed ? "" : f.why);
    mmi_json_free(f.info);
    mmi_st_close(&f.tensors);
    return passed;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: golden_loss FILE.json...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        if (has_ending(argv[i], ".json"))
            check_file(argv[i]) ? passed++ : failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return passed > 0 && failed == 0 ? 0 : 1;
}
