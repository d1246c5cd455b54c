/* A pool of threads for short, similar pieces of work. The cutting is the caller's and follows shapes, never the number
 * of threads, so results have the same bits with any number. */
#ifndef MMI_BASE_POOL_H
#define MMI_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mmi_pool mmi_pool;

/* Does piece `piece`; `worker` in [0, threads) tells whose scratch memory to use. */
typedef void (*mmi_piece_fn)(void *arg, int64_t piece, int32_t worker);

/* A host's own loop: calls piece(arg, i, worker) for every i in [0, pieces), returns when all have. */
typedef void (*mmi_parallel_for_fn)(void *user, int64_t pieces, mmi_piece_fn piece, void *arg);

/* `threads` counts the caller: 1 makes no thread at all. With `host` none is made either; it has `threads` workers. */
mm_status mmi_pool_create(int threads, mmi_pool **out);
mm_status mmi_pool_create_on(mmi_parallel_for_fn host, void *user, int threads, mmi_pool **out);
void mmi_pool_free(mmi_pool *pool);
int mmi_pool_threads(const mmi_pool *pool);
int mmi_pool_own_threads(const mmi_pool *pool); /* that run now; 1 where a host brings its own, about which nothing is known */

/* Until it is told otherwise, the caller does all pieces. */
void mmi_pool_stay_alone(mmi_pool *pool, bool alone);

/* Bytes that mmi_pool_create takes, for the estimate. */
size_t mmi_pool_bytes(int threads);

/* Call fn(arg, i, worker) for every i in [0, pieces), on the caller's thread and the pool's; return when all are done.
 * Pieces of the pool's own threads start in order. Not reentrant, and one caller at a time. */
void mmi_pool_run(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg);

/* The same where neighbouring pieces read neighbouring memory, and all take as long: each thread begins with a run of
 * them, in order, and then helps the others. A host of its own deals them out as it likes. */
void mmi_pool_run_neighbours(mmi_pool *pool, int64_t pieces, mmi_piece_fn fn, void *arg);

/* In a pass more jobs are sure to come soon, so workers look around for longer before they sleep; and after one that
 * came soon behind the one before it. A caller may be in several, one inside the other. */
void mmi_pool_enter_pass(mmi_pool *pool);
void mmi_pool_leave_pass(mmi_pool *pool);
double mmi_pool_time_awake(const mmi_pool *pool); /* in seconds without a job, at most, as of now */

/* Other threads want the workers' processors, so that these sleep more often. */
bool mmi_pool_is_crowded(const mmi_pool *pool);

/* How many of so many pieces are a run. */
int64_t mmi_pool_run_length(const mmi_pool *pool, int64_t pieces);

#endif
