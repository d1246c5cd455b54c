#include "backend/kernels.h"
#include "backend/simd/table.h"
#include "backend/simd/vmath.h"

/* Each gives act(x) and, in *slope, act'(x). Beyond ±30 both are those of the limits, and x² does not overflow. */
static ALWAYS_INLINE vf silu(vf x, vf *slope)
{
    vf rest, s = vf_sigmoid(x, &rest);
    *slope = vf_mul(s, vf_fma(x, rest, vf_set(1.0f)));
    return vf_mul(x, s);
}

static ALWAYS_INLINE vf gelu(vf x, vf *slope)
{
    vf e, below = vf_normal(x, &e);
    *slope = vf_fma(vf_mul(x, vf_set(0.398942280f)), e, below);
    return vf_mul(x, below);
}

/* x/2 · (1 + tanh u) = x · sigmoid(2u) */
static ALWAYS_INLINE vf gelu_tanh(vf x, vf *slope)
{
    vf t = vf_clamp(x, vf_set(-30.0f), vf_set(30.0f)), square = vf_mul(t, t);
    vf twice_u = vf_mul(vf_mul(t, vf_set(1.595769122f)), vf_fma(square, vf_set(0.044715f), vf_set(1.0f)));
    vf twice_slope = vf_fma(square, vf_set(0.214064424f), vf_set(1.595769122f));
    vf rest, s = vf_sigmoid(twice_u, &rest);
    *slope = vf_fma(x, vf_mul(vf_mul(s, rest), twice_slope), s);
    return vf_mul(x, s);
}

static ALWAYS_INLINE vf relu(vf x, vf *slope)
{
    vmask off = vf_below(x, vf_set(0x1p-149f)); /* x ≤ 0; false for NaN */
    *slope = vf_select(off, vf_zero(), vf_set(1.0f));
    return vf_select(off, vf_zero(), x);
}

static ALWAYS_INLINE vf act_at(vf x, int32_t act, vf *slope)
{
    return act == MMI_ACT_GELU        ? gelu(x, slope)
           : act == MMI_ACT_GELU_TANH ? gelu_tanh(x, slope)
           : act == MMI_ACT_RELU      ? relu(x, slope)
                                      : silu(x, slope);
}

static ALWAYS_INLINE void forward(float *out, const float *gate, const float *up, int32_t act, int64_t n)
{
    vf slope;
    for (int64_t i = 0; i < n; i += VL) {
        int64_t left = n - i;
        vf u = vf_get(up + i, left);
        vf_put(out + i, left, gate ? vf_mul(act_at(vf_get(gate + i, left), act, &slope), u) : act_at(u, act, &slope));
    }
}

void SIMD(activate)(float *out, const float *gate, const float *up, int32_t act, int64_t n)
{
    switch (act) {
    case MMI_ACT_GELU:
        forward(out, gate, up, MMI_ACT_GELU, n);
        break;
    case MMI_ACT_GELU_TANH:
        forward(out, gate, up, MMI_ACT_GELU_TANH, n);
        break;
    case MMI_ACT_RELU:
        forward(out, gate, up, MMI_ACT_RELU, n);
        break;
    default:
        forward(out, gate, up, MMI_ACT_SILU, n);
    }
}

static ALWAYS_INLINE void backward(float *d_gate, float *d_up, float *out, const float *d, const float *gate,
                                   const float *up, int32_t act, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) {
        int64_t left = n - i;
        vf gradient = vf_get(d + i, left), u = vf_get(up + i, left);
        vf slope, value = act_at(gate ? vf_get(gate + i, left) : u, act, &slope);
        if (gate) {
            vf_put(d_gate + i, left, vf_mul(vf_mul(gradient, u), slope));
            vf_put(d_up + i, left, vf_mul(gradient, value));
            vf_put(out + i, left, vf_mul(value, u));
        } else {
            vf_put(d_up + i, left, vf_mul(gradient, slope));
            vf_put(out + i, left, value);
        }
    }
}

void SIMD(activate_backward)(float *d_gate, float *d_up, float *out, const float *d, const float *gate,
                             const float *up, int32_t act, int64_t n)
{
    switch (act) {
    case MMI_ACT_GELU:
        backward(d_gate, d_up, out, d, gate, up, MMI_ACT_GELU, n);
        break;
    case MMI_ACT_GELU_TANH:
        backward(d_gate, d_up, out, d, gate, up, MMI_ACT_GELU_TANH, n);
        break;
    case MMI_ACT_RELU:
        backward(d_gate, d_up, out, d, gate, up, MMI_ACT_RELU, n);
        break;
    default:
        backward(d_gate, d_up, out, d, gate, up, MMI_ACT_SILU, n);
    }
}
