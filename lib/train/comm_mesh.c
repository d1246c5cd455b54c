#include "train/comm_mesh.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "train/comm_socket.h"

#define MAGIC 0x52464D4Du /* "MMFR" */

/* Seconds that the others get to say why they left, and to read why we did. */
#define GRACE 0.2
#define FAREWELL 1.0

_Static_assert(sizeof(mmi_frame) == 40, "a frame is sent as it lies in memory");

static const char *talk_name(uint32_t talk)
{
    static const char *const names[MMI_TALKS] = { "a farewell", "all_reduce", "all_reduce_f64", "broadcast",
                                                  "barrier" };
    return talk < MMI_TALKS ? names[talk] : "nothing known";
}

/* --- Life --- */

mm_status mmi_mesh_make(mmi_mesh *mesh, int32_t rank, int32_t size, double timeout)
{
    memset(mesh, 0, sizeof *mesh);
    mesh->links = mmi_calloc((size_t)size, sizeof *mesh->links);
    mesh->polls = mmi_calloc((size_t)size, sizeof(struct pollfd));
    if (!mesh->links || !mesh->polls) {
        mmi_free(mesh->links);
        mmi_free(mesh->polls);
        return mmi_fail_memory((size_t)size * sizeof *mesh->links, "connections");
    }
    mesh->rank = rank;
    mesh->size = size;
    mesh->timeout = timeout;
    for (int32_t p = 0; p < size; p++)
        mesh->links[p].fd = -1;
    return MM_OK;
}

/* Closing a connection of TCP with bytes unread would take back what was sent last: read until the other side has
 * closed, too, but not for long. */
static void let_them_read(mmi_mesh *mesh)
{
    char nobody_cares[4096];
    double end = mmi_now() + FAREWELL;
    for (int32_t p = 0; p < mesh->size; p++)
        while (mesh->links[p].fd >= 0 && mmi_socket_receive_all(mesh->links[p].fd, nobody_cares, 1, end))
            while (mmi_socket_receive(mesh->links[p].fd, nobody_cares, sizeof nobody_cares) > 0)
                continue;
}

void mmi_mesh_free(mmi_mesh *mesh)
{
    if (mesh->broken != MM_OK)
        let_them_read(mesh);
    for (int32_t p = 0; p < mesh->size && mesh->links; p++)
        mmi_socket_close(mesh->links[p].fd);
    mmi_free(mesh->links);
    mmi_free(mesh->polls);
    memset(mesh, 0, sizeof *mesh);
}

void mmi_mesh_clear(mmi_mesh *mesh)
{
    for (int32_t p = 0; p < mesh->size; p++) {
        mesh->links[p].out_size = mesh->links[p].in_size = 0;
        mesh->links[p].out = mesh->links[p].in = NULL;
    }
}

/* --- Breaking --- */

/* What broke it, again. */
static mm_status tell_again(const mmi_mesh *mesh)
{
    return mmi_fail(mesh->broken, "%s", mesh->story);
}

static bool all_sent(const mmi_link *link)
{
    return link->out_done == sizeof(mmi_frame) + link->out_size;
}

static bool all_received(const mmi_link *link)
{
    return link->in_done == sizeof(mmi_frame) + link->in_size;
}

/* Tell everybody whom a whole frame can still be told, and stop sending. */
static mm_status leave(mmi_mesh *mesh, mm_status status, int32_t origin, const char *story)
{
    mesh->broken = status;
    snprintf(mesh->story, sizeof mesh->story, "%s", story);
    mmi_frame frame = { MAGIC, MMI_TALK_NOTICE, mesh->step, (uint64_t)status, strlen(mesh->story), origin, 0 };
    for (int32_t p = 0; p < mesh->size; p++) {
        mmi_link *link = &mesh->links[p];
        if (link->fd < 0)
            continue;
        if (link->out_done == 0 || all_sent(link)) /* if it does not fit at once, the connection's end must do */
            mmi_socket_send(link->fd, &frame, sizeof frame, mesh->story, strlen(mesh->story));
        mmi_socket_finish(link->fd);
    }
    return tell_again(mesh);
}

mm_status mmi_mesh_break(mmi_mesh *mesh, mm_status status, const char *story)
{
    return mesh->broken != MM_OK ? tell_again(mesh) : leave(mesh, status, mesh->rank, story);
}

