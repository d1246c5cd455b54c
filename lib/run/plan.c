#include "run/plan.h"

#include "backend/gemm.h"
#include "nn/norm.h"

static void place_batch(mmi_plan *p, mmi_carve *c, int64_t N, int64_t B)
{
    p->ids = mmi_carve_take(c, N, sizeof(int32_t));
    p->targets = mmi_carve_take(c, N, sizeof(int32_t));
    p->positions = mmi_carve_take(c, N, sizeof(int32_t));
    p->key_mask = mmi_carve_take(c, N, sizeof(int32_t));
    p->segments = mmi_carve_take(c, N, sizeof(mmi_segment));
    p->piece_first = mmi_carve_take(c, N + 1, sizeof(int64_t));
    p->last_rows = mmi_carve_take(c, B, sizeof(int32_t));
}

/* Rows that pass through experts: each token through k of them. */
static int64_t grouped_rows(const mmi_arch *a, int64_t N)
{
    return a->moe ? N * a->top_k : 0;
}

/* Rows that any feed-forward network sees at once. */
static int64_t most_rows(const mmi_arch *a, int64_t N)
{
    return grouped_rows(a, N) > N ? grouped_rows(a, N) : N;
}

int64_t mmi_plan_rows(const mmi_arch *a, const mmi_limits *limits)
{
    return most_rows(a, (int64_t)limits->max_batch * limits->max_length);
}

static int64_t network_width(const mmi_arch *a)
{
    return a->moe ? a->expert_F : a->F;
}

/* Gate and up together. */
static int64_t inner_width(const mmi_arch *a)
{
    return network_width(a) * ((a->moe ? a->expert_gated : a->gated) ? 2 : 1);
}

/* Learnt weights on the sums of routed and shared experts. */
static bool has_scalars(const mmi_layout *layout)
{
    return layout->slot[MMI_SHARED_WEIGHT] >= 0;
}

static void place_experts(mmi_kept *k, mmi_carve *c, const mmi_layout *layout, int64_t N)
{
    const mmi_arch *a = layout->arch;
    int64_t R = grouped_rows(a, N);
    k->routing.probs = mmi_carve_floats(c, N, a->E);
    k->routing.weights = mmi_carve_floats(c, N, a->top_k);
    k->routing.chosen = mmi_carve_take(c, R, sizeof(int32_t));
    k->routing.row_of = mmi_carve_take(c, R, sizeof(int32_t));
    k->routing.token_of = mmi_carve_take(c, R, sizeof(int32_t));
    k->routing.first = mmi_carve_take(c, a->E + 1, sizeof(int64_t));
    k->expert_inner = mmi_carve_floats(c, R, inner_width(a));
    k->expert_y = mmi_carve_floats(c, R, a->C);
    if (has_scalars(layout)) { /* their gradients need the sums */
        k->routed = mmi_carve_floats(c, N, a->C);
        k->shared = mmi_carve_floats(c, N, a->C);
    }
}

static void place_kept(mmi_kept *k, mmi_carve *c, const mmi_layout *layout, int64_t N, bool train)
{
    const mmi_arch *a = layout->arch;
    bool means = a->norm == MMI_LAYERNORM && train;
    k->mean1 = means ? mmi_carve_floats(c, N, 1) : NULL;
    k->rstd1 = train ? mmi_carve_floats(c, N, 1) : NULL;
    k->qkv = mmi_carve_floats(c, N, (a->H + 2 * a->G) * a->D);
    k->qk_raw = train && a->qk_norm ? mmi_carve_floats(c, N, (a->H + a->G) * a->D) : NULL;
    k->qk_rstd = train && a->qk_norm ? mmi_carve_floats(c, N, a->H + a->G) : NULL;
    k->attn = mmi_carve_floats(c, N, a->H * a->D);
    k->lse = train ? mmi_carve_floats(c, N, a->H) : NULL;
    k->mean2 = means ? mmi_carve_floats(c, N, 1) : NULL;
    k->rstd2 = train ? mmi_carve_floats(c, N, 1) : NULL;
    k->inner = mmi_carve_floats(c, N, inner_width(a) * (a->moe ? a->shared_experts : 1));
    if (a->moe)
        place_experts(k, c, layout, N);
}

