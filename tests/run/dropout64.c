#include "run/dropout64.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "nn/dropout.h"
#include "run/context.h"

dropout64 dropout64_of(const mm_model *model, const mm_context *context, const mm_batch *batch, double noise)
{
    int64_t N = (int64_t)batch->batch * batch->length;
    dropout64 d = { .m = model64_of(model, N), .context = context, .batch = *batch, .noise = noise };
    const mmi_arch *a = d.m.arch;
    d.chosen = take(a->moe ? a->L * N * a->top_k : 0, sizeof *d.chosen);
    d.mid = take(2 * N * (a->moe ? a->expert_F : a->F), sizeof *d.mid);
    d.y = take(N * a->C, sizeof *d.y);
    d.sum = take(N * a->C, sizeof *d.sum);
    d.p = take(a->moe ? N * a->E : 0, sizeof *d.p);
    return d;
}

static int64_t rows(const dropout64 *d)
{
    return (int64_t)d->batch.batch * d->batch.length;
}

static const double *tensor(const dropout64 *d, int l, const char *name)
{
    int64_t at = model64_find(&d->m, name, l);
    return at < 0 ? NULL : d->m.w[at];
}

/* --- Masks --- */

/* The table of families and places. */
static double rate(const mmi_arch *a, mmi_site site)
{
    bool minimind2 = a->family == MMI_MINIMIND2, minigpt = a->family == MMI_MINIGPT, minimind3 = a->family == MMI_MINIMIND3;
    if (site == MMI_SITE_ATTENTION)
        return a->attention_dropout;
    if (!minimind2 && !minimind3 && !minigpt)
        return 0;
    bool there = site == MMI_SITE_EMBEDDING || site == MMI_SITE_O;
    if (minigpt)
        there |= site == MMI_SITE_MID || site == MMI_SITE_MLP;
    if (minimind2)
        there |= site == (a->moe ? MMI_SITE_EXPERT : MMI_SITE_MLP);
    return there ? a->dropout : 0;
}

static mmi_dropout stream(const dropout64 *d, mmi_site site, int l, int64_t expert)
{
    mmi_pass pass = { .mode = MM_TRAIN, .seed = d->batch.seed };
    mmi_dropout stream = mmi_context_dropout(d->context, &pass, site, l, expert);
    stream.p = d->batch.mode == MM_TRAIN ? (float)rate(d->m.arch, site) : 0;
    return stream;
}

/* Drop n elements of which the first is number `first`. */
static void drop(double *x, int64_t n, uint64_t first, mmi_dropout how)
{
    float mask[64];
    mmi_kernels k;
    mmi_kernels_init_c(&k);
    for (int64_t i = 0; i < n; i += 64) {
        int64_t count = n - i < 64 ? n - i : 64;
        for (int64_t j = 0; j < count; j++)
            mask[j] = 1;
        mmi_dropout_row(&k, mask, count, first + (uint64_t)i, how);
        for (int64_t j = 0; j < count; j++)
            x[i + j] *= mask[j];
    }
}

/* --- Attention --- */

/* Query row i of head h against the keys of its document, which begins at row `from`. */
static void attend(dropout64 *d, int l, int64_t h, int64_t from, int64_t i)
{
    const mmi_arch *a = d->m.arch;
    int64_t D = a->D, g = h / (a->H / a->G), n = i - from + 1;
    const int32_t *mask = d->batch.attention_mask;
    const double *q = d->m.q + (i * a->H + h) * D;
    double w[64], most = -INFINITY, sum = 0, *out = d->m.attn + (i * a->H + h) * D;
    ck_each(n <= 64, "%lld keys", (long long)n);
    for (int64_t t = 0; t < n; t++) {
        w[t] = mask && !mask[from + t] ? -1e9 : 0;
        for (int64_t c = 0; c < D; c++)
            w[t] += q[c] * d->m.k[((from + t) * a->G + g) * D + c] / sqrt((double)D);
        most = fmax(most, w[t]);
    }
    for (int64_t t = 0; t < n; t++)
        sum += w[t] = exp(w[t] - most);
    for (int64_t t = 0; t < n; t++)
        w[t] /= sum;
    drop(w, n, (uint64_t)(i * a->H + h) << 32, stream(d, MMI_SITE_ATTENTION, l, 0));
    memset(out, 0, (size_t)D * sizeof *out);
    for (int64_t t = 0; t < n; t++)
        for (int64_t c = 0; c < D; c++)
            out[c] += w[t] * d->m.v[((from + t) * a->G + g) * D + c];
}

