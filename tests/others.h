/* Tests that are run twice: as the processor is, and with MM_CPU as one of another maker (MM_TEST_OTHER=1). */
#ifndef MM_TESTS_OTHERS_H
#define MM_TESTS_OTHERS_H

#include <minimind.h>
#include <stdbool.h>

/* Whether MM_CPU changes nothing, so that they would only show again what they show without it. */
bool others_show_as_much(void);

/* For each kernel path by its number, but those that the same tests meet without MM_CPU. */
#define EACH_KERNELS(index)                                                                                             \
    for (int32_t index = kernels_from(0); index < mm_kernels_count(); index = kernels_from(index + 1))

/* The first of them from `index` on; mm_kernels_count() past the last. */
int32_t kernels_from(int32_t index);

#endif
