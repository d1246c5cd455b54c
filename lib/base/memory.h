/* The one place memory comes from: counted, overflow-checked, 64-byte aligned, and able to fail on demand. */
#ifndef MMI_BASE_MEMORY_H
#define MMI_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Alignment of every block: a cache line, and the widest vector. */
#define MMI_ALIGN 64

/* count · size bytes, or NULL (overflow included; no message). Zero bytes give a block that can be freed. */
void *mmi_alloc(size_t count, size_t size);
void *mmi_calloc(size_t count, size_t size);

/* Grow or shrink; on failure NULL, and `memory` is untouched. mmi_realloc(NULL, …) allocates. */
void *mmi_realloc(void *memory, size_t count, size_t size);

/* NULL is fine. */
void mmi_free(void *memory);

/* A copy of `length` bytes with a NUL behind them, or NULL. */
char *mmi_strndup(const char *text, size_t length);
char *mmi_strdup(const char *text);

/* Ask for large pages where whole ones lie in [memory, memory + size); NULL with 0 is fine. Weights are read from end
 * to end again and again, and the processor then looks up far fewer addresses (measured where this runs as a guest: 16
 * GB/s became 23). Blocks of 4 MiB or more that don't come from a host's allocator are asked for so already; this is
 * for what is mapped. A wish; nothing depends on it. */
void mmi_ask_for_large_pages(const void *memory, size_t size);

/* MM_ERR_MEMORY with a message that says how much was wanted for what. */
mm_status mmi_fail_memory(size_t bytes, const char *what);

/* `size` rounded up to MMI_ALIGN. */
size_t mmi_align_up(size_t size);

/* Make room for `needed` elements in a growing array: where they don't fit, at least doubles `*capacity`. False when
 * memory ran out. */
bool mmi_grow(void *array_pointer, size_t *capacity, size_t needed, size_t size);

/* A block cut into parts is no larger: what it takes is an int64_t, and so is the sum of what a few take. */
#define MMI_MOST_CARVED ((size_t)(SIZE_MAX / 2 < INT64_MAX / 16 ? SIZE_MAX : INT64_MAX / 16))

/* Bytes behind each part of a guarded block that is cut into parts: AddressSanitizer tells of whoever touches them. */
#if defined(__SANITIZE_ADDRESS__)
#define MMI_GUARD MMI_ALIGN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MMI_GUARD MMI_ALIGN
#endif
#endif
#ifndef MMI_GUARD
#define MMI_GUARD 0
#endif

/* Cutting one block into parts. With base NULL nothing is touched: `used` then says how large the block must be. Run
 * the same cuts twice, first to measure, then to place, and a plan can't disagree with its allocation. */
typedef struct mmi_carve {
    unsigned char *base;
    size_t used;
    bool overflow;
    bool guarded; /* MMI_GUARD bytes are behind each part; the block is cut in this one way */
} mmi_carve;

/* `count` elements of `size` bytes, aligned; NULL while measuring. */
void *mmi_carve_take(mmi_carve *carve, int64_t count, size_t size);

/* [a, b] float32 likewise; their product may be beyond int64_t. */
float *mmi_carve_floats(mmi_carve *carve, int64_t a, int64_t b);

/* For tests: the n-th allocation from now on fails (1 is the next one), and all later ones with `forever`. 0 ends it.
 * Returns how many allocations were counted since the last call. */
uint64_t mmi_memory_fail_at(uint64_t n, bool forever);

#endif
