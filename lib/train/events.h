/* TensorBoard's event files: framed, checksummed records of protocol buffers. */
#ifndef MMI_TRAIN_EVENTS_H
#define MMI_TRAIN_EVENTS_H

#include "base/files.h"

/* Bytes of a message under construction; zeroed, it is empty. Running out of memory sticks. */
typedef struct mmi_proto {
    unsigned char *bytes;
    size_t size, room;
    bool failed;
} mmi_proto;

typedef struct mmi_events {
    mmi_appender file;
    mmi_proto summary; /* the values of the step that is being put together */
    mmi_proto part[3], event;
} mmi_events;

/* A new file in `directory`. What other files there hold from `step` on is declared void, as TensorBoard understands
 * it; -1: nothing is. A zeroed struct is ready for opening and for closing; a failed one is to be closed. */
mm_status mmi_events_open(mmi_events *events, const char *directory, int64_t step);
void mmi_events_close(mmi_events *events);

/* Put a step together, value by value; then write it, or on failure nothing. */
void mmi_events_begin(mmi_events *events);
void mmi_events_scalar(mmi_events *events, const char *name, double value);
void mmi_events_text(mmi_events *events, const char *name, const char *text, size_t length);
mm_status mmi_events_write(mmi_events *events, int64_t step, double time);

#endif
