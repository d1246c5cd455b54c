#include "run/model64.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

#define MOST_SEGMENTS 64

const char *model64_name(const char *full, int *layer)
{
    int begins = 0;
    if (sscanf(full, "model.layers.%d.%n", layer, &begins) == 1 && begins > 0)
        return full + begins;
    *layer = -1;
    return full;
}

model64 model64_of(const mm_model *model, int64_t rows)
{
    model64 m = { .config = mm_model_config(model), .arch = mmi_model_arch(model), .count = mm_model_tensor_count(model),
                  .most = rows };
    const mmi_arch *a = m.arch;
    m.w = take(m.count, sizeof *m.w);
    m.sizes = take(m.count, sizeof *m.sizes);
    m.names = take(m.count, sizeof *m.names);
    m.layers = take(m.count, sizeof *m.layers);
    for (int64_t i = 0; i < m.count; i++) {
        mm_tensor_info info = MM_TENSOR_INFO_INIT;
        ck_ok(mm_layout_get(m.config, i, &info));
        const char *name = model64_name(info.name, &m.layers[i]);
        ck_assert_uint_lt(strlen(name), sizeof m.names[i]);
        strcpy(m.names[i], name);
        mm_view view;
        ck_ok(mm_model_tensor(model, i, &view));
        m.sizes[i] = view.shape[0] * view.shape[1];
        m.w[i] = take_doubles(view.data, m.sizes[i]);
    }
    double **arrays[] = { &m.x, &m.h,     &m.delta,    &m.hidden, &m.routed, &m.expert, &m.q,
                          &m.attn, &m.k, &m.v, &m.logits, &m.logprobs, &m.probs };
    int64_t wide = a->H * a->D, narrow = a->G * a->D;
    int64_t widths[] = { a->C, a->C, a->C, a->C, a->C, a->C, wide, wide, narrow, narrow, a->V, 1, a->moe ? a->E : 0 };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = take(rows * widths[i], sizeof(double));
    return m;
}

int64_t model64_find(const model64 *m, const char *name, int layer)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->layers[i] == layer && strcmp(m->names[i], name) == 0)
            return i;
    return -1;
}

static const double *tensor(const model64 *m, const char *name, int layer)
{
    int64_t at = model64_find(m, name, layer);
    return at < 0 ? NULL : m->w[at];
}

static int64_t segments_of(ref_segment *segments, const mm_batch *b)
{
    int64_t n = 0, T = b->length;
    for (int64_t i = 0; i < b->batch * T; i++) {
        bool begins = i % T == 0 || (b->document_ids && b->document_ids[i] != b->document_ids[i - 1]);
        if (begins) {
            ck_assert_int_lt(n, MOST_SEGMENTS);
            segments[n++] = (ref_segment){ i, 0, i, 0, b->attention_mask ? b->attention_mask + i : NULL };
        }
        segments[n - 1].count++;
    }
    return n;
}

