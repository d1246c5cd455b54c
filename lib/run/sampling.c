#include "run/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/options.h"

MMI_OPTIONS_INIT(mm_sampling, MM_SAMPLING_INIT)

static mm_status fail_range(const char *name, double value, const char *rule)
{
    return mmi_fail(MM_ERR_ARG, "%s is %g, must be %s", name, value, rule);
}

mm_status mmi_sampling_check(const mm_sampling *s)
{
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return fail_range("temperature", s->temperature, "0 or more");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return fail_range("top_p", s->top_p, "above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return fail_range("min_p", s->min_p, "from 0 to 1");
    if (!(s->repetition_penalty > 0) || isinf(s->repetition_penalty))
        return fail_range("repetition_penalty", s->repetition_penalty, "above 0");
    if (s->top_k < 0)
        return fail_range("top_k", (double)s->top_k, "0 or more");
    return MM_OK;
}

/* a comes before b: likelier, or as likely and of lower id. */
static bool before(mmi_candidate a, mmi_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(mmi_candidate *heap, int64_t n, int64_t at)
{
    for (;;) {
        int64_t best = at, left = 2 * at + 1;
        for (int64_t child = left; child < left + 2 && child < n; child++)
            if (before(heap[child], heap[best]))
                best = child;
        if (best == at)
            return;
        mmi_candidate swap = heap[at];
        heap[at] = heap[best];
        heap[best] = swap;
        at = best;
    }
}

/* The likeliest candidate moves behind the heap, which shrinks by one: after k pops the k likeliest stand at the end,
 * likeliest last. */
static mmi_candidate pop(mmi_candidate *heap, int64_t n)
{
    mmi_candidate top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift_down(heap, n - 1, 0);
    return top;
}

static int32_t argmax(const float *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Walk the kept candidates [first, n), likeliest last, until the share `uniform` of their weight is reached. */
static int32_t walk(const mmi_candidate *candidates, int64_t first, int64_t n, double weight, float top, double uniform)
{
    double left = uniform * weight;
    for (int64_t i = n; i-- > first;) {
        left -= exp((double)candidates[i].logit - top);
        if (left < 0)
            return candidates[i].id;
    }
    return candidates[first].id; /* rounding: the last one kept */
}

/* Among all V tokens: no order is needed. */
static int32_t draw_unfiltered(const float *logits, int64_t V, double lse, double uniform)
{
    double left = uniform;
    int64_t last = 0;
    for (int64_t i = 0; i < V; i++) {
        double p = exp(logits[i] - lse);
        if (p > 0)
            last = i;
        left -= p;
        if (left < 0)
            return (int32_t)i;
    }
    return (int32_t)last; /* rounding: the last possible one */
}

/* Pop the likeliest k of V and give their weight, Σ exp(logit - top). */
static double pop_top_k(mmi_candidate *heap, int64_t V, int64_t k, float top)
{
    double weight = 0;
    for (int64_t n = V; n > V - k; n--)
        weight += exp((double)pop(heap, n).logit - top);
    return weight;
}

/* A logit below which none is among those that top-p keeps: V tokens of less than (1 - top_p) / V each can't make up
 * the share that it leaves out. Half of that, for rounding. Of a trained model's vocabulary few tokens are left. */
static float least_useful(int64_t V, const mm_sampling *s, double lse)
{
    double share = (1 - (double)s->top_p) / (double)V / 2;
    return share > 0 ? (float)(lse + log(share)) : -INFINITY;
}

/* The tokens from `least` on as a heap; how many. */
static int64_t make_heap(mmi_candidate *heap, const float *logits, int64_t V, float least)
{
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++)
        if (logits[i] >= least)
            heap[n++] = (mmi_candidate){ logits[i], (int32_t)i };
    for (int64_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    return n;
}

static int32_t draw(const float *logits, int64_t V, const mm_sampling *s, double lse, double uniform,
                    mmi_candidate *heap)
{
    bool limited = s->top_k > 0 && s->top_k < V;
    int64_t n = make_heap(heap, logits, V, limited ? -INFINITY : least_useful(V, s, lse));
    int64_t k = limited ? s->top_k : n;
    float top = heap[0].logit;
    double all = limited ? pop_top_k(heap, n, k, top) : exp(lse - top); /* what top-p is a share of */

    /* From the likeliest down, while top-p wants more and min-p finds it likely enough. */
    double weight = 0;
    int64_t first = n;
    while (first > n - k && (first == n || weight < s->top_p * all)) {
        mmi_candidate c = limited ? heap[first - 1] : pop(heap, first);
        double w = exp((double)c.logit - top);
        if (first < n && (w < s->min_p || w == 0)) /* what can't come is not kept, not even as the last one */
            break;
        weight += w;
        first--;
    }
    return walk(heap, first, n, weight, top, uniform);
}

static void penalize(float *logits, int64_t V, const unsigned char *seen, float penalty)
{
    for (int64_t i = 0; i < V; i++)
        if (seen[i])
            logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
}

/* Divide by the temperature what each logit lies below the likeliest: no temperature is then too small. False: the
 * penalty took the likeliest beyond a float. */
static bool heat(float *logits, int64_t V, float temperature)
{
    float top = logits[argmax(logits, V)];
    for (int64_t i = 0; i < V; i++)
        logits[i] = (logits[i] - top) / temperature;
    return isfinite(top);
}

int32_t mmi_sample(const mmi_kernels *k, const float *logits, int64_t V, const mm_sampling *s,
                   const unsigned char *seen, double uniform, float *work, mmi_candidate *candidates, float *logprob)
{
    float lse = k->logsumexp(logits, V);
    if (!isfinite(lse))
        return -1;
    memcpy(work, logits, (size_t)V * sizeof(float));
    if (s->repetition_penalty != 1)
        penalize(work, V, seen, s->repetition_penalty);
    int32_t id;
    if (s->temperature == 0) {
        id = argmax(work, V);
    } else {
        if (!heat(work, V, s->temperature))
            return -1;
        double work_lse = k->logsumexp(work, V);
        bool filtered = s->top_p < 1 || s->min_p > 0 || s->top_k > 0;
        id = filtered ? draw(work, V, s, work_lse, uniform, candidates) : draw_unfiltered(work, V, work_lse, uniform);
    }
    *logprob = logits[id] - lse;
    return id;
}