/* The row at which the document of row i begins. */
static int64_t document(const dropout64 *d, int64_t i)
{
    const int32_t *ids = d->batch.document_ids;
    int64_t from = i, begin = i / d->batch.length * d->batch.length;
    while (from > begin && (!ids || ids[from - 1] == ids[i]))
        from--;
    return from;
}

static void project(dropout64 *d, double *y, const char *name, int l, int64_t heads, const double *norm)
{
    char weight[64], bias[64];
    const mmi_arch *a = d->m.arch;
    snprintf(weight, sizeof weight, "self_attn.%s_proj.weight", name);
    snprintf(bias, sizeof bias, "self_attn.%s_proj.bias", name);
    ref_linear(y, d->m.h, tensor(d, l, weight), tensor(d, l, bias), rows(d), heads * a->D, a->C);
    if (norm)
        ref_norm(y, y, norm, NULL, rows(d) * heads, a->D, a->eps);
}

static void add_attention(dropout64 *d, int l, const int32_t *positions)
{
    const mmi_arch *a = d->m.arch;
    int64_t N = rows(d);
    ref_norm(d->m.h, d->m.x, tensor(d, l, "input_layernorm.weight"), tensor(d, l, "input_layernorm.bias"), N, a->C, a->eps);
    project(d, d->m.q, "q", l, a->H, tensor(d, l, "self_attn.q_norm.weight"));
    project(d, d->m.k, "k", l, a->G, tensor(d, l, "self_attn.k_norm.weight"));
    project(d, d->m.v, "v", l, a->G, NULL);
    if (a->positions == MMI_ROPE) {
        ref_rope(d->m.q, a, positions, N, a->H);
        ref_rope(d->m.k, a, positions, N, a->G);
    }
    for (int64_t i = 0; i < N; i++)
        for (int64_t h = 0; h < a->H; h++)
            attend(d, l, h, document(d, i), i);
    ref_linear(d->y, d->m.attn, tensor(d, l, "self_attn.o_proj.weight"), tensor(d, l, "self_attn.o_proj.bias"), N, a->C,
               a->H * a->D);
    drop(d->y, N * a->C, 0, stream(d, MMI_SITE_O, l, 0));
    for (int64_t i = 0; i < N * a->C; i++)
        d->m.x[i] += d->y[i];
}

/* --- Feed-forward --- */

typedef struct network {
    const double *gate, *gate_bias, *up, *up_bias, *down, *down_bias;
    int64_t F;
} network;

/* "mlp." + prefix + "gate_proj.weight" and the others. */
static network network_of(const dropout64 *d, int l, const char *prefix, int64_t F)
{
    static const char *const names[] = { "gate_proj.weight", "gate_proj.bias",   "up_proj.weight",
                                         "up_proj.bias",     "down_proj.weight", "down_proj.bias" };
    const double *w[6];
    for (int i = 0; i < 6; i++) {
        char name[96];
        snprintf(name, sizeof name, "mlp.%s%s", prefix, names[i]);
        w[i] = tensor(d, l, name);
    }
    return (network){ w[0], w[1], w[2], w[3], w[4], w[5], F };
}

/* y [C] = the network of row i of h; its inner elements are numbered from `row` · F on. */
static void run_network(dropout64 *d, double *y, const network *n, int64_t i, int64_t row, mmi_dropout inner)
{
    const mmi_arch *a = d->m.arch;
    const double *h = d->m.h + i * a->C;
    double *up = d->mid, *gate = d->mid + n->F;
    ref_linear(up, h, n->up, n->up_bias, 1, n->F, a->C);
    if (n->gate)
        ref_linear(gate, h, n->gate, n->gate_bias, 1, n->F, a->C);
    for (int64_t f = 0; f < n->F; f++)
        up[f] = n->gate ? ref_activate((int32_t)a->act, gate[f]) * up[f] : ref_activate((int32_t)a->act, up[f]);
    drop(up, n->F, (uint64_t)(row * n->F), inner);
    ref_linear(y, up, n->down, n->down_bias, 1, a->C, n->F);
}