static void place_layers(mmi_plan *p, mmi_carve *c, const mmi_layout *layout, int64_t N, const mmi_limits *limits)
{
    const mmi_arch *a = layout->arch;
    bool train = limits->mode == MM_TRAIN, own = train && !limits->checkpointing;
    p->layers = mmi_carve_take(c, a->L, sizeof(mmi_kept));
    mmi_kept kept = { .x = mmi_carve_floats(c, N, a->C) };
    kept.x_mid = train ? mmi_carve_floats(c, N, a->C) : kept.x;
    if (a->moe && !has_scalars(layout)) {
        kept.routed = mmi_carve_floats(c, N, a->C);
        kept.shared = mmi_carve_floats(c, N, a->C);
    }
    place_kept(&kept, c, layout, N, train);
    for (int64_t l = 0; l < a->L; l++) {
        if (l > 0 && own) {
            kept.x_mid = mmi_carve_floats(c, N, a->C);
            place_kept(&kept, c, layout, N, true);
        }
        if (p->layers)
            p->layers[l] = kept;
        if (train)
            kept.x = mmi_carve_floats(c, N, a->C); /* what the next layer reads */
    }
    p->x_final = kept.x;
}

static void place_layer_scratch(mmi_plan *p, mmi_carve *c, const mmi_arch *a, int64_t N, bool train)
{
    p->h = mmi_carve_floats(c, N, a->C);
    p->mid = mmi_carve_floats(c, most_rows(a, N), network_width(a));
    p->delta = mmi_carve_floats(c, N, a->C);
    if (a->moe || (train && a->dropout > 0))
        p->branch = mmi_carve_floats(c, N, a->C);
    if (a->moe) {
        p->experts = mmi_carve_take(c, a->E + a->shared_experts, sizeof(mmi_ffn));
        p->grouped = mmi_carve_floats(c, grouped_rows(a, N), a->C);
        p->expert_load = mmi_carve_take(c, a->L * a->E, sizeof *p->expert_load);
    }
}

static void place_backward(mmi_plan *p, mmi_carve *c, const mmi_arch *a, int64_t N)
{
    p->dx = mmi_carve_floats(c, N, a->C);
    p->dh = mmi_carve_floats(c, N, a->C);
    p->dqkv = mmi_carve_floats(c, N, (a->H + 2 * a->G) * a->D);
    p->dattn = mmi_carve_floats(c, N, a->H * a->D);
    p->dinner = mmi_carve_floats(c, most_rows(a, N), inner_width(a));
    if (a->moe || a->dropout > 0)
        p->dbranch = mmi_carve_floats(c, N, a->C);
    if (a->moe) {
        p->dgrouped = mmi_carve_floats(c, grouped_rows(a, N), a->C);
        p->dprobs = mmi_carve_floats(c, N, a->E);
    }
    int64_t widest = a->C > a->D ? a->C : a->D;
    p->partials = mmi_carve_floats(c, mmi_norm_partials(widest), 1);
    p->weights = mmi_carve_floats(c, N, 1);
}

static void place_outputs(mmi_plan *p, mmi_carve *c, const mmi_arch *a, const mmi_limits *limits, int64_t N)
{
    int64_t B = limits->max_batch;
    bool train = limits->mode == MM_TRAIN, targets = limits->outputs & (MM_OUT_LOSS | MM_OUT_LOGPROBS);
    p->hidden = mmi_carve_floats(c, N, a->C);
    if (targets || train) {
        p->logprobs = mmi_carve_floats(c, N, 1);
        p->head.chunk = mmi_head_chunk(a->V) < N ? mmi_head_chunk(a->V) : N;
        p->head.logits = mmi_carve_floats(c, p->head.chunk, a->V);
        p->head.hidden = mmi_carve_floats(c, p->head.chunk, a->C);
        p->head.d_hidden = train ? mmi_carve_floats(c, p->head.chunk, a->C) : NULL;
        p->head.rows = mmi_carve_take(c, p->head.chunk, sizeof(int32_t));
        if (train && limits->head_learns && limits->outputs & MM_OUT_LOSS)
            p->head_grad = mmi_carve_floats(c, a->V, a->C);
    }
    if (limits->outputs & MM_OUT_LAST_LOGITS) {
        p->last_hidden = mmi_carve_floats(c, B, a->C);
        p->last_logits = mmi_carve_floats(c, B, a->V);
    }
    if (limits->outputs & MM_OUT_LOGITS)
        p->logits = mmi_carve_floats(c, N, a->V);
}

static void place_tables(mmi_plan *p, mmi_carve *c, const mmi_arch *a, const mmi_limits *limits)
{
    if (a->positions == MMI_ROPE) {
        p->cos = mmi_carve_floats(c, limits->max_context, a->D / 2);
        p->sin = mmi_carve_floats(c, limits->max_context, a->D / 2);
    }
    if (a->positions == MMI_SINUSOIDAL)
        p->sinusoid = mmi_carve_floats(c, limits->max_context, a->C);
}

