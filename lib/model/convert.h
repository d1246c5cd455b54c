/* Weights of one dtype as another. */
#ifndef MMI_MODEL_CONVERT_H
#define MMI_MODEL_CONVERT_H

#include <stdint.h>

/* out[i] = in[i] for n elements; both dtypes are MM_F32, MM_BF16 or MM_F16. To nearest, ties to even. Any alignment. */
void mmi_convert(void *out, int32_t to, const void *in, int32_t from, int64_t n);

#endif
