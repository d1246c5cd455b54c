#define _DEFAULT_SOURCE /* madvise */

#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <minimind/library.h>

#include "base/options.h"

/* Who may touch what. */
#if MMI_GUARD > 0
#include <sanitizer/asan_interface.h>
#define FORBID(from, size) ASAN_POISON_MEMORY_REGION(from, size)
#define ALLOW(from, size) ASAN_UNPOISON_MEMORY_REGION(from, size)
#else
#define FORBID(from, size) ((void)(from), (void)(size))
#define ALLOW(from, size) ((void)(from), (void)(size))
#endif

#define LARGE_PAGE ((size_t)2 << 20)

/* Sits right before every block. */
typedef struct header {
    void *raw;   /* what the allocator gave */
    size_t size; /* what was asked for */
} header;

static struct {
    void *user;
    void *(*allocate)(void *user, size_t size); /* NULL: malloc */
    void (*release)(void *user, void *memory);
} source;

static atomic_uint_fast64_t current, peak, count;
static atomic_uint_fast64_t fail_countdown, seen_since;
static atomic_bool fail_forever;

static bool fails_now(void)
{
    atomic_fetch_add_explicit(&seen_since, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    if (atomic_fetch_sub(&fail_countdown, 1) != 1)
        return false;
    if (atomic_load(&fail_forever))
        atomic_store(&fail_countdown, 1);
    return true;
}

uint64_t mmi_memory_fail_at(uint64_t n, bool forever)
{
    atomic_store(&fail_forever, forever);
    atomic_store(&fail_countdown, n);
    return atomic_exchange(&seen_since, 0);
}

static void count_in(size_t size)
{
    uint64_t now = atomic_fetch_add(&current, size) + size;
    uint64_t most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) { }
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
}

void mmi_ask_for_large_pages(const void *memory, size_t size)
{
#ifdef MADV_HUGEPAGE
    uintptr_t start = ((uintptr_t)memory + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)(LARGE_PAGE - 1);
    if (start < end)
        madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)memory;
    (void)size;
#endif
}

static void *take(size_t items, size_t size, bool zero)
{
    if (size != 0 && items > (SIZE_MAX - 2 * MMI_ALIGN) / size)
        return NULL;
    if (fails_now())
        return NULL;
    size_t bytes = items * size;
    size_t room = bytes + MMI_ALIGN + sizeof(header);
    void *raw;
    if (source.allocate)
        raw = source.allocate(source.user, room);
    else
        raw = zero ? calloc(1, room) : malloc(room); /* calloc leaves fresh pages untouched */
    if (!raw)
        return NULL;
    if (!source.allocate && room >= 2 * LARGE_PAGE)
        mmi_ask_for_large_pages(raw, room);
    uintptr_t start = ((uintptr_t)raw + sizeof(header) + MMI_ALIGN - 1) & ~(uintptr_t)(MMI_ALIGN - 1);
    header *h = (header *)start - 1;
    h->raw = raw;
    h->size = bytes;
    if (zero && source.allocate)
        memset((void *)start, 0, bytes);
    count_in(bytes);
    return (void *)start;
}

void *mmi_alloc(size_t items, size_t size)
{
    return take(items, size, false);
}

void *mmi_calloc(size_t items, size_t size)
{
    return take(items, size, true);
}

void mmi_free(void *memory)
{
    if (!memory)
        return;
    header *h = (header *)memory - 1;
    ALLOW(memory, h->size); /* to whoever has it next */
    atomic_fetch_sub(&current, h->size);
    if (source.allocate)
        source.release(source.user, h->raw);
    else
        free(h->raw);
}

void *mmi_realloc(void *memory, size_t items, size_t size)
{
    void *fresh = mmi_alloc(items, size);
    if (!fresh || !memory)
        return fresh;
    size_t held = ((header *)memory - 1)->size;
    memcpy(fresh, memory, held < items * size ? held : items * size);
    mmi_free(memory);
    return fresh;
}

char *mmi_strndup(const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = mmi_alloc(length + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *mmi_strdup(const char *text)
{
    return mmi_strndup(text, strlen(text));
}

mm_status mmi_fail_memory(size_t bytes, const char *what)
{
    return mmi_fail(MM_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

size_t mmi_align_up(size_t size)
{
    return (size + MMI_ALIGN - 1) & ~(size_t)(MMI_ALIGN - 1);
}

bool mmi_grow(void *array_pointer, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t larger = *capacity < 8 ? 8 : *capacity;
    while (larger < needed) {
        if (larger > SIZE_MAX / 2)
            return false;
        larger *= 2;
    }
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    array = mmi_realloc(array, larger, size);
    if (!array)
        return false;
    memcpy(array_pointer, &array, sizeof array);
    *capacity = larger;
    return true;
}

void *mmi_carve_take(mmi_carve *carve, int64_t items, size_t size)
{
    if (items < 0 || (size != 0 && (uint64_t)items > (MMI_MOST_CARVED - MMI_ALIGN - MMI_GUARD) / size)) {
        carve->overflow = true;
        return NULL;
    }
    const size_t asked = (size_t)items * size, bytes = mmi_align_up(asked) + (carve->guarded ? MMI_GUARD : 0);
    if (carve->used > MMI_MOST_CARVED - bytes) {
        carve->overflow = true;
        return NULL;
    }
    unsigned char *part = carve->base ? carve->base + carve->used : NULL;
    carve->used += bytes;
    if (part && carve->guarded) {
        ALLOW(part, asked);
        FORBID(part + asked, bytes - asked);
    }
    return part;
}

float *mmi_carve_floats(mmi_carve *carve, int64_t a, int64_t b)
{
    int64_t items;
    if (__builtin_mul_overflow(a, b, &items))
        items = -1; /* refused below */
    return mmi_carve_take(carve, items, sizeof(float));
}

mm_status mm_set_allocator(const mm_allocator *allocator)
{
    mm_allocator given = { sizeof given, NULL, NULL, NULL };
    if (allocator) {
        mm_status status = mmi_options_read(&given, sizeof given, allocator, "mm_allocator");
        if (status != MM_OK)
            return status;
        if (!given.allocate || !given.release)
            return mmi_fail(MM_ERR_ARG, "an allocator needs both allocate and release");
    }
    if (atomic_load(&current) != 0)
        return mmi_fail(MM_ERR_STATE, "the allocator can't change while %llu bytes of the present one are in use",
                        (unsigned long long)atomic_load(&current));
    source.user = given.user;
    source.allocate = given.allocate;
    source.release = given.release;
    return MM_OK;
}

MMI_OPTIONS_INIT(mm_memory_usage, MM_MEMORY_USAGE_INIT)

mm_status mm_memory_get_usage(mm_memory_usage *usage)
{
    mm_memory_usage now = MM_MEMORY_USAGE_INIT;
    now.current = atomic_load(&current);
    now.peak = atomic_load(&peak);
    now.count = atomic_load(&count);
    return mmi_result_write(usage, &now, sizeof now, "mm_memory_usage");
}

void mm_memory_reset_peak(void)
{
    atomic_store(&peak, atomic_load(&current));
}
