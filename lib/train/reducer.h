/* Sums over all ranks taken beside the work that makes the next ones: spans of numbers are posted, a thread of its own
 * sends them through the communicator in the order of posting. All ranks must post the same spans in the same order. */
#ifndef MMI_TRAIN_REDUCER_H
#define MMI_TRAIN_REDUCER_H

#include <stdint.h>

#include <minimind/comm.h>

/* What a communicator's function returned, as its caller goes on with it: a failure may come without a story, and as
 * MM_ERR_NUMERIC, which all ranks would know of if it were a run's own. Nothing is told (mm_set_last_error(MM_OK, ""))
 * before the call. */
mm_status mmi_comm_told(mm_status status, const char *function);

typedef struct mmi_reducer mmi_reducer;

/* `room`: spans that may wait at a time. `comm` is borrowed; nobody else uses it between a post and the wait behind it.
 */
mm_status mmi_reducer_create(mmi_reducer **out, const mm_comm *comm, int64_t room);
void mmi_reducer_free(mmi_reducer *reducer); /* NULL is fine */

/* data [count] becomes the sum over all ranks, some time before mmi_reducer_wait() returns. After a failure it is
 * passed over. */
void mmi_reducer_post(mmi_reducer *reducer, float *data, int64_t count);

/* Until all that was posted is done. The first failure since the last wait is told here, on the caller's thread. */
mm_status mmi_reducer_wait(mmi_reducer *reducer);

#endif