static void add(double *y, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

typedef struct rows {
    int64_t N, segments;
    ref_segment segment[MOST_SEGMENTS];
    int32_t *positions;
} rows;

static void attention(model64 *m, const rows *r, int l)
{
    const mmi_arch *a = m->arch;
    int64_t N = r->N, wide = a->H * a->D, narrow = a->G * a->D;
    ref_norm(m->h, m->x, tensor(m, "input_layernorm.weight", l), tensor(m, "input_layernorm.bias", l), N, a->C, a->eps);
    ref_linear(m->q, m->h, tensor(m, "self_attn.q_proj.weight", l), tensor(m, "self_attn.q_proj.bias", l), N, wide, a->C);
    ref_linear(m->k, m->h, tensor(m, "self_attn.k_proj.weight", l), tensor(m, "self_attn.k_proj.bias", l), N, narrow, a->C);
    ref_linear(m->v, m->h, tensor(m, "self_attn.v_proj.weight", l), tensor(m, "self_attn.v_proj.bias", l), N, narrow, a->C);
    if (a->qk_norm) {
        ref_norm(m->q, m->q, tensor(m, "self_attn.q_norm.weight", l), NULL, N * a->H, a->D, a->eps);
        ref_norm(m->k, m->k, tensor(m, "self_attn.k_norm.weight", l), NULL, N * a->G, a->D, a->eps);
    }
    if (a->positions == MMI_ROPE) {
        ref_rope(m->q, a, r->positions, N, a->H);
        ref_rope(m->k, a, r->positions, N, a->G);
    }
    ref_attention(m->attn, m->q, m->k, m->v, a->H, a->G, a->D, r->segment, r->segments);
    ref_linear(m->delta, m->attn, tensor(m, "self_attn.o_proj.weight", l), tensor(m, "self_attn.o_proj.bias", l), N, a->C,
               wide);
    add(m->x, m->delta, N * a->C);
}

static void dense(model64 *m, const rows *r, int l)
{
    const mmi_arch *a = m->arch;
    ref_ffn_params p = { .gate = tensor(m, "mlp.gate_proj.weight", l), .gate_bias = tensor(m, "mlp.gate_proj.bias", l),
                         .up = tensor(m, "mlp.up_proj.weight", l),     .up_bias = tensor(m, "mlp.up_proj.bias", l),
                         .down = tensor(m, "mlp.down_proj.weight", l), .down_bias = tensor(m, "mlp.down_proj.bias", l),
                         .C = a->C, .F = a->F, .act = (int32_t)a->act };
    ref_ffn(m->delta, m->h, &p, r->N);
}

/* m->expert = what one expert gives for the rows [first, first + N) of h. */
static void run_expert(model64 *m, int l, const char *kind, int64_t number, int64_t first, int64_t N)
{
    const mmi_arch *a = m->arch;
    const double *w[3];
    static const char *const parts[] = { "gate", "up", "down" };
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "mlp.%s.%d.%s_proj.weight", kind, (int)number, parts[i]);
        w[i] = tensor(m, name, l);
    }
    ref_ffn_params p = { .gate = w[0], .up = w[1], .down = w[2], .C = a->C, .F = a->expert_F, .act = (int32_t)a->act };
    ref_ffn(m->expert, m->h + first * a->C, &p, N);
}

/* Whether expert e is among the k likeliest; of equals, those of lower number. */
static bool is_chosen(const double *p, int64_t e, const mmi_arch *a)
{
    int64_t better = 0;
    for (int64_t i = 0; i < a->E; i++)
        better += p[i] > p[e] || (p[i] == p[e] && i < e);
    return better < a->top_k;
}

/* m->probs [N, E] = the router's softmax. */
static void route(model64 *m, const rows *r, int l)
{
    int64_t E = m->arch->E;
    ref_linear(m->probs, m->h, tensor(m, "mlp.gate.weight", l), NULL, r->N, E, m->arch->C);
    for (int64_t i = 0; i < r->N; i++) {
        double *p = m->probs + i * E, sum = 0;
        for (int64_t e = 0; e < E; e++)
            sum += p[e] = exp(p[e]);
        for (int64_t e = 0; e < E; e++)
            p[e] /= sum;
    }
}

static void add_routed(model64 *m, const rows *r, int l)
{
    const mmi_arch *a = m->arch;
    for (int64_t i = 0; i < r->N; i++) {
        const double *p = m->probs + i * a->E;
        double sum = 0;
        for (int64_t e = 0; e < a->E; e++)
            sum += is_chosen(p, e, a) ? p[e] : 0;
        for (int64_t e = 0; e < a->E; e++) {
            if (!is_chosen(p, e, a))
                continue;
            run_expert(m, l, "experts", e, i, 1);
            for (int64_t c = 0; c < a->C; c++)
                m->routed[i * a->C + c] += m->expert[c] * (a->renormalize ? p[e] / sum : p[e]);
        }
    }
}

