/* A vector of floats on 64-bit Arm. vf.h says what each of these means. */
#include <arm_neon.h>
#include <string.h>

#define VL 4
#define TILE_ROWS 8
#define TILE_VECS 3

typedef float32x4_t vf;
typedef int64_t vtail; /* how many lanes */
typedef uint32x4_t vmask;
typedef struct vd {
    float64x2_t low, high;
} vd;

static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf v) { vst1q_f32(p, v); }
static inline vf vf_set(float x) { return vdupq_n_f32(x); }
static inline vf vf_zero(void) { return vdupq_n_f32(0); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
static inline vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
static inline vf vf_abs(vf a) { return vabsq_f32(a); }
static inline vf vf_max(vf m, vf x) { return vmaxnmq_f32(m, x); }
static inline vf vf_clamp(vf x, vf low, vf high) { return vmaxq_f32(low, vminq_f32(high, x)); }
static inline vf vf_round(vf a) { return vrndnq_f32(a); }

static inline vmask vf_below(vf a, vf b) { return vcltq_f32(a, b); }
static inline vf vf_select(vmask m, vf yes, vf no) { return vbslq_f32(m, yes, no); }

static inline vtail vf_tail(int64_t n) { return n < VL ? n : VL; }
static inline vf vf_load_tail(const float *p, vtail t)
{
    float lanes[VL] = { 0 };
    for (int64_t i = 0; i < t; i++)
        lanes[i] = p[i];
    return vld1q_f32(lanes);
}
static inline void vf_store_tail(float *p, vtail t, vf v)
{
    float lanes[VL];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < t; i++)
        p[i] = lanes[i];
}
static inline vf vf_fill_tail(vf v, vtail t, vf fill)
{
    static const int32_t order[VL] = { 0, 1, 2, 3 };
    return vbslq_f32(vcltq_s32(vld1q_s32(order), vdupq_n_s32((int32_t)t)), v, fill);
}

static inline float vf_sum(vf v) { return vaddvq_f32(v); }
static inline float vf_largest(vf v) { return vmaxnmvq_f32(v); }

/* In two steps, since 2^n alone may be beyond a float's exponent where v · 2^n is not. */
static inline vf vf_ldexp(vf v, vf n)
{
    int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    int32x4_t rest = vsubq_s32(whole, half);
    v = vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}

static inline vd vd_zero(void) { return (vd){ vdupq_n_f64(0), vdupq_n_f64(0) }; }
static inline vd vd_of(vf v)
{
    return (vd){ vcvt_f64_f32(vget_low_f32(v)), vcvt_high_f64_f32(v) };
}
static inline vd vd_add_square(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ vfmaq_f64(s.low, w.low, w.low), vfmaq_f64(s.high, w.high, w.high) };
}
static inline vd vd_add(vd s, vf v)
{
    const vd w = vd_of(v);
    return (vd){ vaddq_f64(s.low, w.low), vaddq_f64(s.high, w.high) };
}
static inline double vd_sum(vd s) { return vaddvq_f64(vaddq_f64(s.low, s.high)); }

static inline uint16x4_t load_halves(const void *p)
{
    uint16x4_t words;
    memcpy(&words, p, sizeof words);
    return words;
}
static inline vf vf_load_bf16(const void *p)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(load_halves(p)), 16));
}
static inline vf vf_even_bf16(vf words)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(words), 16));
}
static inline vf vf_odd_bf16(vf words)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(words), vdupq_n_u32(0xFFFF0000)));
}
static inline vf vf_evens(vf a, vf b) { return vuzp1q_f32(a, b); }
static inline vf vf_odds(vf a, vf b) { return vuzp2q_f32(a, b); }
static inline vf vf_zip_low(vf even, vf odd) { return vzip1q_f32(even, odd); }
static inline vf vf_zip_high(vf even, vf odd) { return vzip2q_f32(even, odd); }
static inline vf vf_load_bytes(const void *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
}
static inline vf vf_set_f16(int16_t bits) { return vcvt_f32_f16(vreinterpret_f16_s16(vdup_n_s16(bits))); }
static inline vf vf_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p))); }
static inline void vf_store_f16(void *p, vf v)
{
    float16x4_t halves = vcvt_f16_f32(v);
    memcpy(p, &halves, sizeof halves);
}
static inline vf vf_round_f16(vf v) { return vcvt_f32_f16(vcvt_f16_f32(v)); }
static inline vf vf_round_bf16(vf v)
{
    uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    uint32x4_t nan = vorrq_u32(bits, vdupq_n_u32(0x400000));
    uint32x4_t either = vbslq_u32(vceqq_f32(v, v), rounded, nan);
    return vreinterpretq_f32_u32(vandq_u32(either, vdupq_n_u32(0xFFFF0000)));
}
static inline void vf_store_bf16(void *p, vf v)
{
    uint16x4_t words = vshrn_n_u32(vreinterpretq_u32_f32(vf_round_bf16(v)), 16);
    memcpy(p, &words, sizeof words);
}

static inline void vf_transpose(vf r[VL])
{
    float32x4x2_t top = vtrnq_f32(r[0], r[1]), bottom = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(top.val[0]), vget_low_f32(bottom.val[0]));
    r[1] = vcombine_f32(vget_low_f32(top.val[1]), vget_low_f32(bottom.val[1]));
    r[2] = vcombine_f32(vget_high_f32(top.val[0]), vget_high_f32(bottom.val[0]));
    r[3] = vcombine_f32(vget_high_f32(top.val[1]), vget_high_f32(bottom.val[1]));
}
