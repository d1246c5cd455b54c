#include "ppo64.h"

#include <math.h>

static double between(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double worse(double a, double b)
{
    return a > b ? a : b;
}

double ppo64_loss(const ppo64 *p, const double *logprobs, const double *values)
{
    const mm_ppo_options *o = &p->options;
    double policy = 0, value = 0, kl = 0, n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (!p->mask[i])
            continue;
        double ratio = exp(logprobs[i] - p->old_logprobs[i]), A = p->advantages[i], R = p->returns[i];
        policy += worse(-A * ratio, -A * between(ratio, 1 - o->epsilon, 1 + o->epsilon));
        double miss = pow(values[i] - R, 2), old = p->old_values[i];
        if (o->value_clip > 0)
            miss = worse(miss, pow(between(values[i], old - o->value_clip, old + o->value_clip) - R, 2));
        value += miss / 2;
        if (p->ref_logprobs)
            kl += exp(p->ref_logprobs[i] - logprobs[i]) - (p->ref_logprobs[i] - logprobs[i]) - 1;
        n++;
    }
    return n > 0 ? (policy + o->beta * kl + o->value_weight * value) / n : 0;
}
