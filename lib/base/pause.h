/* A hint to the processor that this thread spins: a neighbour on the same core may have its time. */
#ifndef MMI_BASE_PAUSE_H
#define MMI_BASE_PAUSE_H

static inline void mmi_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
    __asm__ volatile("yield");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f"); /* "pause" is Zihintpause's; to other processors it is a fence of nothing */
#endif
}

#endif