static void probabilities(dropout64 *d, int l)
{
    const mmi_arch *a = d->m.arch;
    mmi_dropout noise = stream(d, MMI_SITE_ROUTER, l, 0);
    ref_linear(d->p, d->m.h, tensor(d, l, "mlp.gate.weight"), NULL, rows(d), a->E, a->C);
    for (int64_t i = 0; i < rows(d); i++) {
        double sum = 0, *p = d->p + i * a->E;
        for (int64_t e = 0; e < a->E; e++) {
            float extra = 0;
            if (d->noise > 0 && d->batch.mode == MM_TRAIN)
                mmi_random_normal(&extra, 1, (float)d->noise, noise.seed, noise.stream, (uint64_t)(i * a->E + e));
            sum += p[e] = exp(p[e] + extra);
        }
        for (int64_t e = 0; e < a->E; e++)
            p[e] /= sum;
    }
}

static void choose(const dropout64 *d, int32_t *chosen, int64_t i)
{
    const mmi_arch *a = d->m.arch;
    const double *p = d->p + i * a->E;
    for (int64_t s = 0; s < a->top_k; s++) {
        chosen[s] = -1;
        for (int32_t e = 0; e < a->E; e++) {
            bool taken = false;
            for (int64_t j = 0; j < s; j++)
                taken |= chosen[j] == e;
            if (!taken && (chosen[s] < 0 || p[e] > p[chosen[s]]))
                chosen[s] = e;
        }
    }
}

/* Shares come from the choices, which are constants. */
static double balance(const dropout64 *d, const int32_t *chosen)
{
    const mmi_arch *a = d->m.arch;
    int64_t groups = a->family == MMI_MINIMIND2 && a->aux_per_sequence ? d->batch.batch : 1, T = rows(d) / groups;
    bool by_k = a->family == MMI_MINIMIND2 || a->family == MMI_MINIGPT;
    double total = 0;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t e = 0; e < a->E; e++) {
            double share = 0, mean = 0;
            for (int64_t i = g * T; i < (g + 1) * T; i++) {
                mean += d->p[i * a->E + e] / (double)T;
                for (int64_t s = 0; s < a->top_k; s++)
                    share += chosen[i * a->top_k + s] == e;
            }
            total += share / (double)(by_k ? T * a->top_k : T) * mean;
        }
    return a->aux_coefficient > 0 ? a->aux_coefficient * (double)a->E * total / (double)groups : 0;
}

/* d->sum += weight · the routed experts. Their rows are numbered expert by expert, in token order within each. */
static void add_routed(dropout64 *d, int l, double weight)
{
    const mmi_arch *a = d->m.arch;
    int32_t *chosen = d->chosen + l * rows(d) * a->top_k;
    probabilities(d, l);
    for (int64_t i = 0; i < rows(d) && !d->settled; i++)
        choose(d, chosen + i * a->top_k, i);
    for (int64_t e = 0, row = 0, first = 0; e < a->E; e++, first = row) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "experts.%d.", (int)e);
        network n = network_of(d, l, prefix, a->expert_F);
        for (int64_t j = 0; j < rows(d) * a->top_k; j++) {
            if (chosen[j] != e)
                continue;
            int64_t i = j / a->top_k;
            double sum = 0;
            for (int64_t s = 0; s < a->top_k; s++)
                sum += d->p[i * a->E + chosen[i * a->top_k + s]];
            run_network(d, d->y, &n, i, row - first, stream(d, MMI_SITE_MID, l, e));
            drop(d->y, a->C, (uint64_t)(row * a->C), stream(d, MMI_SITE_EXPERT, l, 0));
            for (int64_t c = 0; c < a->C; c++)
                d->sum[i * a->C + c] += weight * d->p[i * a->E + e] / (a->renormalize ? sum : 1) * d->y[c];
            row++;
        }
    }
    if (d->batch.mode == MM_TRAIN)
        d->aux += balance(d, chosen);
}

