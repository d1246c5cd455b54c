/**
 * @file status.h
 * How libminimind reports what went wrong.
 *
 * Every function that can fail returns an mm_status. The code is for programs; mm_last_error() holds the
 * story for people: what failed, where, the value found and the value allowed.
 *
 * Since: 0.1
 */
#ifndef MINIMIND_STATUS_H
#define MINIMIND_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define MM_API __attribute__((visibility("default")))
#else
#define MM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** One of the MM_OK, MM_ERR_… values below. Their numbers never change. */
typedef int32_t mm_status;

enum {
    MM_OK = 0,              /**< Done. */
    MM_ERR_ARG = 1,         /**< An argument is out of its range: a null pointer, an id, a shape, a key. */
    MM_ERR_MEMORY = 2,      /**< Memory ran out. */
    MM_ERR_IO = 3,          /**< A file could not be opened, read, written, synced or renamed. */
    MM_ERR_FORMAT = 4,      /**< A file was read, but what it says is damaged or contradicts itself. */
    MM_ERR_UNSUPPORTED = 5, /**< Well-formed, but something this library does not do. */
    MM_ERR_STATE = 6,       /**< The call does not fit what was done before it. */
    MM_ERR_NUMERIC = 7,     /**< A number came out as NaN or infinite where it must not be. */
    MM_ERR_CANCELLED = 8,   /**< mm_cancel(), or a callback that asked to stop. */
    MM_ERR_INTERNAL = 9     /**< A bug in the library. */
};

/**
 * The constant's name, such as "MM_ERR_FORMAT"; "unknown status" for any other number.
 *
 * The string is static. Threads: any. Since: 0.1
 */
MM_API const char *mm_status_name(mm_status status);

/**
 * What the last failing call on this thread had to say, in one line without an end of line.
 *
 * Lent by the library until the next call on the same thread that returns an mm_status; never NULL, empty when nothing
 * failed yet. A call that succeeds may change it, as where it passed over a bad line: read it only right after a status
 * other than MM_OK.
 *
 * Threads: any; each has its own. Since: 0.1
 */
MM_API const char *mm_last_error(void);

/**
 * For a function of the program's own that fails: keep `message` for mm_last_error() on this thread, and return `status`, so
 * that `return mm_set_last_error(MM_ERR_IO, "the link is down")` reads well. The library puts its own words before what a
 * function of an mm_comm (comm.h) says so. Other callbacks return no status, and what they say is overwritten.
 *
 * @param message  Copied, at most 1023 bytes; NULL for an empty one. Threads: any. Since: 0.1
 */
MM_API mm_status mm_set_last_error(mm_status status, const char *message);

#ifdef __cplusplus
}
#endif

#endif