/* The balance over the rows [first, first + N). */
static double balance(const model64 *m, int64_t first, int64_t N)
{
    const mmi_arch *a = m->arch;
    bool per_choice = a->family == MMI_MINIMIND2 || a->family == MMI_MINIGPT;
    double sum = 0;
    for (int64_t e = 0; e < a->E; e++) {
        double share = 0, mean = 0;
        for (int64_t i = first; i < first + N; i++) {
            share += is_chosen(m->probs + i * a->E, e, a);
            mean += m->probs[i * a->E + e] / (double)N;
        }
        sum += share / (double)(per_choice ? N * a->top_k : N) * mean;
    }
    return a->aux_coefficient * (double)a->E * sum;
}

static void experts(model64 *m, const rows *r, const mm_batch *b, int l)
{
    const mmi_arch *a = m->arch;
    const double *shared_weight = tensor(m, "mlp.shared_weight", l), *routed_weight = tensor(m, "mlp.routed_weight", l);
    memset(m->delta, 0, (size_t)(r->N * a->C) * sizeof(double));
    memset(m->routed, 0, (size_t)(r->N * a->C) * sizeof(double));
    route(m, r, l);
    add_routed(m, r, l);
    for (int64_t i = 0; i < (a->aux_per_sequence ? b->batch : 1); i++)
        m->aux += a->aux_per_sequence ? balance(m, i * b->length, b->length) / b->batch : balance(m, 0, r->N);
    for (int64_t s = 0; s < a->shared_experts; s++) {
        run_expert(m, l, "shared_experts", s, 0, r->N);
        for (int64_t i = 0; i < r->N * a->C; i++)
            m->delta[i] += m->expert[i] * (shared_weight ? *shared_weight / (double)a->shared_experts : 1);
    }
    for (int64_t i = 0; i < r->N * a->C; i++)
        m->delta[i] += m->routed[i] * (routed_weight ? *routed_weight : 1);
}

static void feed_forward(model64 *m, const rows *r, const mm_batch *b, int l)
{
    const mmi_arch *a = m->arch;
    ref_norm(m->h, m->x, tensor(m, "post_attention_layernorm.weight", l), tensor(m, "post_attention_layernorm.bias", l), r->N,
             a->C, a->eps);
    if (a->moe)
        experts(m, r, b, l);
    else
        dense(m, r, l);
    add(m->x, m->delta, r->N * a->C);
}

void model64_run(model64 *m, const mm_batch *b)
{
    const mmi_arch *a = m->arch;
    rows r = { .N = (int64_t)b->batch * b->length };
    int32_t positions[1024];
    ck_assert(r.N <= m->most && r.N <= 1024);
    r.segments = segments_of(r.segment, b);
    r.positions = positions;
    for (int64_t s = 0; s < r.segments; s++)
        for (int64_t i = 0; i < r.segment[s].count; i++)
            positions[r.segment[s].row + i] = b->position_ids ? b->position_ids[r.segment[s].row + i] : (int32_t)i;
    const double *embedding = tensor(m, "model.embed_tokens.weight", -1), *head = tensor(m, "lm_head.weight", -1);
    m->aux = 0;
    ref_embedding(m->x, embedding, b->ids, r.N, a->C);
    for (int64_t i = 0; i < r.N * a->C && a->positions == MMI_SINUSOIDAL; i++)
        m->x[i] += ref_sinusoid(positions[i / a->C], i % a->C, a->C);
    for (int l = 0; l < a->L; l++) {
        attention(m, &r, l);
        feed_forward(m, &r, b, l);
    }
    ref_norm(m->hidden, m->x, tensor(m, "model.norm.weight", -1), tensor(m, "model.norm.bias", -1), r.N, a->C, a->eps);
    ref_linear(m->logits, m->hidden, head ? head : embedding, NULL, r.N, a->V, a->C);
    if (b->targets)
        ref_logprobs(m->logprobs, m->logits, b->targets, r.N, a->V);
}

double model64_loss(model64 *m, const mm_batch *b)
{
    int64_t N = (int64_t)b->batch * b->length, counted = 0;
    double sum = 0;
    model64_run(m, b);
    for (int64_t i = 0; i < N; i++)
        if (b->targets[i] >= 0) {
            sum -= m->logprobs[i];
            counted++;
        }
    return counted ? sum / (double)counted : 0;
}