/* Numbers in the longest row of a matrix. */
static int64_t longest_row(const mmi_layout *layout)
{
    int64_t most = 0;
    for (int role = 0; role < MMI_ROLES; role++) {
        mmi_tensor t;
        mmi_layout_describe(layout, (mmi_role)role, &t);
        if (t.rank == 2 && mmi_layout_times(layout, (mmi_role)role) > 0 && t.shape[1] > most)
            most = t.shape[1];
    }
    return most;
}

static void place_scratch(mmi_plan *p, mmi_carve *c, const mmi_arch *a, const mmi_layout *layout,
                          const mmi_limits *limits)
{
    mmi_kernels k;
    mmi_kernels_init(&k, limits->path->cpu);
    int64_t attention = mmi_attention_scratch(&k, a->H, a->G, a->D, k.round_attention);
    int64_t heads = a->H * a->D; /* a row of heads in their norm's backward pass */
    int64_t blocks = limits->weights.blocks ? mmi_gemm_blocks_scratch(longest_row(layout)) : 0;
    int64_t own = mmi_gemm_own_scratch(&k, limits->threads);
    int64_t most = attention > heads ? attention : heads;
    most = most > blocks ? most : blocks;
    most = most > own ? most : own;
    const int64_t line = MMI_ALIGN / (int64_t)sizeof(float);
    p->scratch_stride = (most + line - 1) / line * line;
    p->scratch = mmi_carve_floats(c, limits->threads, p->scratch_stride);
    p->panels = mmi_carve_floats(c, 1, mmi_gemm_panels());
}

/* Elements of the matrices that layers may read as one: see mmi_linear_group_forward(). */
static int64_t joined_elements(const mmi_layout *layout, const mmi_role *roles, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        int64_t index = mmi_layout_index(layout, roles[i], 0, 0);
        mmi_tensor t = { .elements = 0 };
        if (index >= 0)
            mmi_layout_tensor(layout, index, &t);
        sum += t.elements;
    }
    return sum;
}

static void place_wide(mmi_plan *p, mmi_carve *c, const mmi_layout *layout, mmi_weight_kinds weights)
{
    static const mmi_role together[][3] = { { MMI_Q, MMI_K, MMI_V },
                                            { MMI_GATE, MMI_UP, MMI_ROLES },
                                            { MMI_EXPERT_GATE, MMI_EXPERT_UP, MMI_ROLES },
                                            { MMI_SHARED_GATE, MMI_SHARED_UP, MMI_ROLES } };
    int64_t largest = 0, vectors = 0;
    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        int64_t joined = joined_elements(layout, together[i], together[i][2] == MMI_ROLES ? 2 : 3);
        largest = joined > largest ? joined : largest;
    }
    for (int role = 0; role < MMI_ROLES; role++) {
        const int64_t times = mmi_layout_times(layout, (mmi_role)role);
        mmi_tensor t;
        mmi_layout_describe(layout, (mmi_role)role, &t);
        if (t.rank == 1)
            vectors += times * t.elements;
        else if (times > 0 && t.elements > largest)
            largest = t.elements;
    }
    p->panel = mmi_carve_floats(c, largest, 1);
    p->vectors = weights.wide ? mmi_carve_floats(c, vectors, 1) : NULL;
}

bool mmi_plan_place(mmi_plan *p, mmi_carve *c, const mmi_arch *a, const mmi_layout *layout, const mmi_limits *limits)
{
    int64_t N = (int64_t)limits->max_batch * limits->max_length;
    bool train = limits->mode == MM_TRAIN;
    *p = (mmi_plan){ 0 };
    place_batch(p, c, N, limits->max_batch);
    place_layers(p, c, layout, N, limits);
    p->mean_final = train && a->norm == MMI_LAYERNORM ? mmi_carve_floats(c, N, 1) : NULL;
    p->rstd_final = train ? mmi_carve_floats(c, N, 1) : NULL;
    place_layer_scratch(p, c, a, N, train);
    if (train)
        place_backward(p, c, a, N);
    place_outputs(p, c, a, limits, N);
    place_tables(p, c, a, limits);
    place_scratch(p, c, a, layout, limits);
    if (limits->weights.wide || limits->weights.blocks)
        place_wide(p, c, layout, limits->weights);
    return !c->overflow;
}
