#include "nn/lora.h"

#include "backend/gemm.h"
#include "nn/vector.h"

static mmi_dropout dropout_of(const mmi_lora *l, const mmi_lora_room *room)
{
    return (mmi_dropout){ .p = room->training ? l->dropout : 0, .seed = room->seed, .stream = l->stream };
}

/* What A reads: the input itself, or a copy of it with some of it dropped, whose rows lie `*ld` apart. */
static const float *dropped(const mmi_exec *x, const float *in, int64_t *ld, const mmi_lora *l,
                            const mmi_lora_room *room, int64_t N, int64_t cols)
{
    mmi_dropout dropout = dropout_of(l, room);
    if (dropout.p <= 0)
        return in;
    mmi_rows_copy(x, room->in, cols, in, *ld, N, cols);
    mmi_dropout_apply(x, room->in, N * cols, dropout);
    *ld = cols;
    return room->in;
}

/* room->down [N, rank] = scale · in · Aᵀ */
static void project_down(const mmi_exec *x, const float *in, int64_t ldin, const mmi_lora *l, const mmi_lora_room *room,
                         int64_t N, int64_t cols)
{
    mmi_gemm(x, false, true, N, l->rank, cols, in, ldin, l->a, cols, NULL, room->down, l->rank);
    mmi_vector_scale(x, room->down, l->scale, N * l->rank);
}

void mmi_loras_forward(const mmi_exec *x, float *y, int64_t ldy, const float *in, int64_t ldin, const mmi_loras *l,
                       int64_t N, int64_t out, int64_t cols)
{
    for (int64_t i = 0; i < l->count; i++) {
        const mmi_lora *one = &l->of[i];
        int64_t ld = ldin;
        const float *from = dropped(x, in, &ld, one, l->room, N, cols);
        project_down(x, from, ld, one, l->room, N, cols);
        mmi_gemm(x, false, true, N, out, one->rank, l->room->down, one->rank, one->b, one->rank, y, y, ldy);
    }
}

/* din += dropout(room->d_down · A) */
static void add_input_gradient(const mmi_exec *x, float *din, int64_t lddin, const mmi_lora *l,
                               const mmi_lora_room *room, int64_t N, int64_t cols)
{
    mmi_dropout dropout = dropout_of(l, room);
    bool direct = dropout.p <= 0;
    mmi_gemm(x, false, false, N, cols, l->rank, room->d_down, l->rank, l->a, cols, direct ? din : NULL,
             direct ? din : room->d_in, direct ? lddin : cols);
    if (direct)
        return;
    mmi_dropout_apply(x, room->d_in, N * cols, dropout);
    mmi_rows_add(x, din, lddin, room->d_in, cols, N, cols);
}

void mmi_loras_backward(const mmi_exec *x, float *din, int64_t lddin, const float *dy, int64_t lddy, const float *in,
                        int64_t ldin, const mmi_loras *l, int64_t N, int64_t out, int64_t cols)
{
    const mmi_lora_room *room = l->room;
    for (int64_t i = 0; i < l->count; i++) {
        const mmi_lora *one = &l->of[i];
        bool learns = in && one->da;
        if (!din && !learns)
            continue;
        mmi_gemm(x, false, false, N, one->rank, out, dy, lddy, one->b, one->rank, NULL, room->d_down, one->rank);
        mmi_vector_scale(x, room->d_down, one->scale, N * one->rank);
        if (din)
            add_input_gradient(x, din, lddin, one, room, N, cols);
        if (!learns)
            continue;
        int64_t ld = ldin;
        const float *from = dropped(x, in, &ld, one, room, N, cols);
        project_down(x, from, ld, one, room, N, cols);
        mmi_gemm(x, true, false, out, one->rank, N, dy, lddy, room->down, one->rank, one->db, one->db, one->rank);
        mmi_gemm(x, true, false, one->rank, cols, N, room->d_down, one->rank, from, ld, one->da, one->da, cols);
    }
}
