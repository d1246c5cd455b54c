/* Which tables there are, and which one a name or a processor gets. */
#include "backend/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <minimind/context.h>

#include "backend/simd/simd.h"

/* On Granite Rapids two threads read 105 MB at 58 GB/s for 53 without, 52 MB at 59 for 56; from 1 to 4 KiB are much
 * alike. On Emerald Rapids bf16 is decoded 1.10 times as fast. On Zen 3 streams that lie far apart come no faster so,
 * on Zen 4 slower by a fifth. */
#define INTEL_AHEAD 2048

void mmi_kernels_init(mmi_kernels *k, unsigned cpu)
{
    const bool intel = cpu & MMI_CPU_INTEL;
    (void)intel;
    mmi_kernels_init_c(k);
#if MM_HAVE_AVX2
    if (cpu & MMI_CPU_AVX2)
        mmi_kernels_init_avx2(k);
#endif
#if MM_HAVE_AVXVNNI
    if (cpu & MMI_CPU_AVXVNNI)
        mmi_kernels_init_blocks_avxvnni(k);
#endif
#if MM_HAVE_AVX512
    if (cpu & MMI_CPU_AVX512)
        mmi_kernels_init_avx512(k);
    if (cpu & MMI_CPU_AVX512 && intel)
        k->gemv_ahead = INTEL_AHEAD;
#endif
#if MM_HAVE_VNNI
    if (cpu & MMI_CPU_VNNI)
        (intel ? mmi_kernels_init_blocks_asking : mmi_kernels_init_blocks_vnni)(k);
#endif
#if MM_HAVE_BF16
    if (cpu & MMI_CPU_BF16)
        (intel ? mmi_kernels_init_bf16_row : mmi_kernels_init_bf16)(k);
#endif
#if MM_HAVE_AMX
    if (cpu & MMI_CPU_AMX)
        mmi_kernels_init_amx(k);
#endif
#if MM_HAVE_NEON
    if (cpu & MMI_CPU_NEON)
        mmi_kernels_init_neon(k);
#endif
#if MM_HAVE_DOT
    if (cpu & MMI_CPU_DOT)
        mmi_kernels_init_blocks_dot(k);
#endif
}

#define AVXVNNI (MMI_CPU_AVX2 | MMI_CPU_AVXVNNI)
#define AVX512 (MMI_CPU_AVX2 | MMI_CPU_AVX512)
#define VNNI (AVX512 | MMI_CPU_VNNI)
#define BF16 (VNNI | MMI_CPU_BF16)
#define INTEL(sets) ((sets) | MMI_CPU_INTEL)

/* Slowest first, and all sets of instructions before OpenBLAS, which comes with whatever else the processor has, so its
 * rows differ in that only. Only Intel has tiles. */
static const mmi_path paths[] = {
    { "c", 0, 0 },
    { "avx2", MMI_CPU_AVX2, 0 },
    { "avxvnni", AVXVNNI, 0 },
    { "avx512", AVX512, 0 },
    { "vnni", VNNI, 0 },
    { "bf16", BF16, 0 },
    { "avx512", INTEL(AVX512), 0 },
    { "vnni", INTEL(VNNI), 0 },
    { "bf16", INTEL(BF16), 0 },
    { "amx", INTEL(BF16 | MMI_CPU_AMX), 0 },
    { "neon", MMI_CPU_NEON, 0 },
    { "dot", MMI_CPU_NEON | MMI_CPU_DOT, 0 },
#if MM_HAVE_OPENBLAS
    { "openblas", 0, 1 },
    { "openblas", MMI_CPU_AVX2, 1 },
    { "openblas", AVXVNNI, 1 },
    { "openblas", AVX512, 1 },
    { "openblas", VNNI, 1 },
    { "openblas", BF16, 1 },
    { "openblas", INTEL(AVX512), 1 },
    { "openblas", INTEL(VNNI), 1 },
    { "openblas", INTEL(BF16), 1 },
    { "openblas", INTEL(BF16 | MMI_CPU_AMX), 1 },
    { "openblas", MMI_CPU_NEON, 1 },
    { "openblas", MMI_CPU_NEON | MMI_CPU_DOT, 1 },
#endif
};
#define PATH_COUNT ((int32_t)(sizeof paths / sizeof paths[0]))

/* OpenBLAS comes with all that is used of this processor. */
static bool can_run(const mmi_path *path, unsigned cpu)
{
    if (path->blas)
        return path->cpu == (cpu & MMI_CPU_AVX512 ? cpu & ~(unsigned)MMI_CPU_AVXVNNI : cpu);
    bool other_maker = path->cpu & MMI_CPU_AVX512 && (path->cpu ^ cpu) & MMI_CPU_INTEL;
    return (path->cpu & cpu) == path->cpu && !other_maker;
}

const mmi_path *mmi_path_of(unsigned cpu, int32_t index)
{
    for (int32_t i = 0; i < PATH_COUNT && index >= 0; i++)
        if (can_run(&paths[i], cpu) && index-- == 0)
            return &paths[i];
    return NULL;
}

const mmi_path *mmi_path_get(int32_t index)
{
    return mmi_path_of(mmi_cpu_flags(), index);
}

int32_t mmi_path_count(void)
{
    unsigned cpu = mmi_cpu_flags();
    int32_t count = 0;
    while (mmi_path_of(cpu, count))
        count++;
    return count;
}

const mmi_path *mmi_path_find(const char *name)
{
    int32_t count = mmi_path_count();
    if (!name)
        return mmi_path_get(count - 1);
    for (int32_t i = 0; i < count; i++) {
        const mmi_path *path = mmi_path_get(i);
        if (strcmp(path->name, name) == 0)
            return path;
    }
    return NULL;
}

const char *mmi_path_processor(const mmi_path *path)
{
    const mmi_path *own = paths;
    while (own->cpu != path->cpu)
        own++;
    return own->name;
}

int32_t mm_kernels_count(void)
{
    return mmi_path_count();
}

const char *mm_kernels_name(int32_t index)
{
    const mmi_path *path = mmi_path_get(index);
    return path ? path->name : NULL;
}
