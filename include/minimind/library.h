/**
 * @file library.h
 * The library as a whole: its version, its memory, its log.
 *
 * These are the only settings that all handles share. Make them once, before any other call: changing the allocator
 * while handles exist is refused.
 */
#ifndef MINIMIND_LIBRARY_H
#define MINIMIND_LIBRARY_H

#include <minimind/status.h>
#include <minimind/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the library that runs, as MM_VERSION. Threads: any. Since: 0.1 */
MM_API uint32_t mm_version(void);

/** The same as text, such as "0.1.0". Static. Threads: any. Since: 0.1 */
MM_API const char *mm_version_string(void);

/** Where the library takes its memory. Both functions must be callable from any thread. */
typedef struct mm_allocator {
    size_t struct_size;                             /**< sizeof(mm_allocator) */
    void *user;                                     /**< handed to both functions */
    void *(*allocate)(void *user, size_t size);     /**< as malloc: NULL when there is none */
    void (*release)(void *user, void *memory);      /**< as free; never called with NULL */
} mm_allocator;

/**
 * Take memory from the host's allocator instead of malloc.
 *
 * JSON comes from a library that keeps using malloc; so does OpenBLAS.
 *
 * @param allocator  Copied; NULL goes back to malloc.
 *
 * @return MM_OK; MM_ERR_ARG, a function is missing; MM_ERR_STATE, memory of the present allocator is still in use.
 *
 * Threads: not while any other call runs. Since: 0.1
 */
MM_API mm_status mm_set_allocator(const mm_allocator *allocator);

/** Bytes the library itself asked for and has not given back; its own bookkeeping is not counted. */
typedef struct mm_memory_usage {
    size_t struct_size; /**< sizeof(mm_memory_usage) */
    uint64_t current;   /**< held now, in bytes */
    uint64_t peak;      /**< the most held at once since the start or the last mm_memory_reset_peak() */
    uint64_t count;     /**< allocations made since the start */
} mm_memory_usage;
#define MM_MEMORY_USAGE_INIT { sizeof(mm_memory_usage), 0, 0, 0 }

/** Set every field of `usage` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_memory_usage_init(mm_memory_usage *usage, size_t struct_size);

/** How much memory the library holds. @return MM_OK; MM_ERR_ARG. Threads: any. Since: 0.1 */
MM_API mm_status mm_memory_get_usage(mm_memory_usage *usage);

/** Let the peak start again from what is held now. Threads: any. Since: 0.1 */
MM_API void mm_memory_reset_peak(void);

enum {
    MM_LOG_ERROR = 0,
    MM_LOG_WARNING = 1,
    MM_LOG_INFO = 2,
    MM_LOG_DEBUG = 3
};

/** Receives one line without its end; `message` is lent for the call. May be called from any thread. */
typedef void (*mm_log_fn)(void *user, int32_t level, const char *message);

/**
 * Say where the library's remarks go. Until then it is silent: it never prints by itself.
 *
 * @param log    NULL for silence.
 * @param user   Handed to `log`.
 * @param level  The most talkative level wanted, MM_LOG_ERROR to MM_LOG_DEBUG.
 *
 * Threads: not while any other call runs. Since: 0.1
 */
MM_API void mm_set_log(mm_log_fn log, void *user, int32_t level);

#ifdef __cplusplus
}
#endif

#endif
