/* The tables of the instruction sets that this build has. Each one's files are compiled with flags of their own. */
#ifndef MMI_BACKEND_SIMD_SIMD_H
#define MMI_BACKEND_SIMD_SIMD_H

#include "backend/kernels.h"

/* Replace the slots that the instruction set does better. */
void mmi_kernels_init_avx2(mmi_kernels *k);
void mmi_kernels_init_avx512(mmi_kernels *k);
void mmi_kernels_init_neon(mmi_kernels *k);

/* Extensions, on top of a set: the products with weights in blocks alone; those of numbers rounded to bf16; or large
 * products of both kinds, and of float32. */
void mmi_kernels_init_blocks_avxvnni(mmi_kernels *k);
void mmi_kernels_init_blocks_vnni(mmi_kernels *k);
void mmi_kernels_init_blocks_asking(mmi_kernels *k); /* vnni's, as Intel's processors read W */
void mmi_kernels_init_blocks_dot(mmi_kernels *k);
void mmi_kernels_init_bf16(mmi_kernels *k);
void mmi_kernels_init_bf16_row(mmi_kernels *k); /* of a single row alone */
void mmi_kernels_init_amx(mmi_kernels *k);

#endif