/* A notice of rank `p`, whose frame is here: it tells of some rank, not always of itself. */
static mm_status heed_notice(mmi_mesh *mesh, int32_t p)
{
    char text[MMI_STORY + 1] = "", story[2 * MMI_STORY];
    const mmi_frame *frame = &mesh->links[p].in_frame;
    bool itself = frame->origin == p;
    const bool says_why = frame->bytes > 0 && frame->bytes <= MMI_STORY &&
                          mmi_socket_receive_all(mesh->links[p].fd, text, (size_t)frame->bytes, mmi_now() + FAREWELL);
    mm_status status = frame->total == 0 || frame->total > MM_ERR_INTERNAL ? MM_ERR_IO : (mm_status)frame->total;
    if (!says_why)
        snprintf(story, sizeof story, "rank %d gave up and did not say why", p);
    else if (itself)
        snprintf(story, sizeof story, "rank %d gave up: %s", p, text);
    else
        snprintf(story, sizeof story, "%s", text); /* it names the rank */
    const bool met = mesh->step > 0;               /* until then it failed to come; nobody asked it to leave */
    return leave(mesh, itself && met ? MM_ERR_CANCELLED : status, frame->origin, story);
}

/* Is the next frame of a link here, and a notice? */
static bool has_notice(mmi_link *link)
{
    while (link->fd >= 0 && link->in_done < sizeof(mmi_frame)) {
        int64_t got = mmi_socket_receive(link->fd, (unsigned char *)&link->in_frame + link->in_done,
                                         sizeof(mmi_frame) - link->in_done);
        if (got <= 0)
            return false;
        link->in_done += (size_t)got;
    }
    return link->fd >= 0 && link->in_done == sizeof(mmi_frame) && link->in_frame.magic == MAGIC &&
           link->in_frame.talk == MMI_TALK_NOTICE;
}

/* "rank 2 is gone …"; of several, all: some may have left for the others' sake, in the midst of a step. */
static mm_status tell_the_lost(mmi_mesh *mesh, int32_t p)
{
    char ranks[MMI_STORY / 2] = "", story[MMI_STORY];
    int32_t count = 0;
    for (int32_t q = 0; q < mesh->size; q++) {
        bool gone = q == p || mmi_socket_ended(mesh->links[q].fd);
        size_t used = strlen(ranks);
        if (gone && used + 16 < sizeof ranks)
            snprintf(ranks + used, sizeof ranks - used, "%s%d", count > 0 ? ", " : "", q);
        count += gone;
    }
    snprintf(story, sizeof story, "%s %s %s gone: %s ended, or the way there is cut", count > 1 ? "ranks" : "rank",
             ranks, count > 1 ? "are" : "is", count > 1 ? "their processes" : "its process");
    return leave(mesh, MM_ERR_IO, p, story);
}

/* Rank `p` may be the one that died, or one that left for another's death before we saw that: whoever left in good
 * order says so, at once or behind the last of a step. */
mm_status mmi_mesh_lost(mmi_mesh *mesh, int32_t p)
{
    poll(NULL, 0, (int)(1000 * GRACE));
    for (int32_t i = 0; i < 2 * mesh->size; i++) {
        mmi_link *link = &mesh->links[i / 2];
        if (has_notice(link))
            return heed_notice(mesh, i / 2);
        if (all_received(link))
            link->in_done = 0;
    }
    return tell_the_lost(mesh, p);
}

/* --- One step --- */

/* A frame that is not the one that is due. */
static mm_status astray(mmi_mesh *mesh, int32_t p, const mmi_frame *due)
{
    char story[MMI_STORY];
    const mmi_frame *got = &mesh->links[p].in_frame;
    if (got->magic != MAGIC)
        snprintf(story, sizeof story, "rank %d sends bytes that are no frame", p);
    else
        snprintf(story, sizeof story,
                 "ranks do different things: rank %d is in step %llu, %s of %llu bytes; rank %d in step %llu, %s of "
                 "%llu bytes",
                 p, (unsigned long long)got->step, talk_name(got->talk), (unsigned long long)got->total, mesh->rank,
                 (unsigned long long)due->step, talk_name(due->talk), (unsigned long long)due->total);
    return leave(mesh, MM_ERR_STATE, p, story);
}

static mm_status push(mmi_mesh *mesh, int32_t p)
{
    mmi_link *link = &mesh->links[p];
    while (!all_sent(link)) {
        size_t framed = link->out_done < sizeof(mmi_frame) ? link->out_done : sizeof(mmi_frame);
        size_t done = link->out_done - framed;
        const unsigned char *bytes = link->out;
        int64_t sent = mmi_socket_send(link->fd, (unsigned char *)&link->out_frame + framed, sizeof(mmi_frame) - framed,
                                       bytes ? bytes + done : NULL, link->out_size - done);
        if (sent < 0)
            return mmi_mesh_lost(mesh, p);
        if (sent == 0)
            break;
        link->out_done += (size_t)sent;
    }
    return MM_OK;
}

