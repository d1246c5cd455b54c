#include "backend/simd/simd.h"
#include "backend/simd/table.h"

#define TEXT(x) #x
#define TEXT_OF(x) TEXT(x)

/* Measured on Zen 3, which has 512 KiB of second-level cache. */
#define SLICE_AVX2 (256 << 10)

/* Measured on Zen 5, with AVX-512, with VNNI and without, AVX-VNNI and AVX2: some eight microseconds, in which a core
 * that shares no cache with another has given it what it needs, and taken what it made. Others, by their kernels'
 * speed. */
#define BLOCKS_WORTH (1 << 21)
#define BLOCKS_WORTH_SLOWER (1 << 19)

/* Part of a set's table, and all that an extension replaces. */
void SIMD(kernels_init_blocks)(mmi_kernels *k)
{
    k->name = TEXT_OF(MMI_ISA);
#if ISA_IS_X86 && !ISA_IS(avxvnni) /* which has the set's below it */
    k->quantize = SIMD(quantize);
#endif
    k->gemm_blocks = SIMD(gemm_blocks);
    k->slice_blocks = ISA_IS(avx2) ? SLICE_AVX2 : 0;
    k->blocks_worth = ISA_IS(avx2) || !ISA_IS_X86 ? BLOCKS_WORTH_SLOWER : BLOCKS_WORTH;
}

#if ISA_IS(vnni)
void mmi_kernels_init_blocks_asking(mmi_kernels *k)
{
    SIMD(kernels_init_blocks)(k);
    k->gemm_blocks = SIMD(gemm_blocks_asking);
}
#endif
