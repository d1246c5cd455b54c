/* exp and what follows from it, on vectors. */
#ifndef MMI_BACKEND_SIMD_VMATH_H
#define MMI_BACKEND_SIMD_VMATH_H

#include "backend/simd/vf.h"

/* exp(x), off by at most 1 unit in the last place (1.5 where the result is denormal); 0 below -104, inf above 88.73.
 *
 * x = n ln 2 + r with |r| ≤ ln 2 / 2, and exp(r) = 1 + r + r² q(r). The product n · (ln 2's upper part) needs no
 * rounding inside an fma. q is the minimax polynomial of degree 4 for the relative error of exp(r), 0.05 units of
 * 2^-24. */
static inline vf vf_exp(vf x)
{
    x = vf_clamp(x, vf_set(-104.0f), vf_set(89.0f));
    vf n = vf_round(vf_mul(x, vf_set(1.442695041f)));
    vf r = vf_fnma(n, vf_set(0.693147182f), x);
    r = vf_fnma(n, vf_set(-1.904654323e-9f), r);
    vf q = vf_fma(r, vf_set(1.381443204e-3f), vf_set(8.368796716e-3f));
    q = vf_fma(r, q, vf_set(4.166839582e-2f));
    q = vf_fma(r, q, vf_set(1.666651997e-1f));
    q = vf_fma(r, q, vf_set(4.999999340e-1f));
    vf p = vf_add(vf_fma(vf_mul(r, r), q, r), vf_set(1.0f));
    return vf_ldexp(p, n);
}

/* The logistic function and its complement, both without cancellation at either end: with e = exp(-|x|) they are
 * 1 / (1 + e) and e / (1 + e). */
static inline vf vf_sigmoid(vf x, vf *complement)
{
    vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf near = vf_div(vf_set(1.0f), vf_add(e, vf_set(1.0f)));
    vf far = vf_mul(e, near);
    vmask negative = vf_below(x, vf_zero());
    *complement = vf_select(negative, near, far);
    return vf_select(negative, far, near);
}

/* Φ(x), the normal distribution, to about 4 units in the last place down to the least normal number; and
 * exp(-x²/2).
 *
 * Φ(-t) = exp(-t²/2) R(t) for t ≥ 0, where R falls slowly, like 1/t. With u = 4 / (4 + t) and v = 1 - 2u in [-1, 1),
 * R(t) = u · P(v); P is the minimax polynomial for the relative error on t ≤ 14.5, 0.15 units of 2^-24. The exponential
 * would magnify the rounding of t², so what that lost is put back. */
static inline vf vf_normal(vf x, vf *density)
{
    vf t = vf_clamp(vf_abs(x), vf_zero(), vf_set(14.5f));
    vf square = vf_mul(t, t), lost = vf_sub(vf_zero(), vf_fnma(t, t, square));
    vf e = vf_exp(vf_mul(square, vf_set(-0.5f)));
    e = vf_fnma(vf_mul(e, vf_set(0.5f)), lost, e);
    vf u = vf_div(vf_set(4.0f), vf_add(t, vf_set(4.0f)));
    vf v = vf_fnma(u, vf_set(2.0f), vf_set(1.0f));
    vf p = vf_fma(v, vf_set(-3.299294495e-5f), vf_set(4.483858274e-5f));
    p = vf_fma(v, p, vf_set(3.924808981e-4f));
    p = vf_fma(v, p, vf_set(-8.781384954e-4f));
    p = vf_fma(v, p, vf_set(-1.881317851e-3f));
    p = vf_fma(v, p, vf_set(1.510095777e-2f));
    p = vf_fma(v, p, vf_set(-4.663086036e-2f));
    p = vf_fma(v, p, vf_set(9.678422528e-2f));
    p = vf_fma(v, p, vf_set(-1.519741471e-1f));
    p = vf_fma(v, p, vf_set(1.888212838e-1f));
    vf below = vf_mul(e, vf_mul(u, p));
    *density = e;
    return vf_select(vf_below(x, vf_zero()), below, vf_sub(vf_set(1.0f), below));
}

#endif