static bool is_due(const mmi_link *link, const mmi_frame *due)
{
    const mmi_frame *got = &link->in_frame;
    return got->magic == MAGIC && got->talk == due->talk && got->step == due->step && got->total == due->total &&
           got->bytes == link->in_size;
}

static mm_status pull(mmi_mesh *mesh, int32_t p, const mmi_frame *due)
{
    mmi_link *link = &mesh->links[p];
    while (!all_received(link)) {
        bool framing = link->in_done < sizeof(mmi_frame);
        unsigned char *to = framing ? (unsigned char *)&link->in_frame + link->in_done :
                                      (unsigned char *)link->in + (link->in_done - sizeof(mmi_frame));
        size_t end = sizeof(mmi_frame) + (framing ? 0 : link->in_size);
        int64_t got = mmi_socket_receive(link->fd, to, end - link->in_done);
        if (got < 0)
            return mmi_mesh_lost(mesh, p);
        if (got == 0)
            break;
        link->in_done += (size_t)got;
        if (!framing || link->in_done < sizeof(mmi_frame))
            continue;
        if (has_notice(link))
            return heed_notice(mesh, p);
        if (!is_due(link, due))
            return astray(mesh, p, due);
    }
    return MM_OK;
}

static mm_status silent(mmi_mesh *mesh)
{
    char story[MMI_STORY];
    int32_t who = 0, more = -1;
    for (int32_t p = mesh->size; p-- > 0;)
        if (mesh->links[p].fd >= 0 && !(all_received(&mesh->links[p]) && all_sent(&mesh->links[p]))) {
            who = p;
            more++;
        }
    snprintf(story, sizeof story, "rank %d has not answered for %g seconds%s", who, mesh->timeout,
             more > 0 ? ", nor have others" : "");
    return leave(mesh, MM_ERR_IO, who, story);
}

/* Serve the links that poll() found ready. */
static mm_status move_bytes(mmi_mesh *mesh, const mmi_frame *due, bool *moved)
{
    const struct pollfd *polls = mesh->polls;
    *moved = false;
    for (int32_t p = 0; p < mesh->size; p++) {
        mmi_link *link = &mesh->links[p];
        if (link->fd < 0 || polls[p].revents == 0)
            continue;
        size_t before = link->in_done + link->out_done;
        mm_status status = push(mesh, p);
        if (status == MM_OK)
            status = pull(mesh, p, due);
        if (status != MM_OK)
            return status;
        *moved = *moved || link->in_done + link->out_done != before;
    }
    return MM_OK;
}

/* What each link still waits for; false: nothing. */
static bool unfinished(mmi_mesh *mesh)
{
    struct pollfd *polls = mesh->polls;
    bool any = false;
    for (int32_t p = 0; p < mesh->size; p++) {
        const mmi_link *link = &mesh->links[p];
        short events = (short)((all_received(link) ? 0 : POLLIN) | (all_sent(link) ? 0 : POLLOUT));
        polls[p] = (struct pollfd){ .fd = events != 0 ? link->fd : -1, .events = events };
        any = any || polls[p].fd >= 0;
    }
    return any;
}

static void begin_step(mmi_mesh *mesh, const mmi_frame *due)
{
    struct pollfd *polls = mesh->polls;
    for (int32_t p = 0; p < mesh->size; p++) {
        mmi_link *link = &mesh->links[p];
        link->out_frame = *due;
        link->out_frame.bytes = link->out_size;
        link->in_done = link->out_done = 0;
        polls[p].revents = POLLOUT; /* what is small goes at once */
    }
}

mm_status mmi_mesh_exchange(mmi_mesh *mesh, mmi_talk talk, uint64_t total)
{
    if (mesh->broken != MM_OK)
        return tell_again(mesh);
    const mmi_frame due = { MAGIC, (uint32_t)talk, mesh->step, total, 0, mesh->rank, 0 };
    begin_step(mesh, &due);
    double heard = mmi_now();
    for (;;) {
        bool moved;
        mm_status status = move_bytes(mesh, &due, &moved);
        if (status != MM_OK)
            return status;
        if (!unfinished(mesh))
            break;
        double now = mmi_now();
        heard = moved ? now : heard;
        double left = heard + mesh->timeout - now;
        if (left <= 0)
            return silent(mesh);
        poll(mesh->polls, (nfds_t)mesh->size, left > 3600 ? 3600000 : (int)(1000 * left) + 1);
    }
    for (int32_t p = 0; p < mesh->size; p++)
        mesh->links[p].in_done = mesh->links[p].out_done = 0;
    mesh->step++;
    return MM_OK;
}