static void add_shared(dropout64 *d, int l, double weight)
{
    const mmi_arch *a = d->m.arch;
    for (int64_t s = 0; s < a->shared_experts; s++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "shared_experts.%d.", (int)s);
        network n = network_of(d, l, prefix, a->expert_F);
        for (int64_t i = 0; i < rows(d); i++) {
            run_network(d, d->y, &n, i, i, stream(d, MMI_SITE_MID, l, a->E + s));
            drop(d->y, a->C, (uint64_t)(i * a->C), stream(d, MMI_SITE_EXPERT, l, a->E + s));
            for (int64_t c = 0; c < a->C; c++)
                d->sum[i * a->C + c] += weight * d->y[c];
        }
    }
}

static void add_feed_forward(dropout64 *d, int l)
{
    const mmi_arch *a = d->m.arch;
    int64_t n = rows(d) * a->C;
    ref_norm(d->m.h, d->m.x, tensor(d, l, "post_attention_layernorm.weight"), tensor(d, l, "post_attention_layernorm.bias"),
             rows(d), a->C, a->eps);
    memset(d->sum, 0, (size_t)n * sizeof *d->sum);
    if (a->moe) {
        const double *shared = tensor(d, l, "mlp.shared_weight"), *routed = tensor(d, l, "mlp.routed_weight");
        add_routed(d, l, routed ? *routed : 1);
        add_shared(d, l, shared ? *shared / (double)a->shared_experts : 1);
    } else {
        network net = network_of(d, l, "", a->F);
        for (int64_t i = 0; i < rows(d); i++)
            run_network(d, d->sum + i * a->C, &net, i, i, stream(d, MMI_SITE_MID, l, 0));
    }
    drop(d->sum, n, 0, stream(d, MMI_SITE_MLP, l, 0));
    for (int64_t i = 0; i < n; i++)
        d->m.x[i] += d->sum[i];
}

/* --- All --- */

static void find_loss(dropout64 *d)
{
    int64_t counted = 0;
    double sum = 0;
    ref_logprobs(d->m.logprobs, d->m.logits, d->batch.targets, rows(d), d->m.arch->V);
    for (int64_t i = 0; i < rows(d); i++)
        if (d->batch.targets[i] >= 0) {
            sum -= d->m.logprobs[i];
            counted++;
        }
    d->loss = sum / (double)counted;
}

double dropout64_total(void *arg)
{
    dropout64 *d = arg;
    const mmi_arch *a = d->m.arch;
    const double *embedding = tensor(d, -1, "model.embed_tokens.weight"), *head = tensor(d, -1, "lm_head.weight");
    int32_t positions[256];
    int64_t N = rows(d);
    ck_assert_int_le(N, 256);
    for (int64_t i = 0; i < N; i++)
        positions[i] = (int32_t)(i - document(d, i));
    ref_embedding(d->m.x, embedding, d->batch.ids, N, a->C);
    for (int64_t i = 0; i < N * a->C && a->positions == MMI_SINUSOIDAL; i++)
        d->m.x[i] += ref_sinusoid(positions[i / a->C], i % a->C, a->C);
    drop(d->m.x, N * a->C, 0, stream(d, MMI_SITE_EMBEDDING, 0, 0));
    d->aux = 0;
    for (int l = 0; l < a->L; l++) {
        add_attention(d, l, positions);
        add_feed_forward(d, l);
    }
    d->settled = true;
    ref_norm(d->m.hidden, d->m.x, tensor(d, -1, "model.norm.weight"), tensor(d, -1, "model.norm.bias"), N, a->C, a->eps);
    ref_linear(d->m.logits, d->m.hidden, head ? head : embedding, NULL, N, a->V, a->C);
    find_loss(d);
    return d->loss + d->aux;
}
