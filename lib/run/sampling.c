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

#define LANES 8 /* so that no step waits for the one before */

/* Logits are no NaN: mmi_sample() has looked. */
static int32_t argmax(const float *logits, int64_t V)
{
    float most[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++)
        most[j] = logits[0];
    for (; i + LANES <= V; i += LANES)
        for (int j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (; i < V; i++)
        most[0] = logits[i] > most[0] ? logits[i] : most[0];
    for (int j = 1; j < LANES; j++)
        most[0] = most[j] > most[0] ? most[j] : most[0];
    for (i = 0; logits[i] != most[0]; i++) {}
    return (int32_t)i;
}

static mmi_candidate candidate(float logit, int64_t id)
{
    uint32_t bits, sign = UINT32_C(1) << 31;
    memcpy(&bits, &logit, sizeof bits);
    bits = bits & sign ? ~bits : bits | sign; /* ordered as the logits are */
    return (mmi_candidate)bits << 32 | (uint32_t)~id;
}

static double probability(mmi_candidate c, const float *p)
{
    return (double)p[(uint32_t)~c];
}

static void swap(mmi_candidate *a, mmi_candidate *b)
{
    mmi_candidate c = *a;
    *a = *b;
    *b = c;
}

/* Those of c [n] that are likelier than its first one move in front of it; how many, and in *weight what they weigh.
 * Without branches on what they are, which can't be foreseen. */
static int64_t split(mmi_candidate *c, int64_t n, const float *p, double *weight)
{
    int64_t likelier = 0;
    double sum = 0;
    for (int64_t i = 1; i < n; i++) {
        mmi_candidate each = c[i];
        bool wins = each > c[0];
        c[i] = c[likelier + 1];
        c[likelier + 1] = each;
        likelier += wins;
        sum += wins ? probability(each, p) : 0;
    }
    swap(&c[0], &c[likelier]);
    *weight = sum;
    return likelier;
}

static mmi_candidate median(mmi_candidate a, mmi_candidate b, mmi_candidate c)
{
    return (a > b) == (b > c) ? b : (b > a) == (a > c) ? a : c;
}

/* The likeliest of c [n] move to its front: as few as weigh `share`, at most `most`, in no order. How many, and in
 * *weight what they weigh. */
static int64_t likeliest(mmi_candidate *c, int64_t n, const float *p, int64_t most, double share, double *weight)
{
    int64_t kept = 0;
    *weight = 0;
    while (kept < n && kept < most && *weight < share) {
        mmi_candidate *part = c + kept;
        int64_t left = n - kept, last = left - 1, middle = left / 2;
        mmi_candidate pivot = median(part[0], part[middle], part[last]);
        swap(part, part + (pivot == part[middle] ? middle : pivot == part[last] ? last : 0));
        double likelier;
        int64_t count = split(part, left, p, &likelier);
        if (kept + count >= most || *weight + likelier >= share) {
            n = kept + count; /* what is sought is among them */
        } else {
            kept += count + 1;
            *weight += likelier + probability(part[count], p);
        }
    }
    return kept;
}

/* A probability below which none is among those that top-p keeps: V tokens of less than (1 - top_p) / V each can't make
 * up the share that it leaves out. Half of that, for rounding. Of a trained model's vocabulary few tokens are left. */
static float least_useful(int64_t V, const mm_sampling *s)
{
    return (float)((1 - (double)s->top_p) / (double)V / 2);
}

/* The last of those that top-k and top-p keep. */
static mmi_candidate last_kept(const float *logits, const float *p, int64_t V, const mm_sampling *s,
                               mmi_candidate *candidates)
{
    bool limited = s->top_k > 0 && s->top_k < V;
    float least = limited ? 0 : least_useful(V, s);
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++) {
        candidates[n] = candidate(logits[i], i);
        n += p[i] >= least;
    }
    double all = 1, weight;
    if (limited)
        n = likeliest(candidates, n, p, s->top_k, INFINITY, &all);
    if (s->top_p < 1)
        n = likeliest(candidates, n, p, n, s->top_p * all, &weight);
    mmi_candidate last = candidates[0];
    for (int64_t i = 1; i < n; i++)
        last = candidates[i] < last ? candidates[i] : last;
    return last;
}

/* p [V], the probabilities of the logits, of which the likeliest is `top`: what is not kept loses its own. What the
 * others weigh. */
static double keep(const float *logits, float *p, int64_t V, const mm_sampling *s, int32_t top,
                   mmi_candidate *candidates)
{
    bool all = s->top_p == 1 && (s->top_k == 0 || s->top_k >= V);
    mmi_candidate last = all ? 0 : last_kept(logits, p, V, s, candidates);
    double least = (double)s->min_p * (double)p[top], weight[LANES] = { 0 };
    for (int64_t i = 0; i < V; i++) {
        bool kept = candidate(logits[i], i) >= last && (double)p[i] >= least;
        p[i] = kept ? p[i] : 0;
        weight[i % LANES] += (double)p[i];
    }
    for (int j = 1; j < LANES; j++)
        weight[0] += weight[j];
    return weight[0];
}

/* The token at `left` of what all weigh, in the order of their ids. */
static int32_t walk(const float *p, int64_t V, double left)
{
    int64_t id = 0;
    for (int64_t i = 0; i < V && left >= 0; i++) {
        id = p[i] > 0 ? i : id; /* the last possible one, should rounding leave something */
        left -= (double)p[i];
    }
    return (int32_t)id;
}

static void penalize(float *logits, int64_t V, const unsigned char *seen, float penalty)
{
    for (int64_t i = 0; i < V; i++)
        if (seen[i])
            logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
}

/* Divide by the temperature what each logit lies below the likeliest: no temperature is then too small. False: the
 * penalty took the likeliest beyond a float. */
static bool heat(float *logits, int64_t V, int32_t top, float temperature)
{
    float most = logits[top];
    for (int64_t i = 0; i < V; i++)
        logits[i] = (logits[i] - most) / temperature;
    return isfinite(most);
}

int32_t mmi_sample(const mmi_kernels *k, const float *logits, int64_t V, const mm_sampling *s,
                   const unsigned char *seen, double uniform, float *work, mmi_candidate *candidates, float *logprob)
{
    float lse = k->logsumexp(logits, V), *p = work + V;
    if (!isfinite(lse))
        return -1;
    memcpy(work, logits, (size_t)V * sizeof(float));
    if (s->repetition_penalty != 1)
        penalize(work, V, seen, s->repetition_penalty);
    int32_t id = argmax(work, V);
    if (s->temperature > 0) {
        if (!heat(work, V, id, s->temperature))
            return -1;
        memcpy(p, work, (size_t)V * sizeof(float));
        k->softmax_scaled(p, k->logsumexp(work, V), 1, V);
        double weight = keep(work, p, V, s, id, candidates);
        id = walk(p, V, uniform * weight);
    }
    *logprob = logits[id] - lse;
    return id;
}
