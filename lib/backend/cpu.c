/* What this processor has of what this build can use. */
#define _DEFAULT_SOURCE /* syscall */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernels.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static unsigned bit(unsigned word, int number)
{
    return word >> number & 1;
}

/* Which register files the system saves on a task switch. Using one that it does not save would corrupt it. */
static unsigned saved_state(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool is_intel(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

static unsigned processor_flags(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) /* OSXSAVE */
        return 0;
    unsigned fma = bit(c, 12), f16c = bit(c, 29), avx = bit(c, 28), saved = saved_state();
    if (!avx || (saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    if (!bit(b, 5) || !fma || !f16c)
        return 0;
    unsigned flags = MMI_CPU_AVX2;
#if MM_EMULATE_AVX512
    return flags | MMI_CPU_AVXVNNI | MMI_CPU_AVX512 | MMI_CPU_VNNI | MMI_CPU_BF16 | MMI_CPU_AMX | MMI_CPU_INTEL;
#endif
    unsigned more = 0, unused[3]; /* EAX of the next subleaf, if there is one */
    if (a > 0)
        __get_cpuid_count(7, 1, &more, &unused[0], &unused[1], &unused[2]);
    flags |= bit(more, 4) ? MMI_CPU_AVXVNNI : 0u;
    if (bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31) && (saved & 0xE6) == 0xE6) { /* F, DQ, BW, VL */
        flags |= MMI_CPU_AVX512 | (is_intel() ? MMI_CPU_INTEL : 0u);
        if (bit(c, 11)) {
            flags |= MMI_CPU_VNNI;
            unsigned tiles = bit(d, 24) && bit(d, 22) && bit(d, 25) && (saved & 0x60000) == 0x60000; /* bf16, bytes */
            if (bit(more, 5))
                flags |= MMI_CPU_BF16 | (tiles ? MMI_CPU_AMX | MMI_CPU_INTEL : 0u); /* only Intel has them */
        }
    }
    return flags;
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static int has_dot(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#else
static int has_dot(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return 1; /* the compiler was told so */
#else
    return 0;
#endif
}
#endif

static unsigned processor_flags(void)
{
    return MMI_CPU_NEON | (has_dot() ? MMI_CPU_DOT : 0u); /* NEON is part of the architecture */
}
#else
static unsigned processor_flags(void)
{
    return 0;
}
#endif

/* What is left of `flags` where MM_CPU pretends a lesser processor, or one of the other maker: the name of its best
 * instruction set, with AVX-512 maybe followed by "-amd" or "-intel". Another name changes nothing, nor do "amx"
 * and "dot", which leave out nothing. The names of one architecture leave the other with its first set. */
static unsigned pretend(unsigned flags)
{
    enum { AVX512 = MMI_CPU_AVX2 | MMI_CPU_AVX512 | MMI_CPU_INTEL };
    static const struct {
        const char *name;
        unsigned flags;
    } caps[] = {
        { "c", 0 },
        { "avx2", MMI_CPU_AVX2 | MMI_CPU_NEON },
        { "avxvnni", MMI_CPU_AVX2 | MMI_CPU_AVXVNNI | MMI_CPU_NEON },
        { "avx512", AVX512 | MMI_CPU_NEON },
        { "vnni", AVX512 | MMI_CPU_VNNI | MMI_CPU_NEON },
        { "bf16", AVX512 | MMI_CPU_VNNI | MMI_CPU_BF16 | MMI_CPU_NEON },
        { "neon", MMI_CPU_AVX2 | MMI_CPU_NEON },
    };
    const char *name = getenv("MM_CPU");
    for (size_t i = 0; name && i < sizeof caps / sizeof *caps; i++) {
        const size_t length = strlen(caps[i].name);
        if (strncmp(name, caps[i].name, length) != 0)
            continue;
        const char *maker = name + length;
        const unsigned left = flags & caps[i].flags;
        if (!*maker)
            return left;
        if (caps[i].flags & MMI_CPU_AVX512 && strcmp(maker, "-amd") == 0)
            return left & ~(unsigned)MMI_CPU_INTEL;
        if (caps[i].flags & MMI_CPU_AVX512 && strcmp(maker, "-intel") == 0)
            return left | (left & MMI_CPU_AVX512 ? MMI_CPU_INTEL : 0u);
    }
    return flags;
}

/* Asked once: on a virtual machine the host answers, and takes tens of microseconds. */
static unsigned known_flags(void)
{
    enum { ASKED = 1 << 30 };
    static atomic_uint known;
    unsigned flags = atomic_load_explicit(&known, memory_order_relaxed);
    if (!(flags & ASKED)) {
        flags = processor_flags() | ASKED;
        atomic_store_explicit(&known, flags, memory_order_relaxed);
    }
    return flags & ~(unsigned)ASKED;
}

#if MM_EMULATE_AVX512
static bool may_use_tiles(void)
{
    return true;
}
#elif MM_HAVE_AMX && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Linux saves 8 KiB of tiles only for a process that has asked, and from then on wants alternate signal stacks to have
 * room for them: it refuses where one in use has not. */
static bool may_use_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#else
static bool may_use_tiles(void)
{
    return false;
}
#endif

unsigned mmi_cpu_flags(void)
{
    unsigned built = 0;
#if MM_HAVE_AVX2
    built |= MMI_CPU_AVX2;
#endif
#if MM_HAVE_AVXVNNI
    built |= MMI_CPU_AVXVNNI;
#endif
#if MM_HAVE_AVX512
    built |= MMI_CPU_AVX512 | MMI_CPU_INTEL;
#endif
#if MM_HAVE_VNNI
    built |= MMI_CPU_VNNI;
#endif
#if MM_HAVE_BF16
    built |= MMI_CPU_BF16;
#endif
#if MM_HAVE_AMX
    built |= MMI_CPU_AMX;
#endif
#if MM_HAVE_NEON
    built |= MMI_CPU_NEON;
#endif
#if MM_HAVE_DOT
    built |= MMI_CPU_DOT;
#endif
    unsigned flags = pretend(known_flags() & built);
    bool refused = flags & MMI_CPU_AMX && !may_use_tiles();
    return refused ? flags & ~(unsigned)MMI_CPU_AMX : flags;
}
