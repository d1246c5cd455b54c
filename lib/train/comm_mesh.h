/* Ranks that are all connected with each other, and the one step that every collective call is made of: everybody sends
 * something to everybody, and has received all that is due when it returns.
 *
 * Each step's bytes travel behind a frame that says which step it is and how much follows. Nothing of that is used but
 * to compare it with what is due here, so a peer can be wrong but can't do harm. */
#ifndef MMI_TRAIN_COMM_MESH_H
#define MMI_TRAIN_COMM_MESH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MMI_STORY 400 /* bytes of a message that goes round */

/* What a frame belongs to. */
typedef enum mmi_talk {
    MMI_TALK_NOTICE, /* a rank leaves: the frame's total is the status, the story follows */
    MMI_TALK_REDUCE,
    MMI_TALK_REDUCE_F64,
    MMI_TALK_BROADCAST,
    MMI_TALK_BARRIER,
    MMI_TALKS
} mmi_talk;

/* What goes before a step's bytes, little-endian as everything here. */
typedef struct mmi_frame {
    uint32_t magic, talk;
    uint64_t step;
    uint64_t total; /* bytes of the whole call; the status, of a notice */
    uint64_t bytes; /* that follow */
    int32_t origin; /* the rank that a notice is about */
    uint32_t reserved;
} mmi_frame;

/* The connection to one rank. A caller sets what is to be sent and received before each step. */
typedef struct mmi_link {
    int fd; /* -1: oneself, or not connected */
    const void *out;
    void *in;
    size_t out_size, in_size;
    size_t out_done, in_done; /* frame included */
    mmi_frame out_frame, in_frame;
} mmi_link;

typedef struct mmi_mesh {
    int32_t rank, size;
    double timeout;   /* seconds without a byte */
    uint64_t step;    /* exchanges so far */
    mmi_link *links;  /* [size] */
    void *polls;      /* [size], of the system's form */
    mm_status broken; /* MM_OK, or what every call says from now on, with the story */
    char story[MMI_STORY + 1];
} mmi_mesh;

/* Links are not connected yet. On failure there is nothing to free. */
mm_status mmi_mesh_make(mmi_mesh *mesh, int32_t rank, int32_t size, double timeout);
void mmi_mesh_free(mmi_mesh *mesh); /* a zeroed one is fine */

/* Exchange what the links say; `total` is the size of the whole call, on which all ranks must agree. */
mm_status mmi_mesh_exchange(mmi_mesh *mesh, mmi_talk talk, uint64_t total);

/* Clear what the links are to send and receive. */
void mmi_mesh_clear(mmi_mesh *mesh);

/* Leave, telling the others why. Once broken, a mesh stays so. Returns `status` with the message. */
mm_status mmi_mesh_break(mmi_mesh *mesh, mm_status status, const char *story);

/* The same, when rank `p` has ended its side: with the message that it or another left, or that it is gone. */
mm_status mmi_mesh_lost(mmi_mesh *mesh, int32_t p);

#endif
