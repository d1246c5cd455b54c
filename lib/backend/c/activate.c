#include "backend/c/portable.h"

#include <math.h>

#include "backend/kernels.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794

/* value = act(x), slope = act'(x). */
typedef struct activation {
    float value, slope;
} activation;

/* The logistic function and its complement, both without cancellation at either end. */
static float sigmoid(float x, float *complement)
{
    float e = expf(-fabsf(x));
    float near = 1.0f / (1.0f + e), far = e / (1.0f + e);
    *complement = x < 0 ? near : far;
    return x < 0 ? far : near;
}

static activation silu(float x)
{
    float rest, s = sigmoid(x, &rest);
    return (activation){ x * s, s * (1.0f + x * rest) };
}

/* x · Φ(x). Φ as erfc, in double: in the lower tail a float's rounding of x²/2 would show. */
static activation gelu(float x)
{
    double below = 0.5 * erfc(-x * SQRT_HALF);
    double density = INV_SQRT_2PI * exp(-0.5 * x * x);
    return (activation){ (float)(x * below), (float)(below + x * density) };
}

/* x/2 · (1 + tanh u) = x · sigmoid(2u). Beyond ±30 the sigmoid is 0 or 1, and x² must not overflow. */
static activation gelu_tanh(float x)
{
    float t = x > 30.0f ? 30.0f : x < -30.0f ? -30.0f : x;
    float twice_u = (float)(2 * SQRT_2_OVER_PI) * (t + 0.044715f * t * t * t);
    float twice_slope = (float)(2 * SQRT_2_OVER_PI) * (1.0f + 3 * 0.044715f * t * t);
    float rest, s = sigmoid(twice_u, &rest);
    return (activation){ x * s, s + x * (s * rest * twice_slope) };
}

static activation relu(float x)
{
    return (activation){ x <= 0 ? 0 : x, x <= 0 ? 0 : 1 };
}

static activation activation_at(float x, int32_t act)
{
    switch (act) {
    case MMI_ACT_GELU:
        return gelu(x);
    case MMI_ACT_GELU_TANH:
        return gelu_tanh(x);
    case MMI_ACT_RELU:
        return relu(x);
    default:
        return silu(x);
    }
}

void mmi_c_activate(float *out, const float *gate, const float *up, int32_t act, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = gate ? activation_at(gate[i], act).value * up[i] : activation_at(up[i], act).value;
}

void mmi_c_activate_backward(float *d_gate, float *d_up, float *out, const float *d, const float *gate,
                             const float *up, int32_t act, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float gradient = d[i], u = up[i];
        activation a = activation_at(gate ? gate[i] : u, act);
        if (gate) {
            d_gate[i] = gradient * u * a.slope;
            d_up[i] = gradient * a.value;
            out[i] = a.value * u;
        } else {
            d_up[i] = gradient * a.slope;
            out[i] = a.value;
        }
    }
}
