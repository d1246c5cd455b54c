#include "backend/simd/simd.h"
#include "backend/simd/table.h"

/* All that the extension replaces. */
void mmi_kernels_init_bf16(mmi_kernels *k)
{
    k->name = "bf16";
    k->gemv_rows_rounded = SIMD(gemv_rows_rounded);
    k->gemm_slice_rounded = SIMD(gemm_slice_rounded);
}
