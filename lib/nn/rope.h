/* Rotary positions (Su et al., 2021), with both forms of YaRN (Peng et al., 2023) that the family uses. */
#ifndef MMI_NN_ROPE_H
#define MMI_NN_ROPE_H

#include "backend/exec.h"
#include "model/arch.h"

/* Whether YaRN lengthens the waves: only where there are more positions than the model was first trained with. */
bool mmi_rope_stretches(const mmi_arch *arch);

/* cos, sin [P, D/2] for positions 0 … P - 1, the amplitude multiplied in; computed in double precision. */
void mmi_rope_tables(float *cos, float *sin, const mmi_arch *arch, int64_t P);

/* Turn `heads` heads of D at each of N rows by the row's position; `inverse` turns back, which is the backward pass. */
void mmi_rope_apply(const mmi_exec *x, float *y, int64_t ld, const float *cos, const float *sin,
                    const int32_t *positions, int64_t N, int64_t heads, int64_t D, bool inverse);

#endif
