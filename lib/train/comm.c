/* The built-in communicators: collective calls as exchanges between all ranks.
 *
 * A large sum is taken in rounds. In each, rank p gets part p from everybody, adds in the order of the ranks and gives
 * the sum to everybody: every byte goes over each wire as rarely as possible, 2 (size - 1) / size times. A small one is
 * sent whole to everybody, who adds for itself: one step instead of two. The order of the additions is the same in
 * both. */
#include <minimind/comm.h>

#include <math.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"
#include "train/comm_join.h"

MMI_OPTIONS_INIT(mm_comm, MM_COMM_INIT)
MMI_OPTIONS_INIT(mm_comm_options, MM_COMM_OPTIONS_INIT)

#define MOST_RANKS 1024
#define SMALL 4096                /* bytes: up to here a sum takes one step */
#define STAGING ((size_t)4 << 20) /* bytes that wait to be added, of all ranks together */
#define BLOCK 256                 /* numbers added at a time, in the first level of cache */

/* A communicator and what it stands on. */
typedef struct comm {
    mm_comm table; /* first: the handle */
    mmi_mesh mesh;
    unsigned char *staging; /* [size, slot] */
    size_t slot;            /* bytes of each rank in it, a multiple of 64 */
} comm;

/* --- Sums --- */

/* out[i] = terms[0][i] + terms[1][i] + …; `out` may be one of the terms. */
typedef void (*sum_fn)(void *out, const void *const *terms, int32_t count, size_t n);

#define DEFINE_SUM(name, type)                                                                                         \
    static void name(void *out, const void *const *terms, int32_t count, size_t n)                                     \
    {                                                                                                                  \
        type sum[BLOCK];                                                                                               \
        for (size_t at = 0; at < n; at += BLOCK) {                                                                     \
            size_t m = n - at < BLOCK ? n - at : BLOCK;                                                                \
            memcpy(sum, (const type *)terms[0] + at, m * sizeof *sum);                                                 \
            for (int32_t t = 1; t < count; t++) {                                                                      \
                const type *term = (const type *)terms[t] + at;                                                        \
                for (size_t i = 0; i < m; i++)                                                                         \
                    sum[i] += term[i];                                                                                 \
            }                                                                                                          \
            memcpy((type *)out + at, sum, m * sizeof *sum);                                                            \
        }                                                                                                              \
    }
DEFINE_SUM(sum_f32, float)
DEFINE_SUM(sum_f64, double)

/* What is added: its size and how. */
typedef struct kind {
    mmi_talk talk;
    size_t size;
    sum_fn sum;
} kind;

static const kind f32 = { MMI_TALK_REDUCE, sizeof(float), sum_f32 };
static const kind f64 = { MMI_TALK_REDUCE_F64, sizeof(double), sum_f64 };

/* Where part `p` of `n` things begins; the end of the last is part `size`. */
static size_t part(size_t n, int32_t p, int32_t size)
{
    return n / (size_t)size * (size_t)p + n % (size_t)size * (size_t)p / (size_t)size;
}

/* This rank's `n` at `own` and those of the others in the staging area, added in the order of the ranks. */
static void add_in_order(const comm *c, const kind *k, void *own, size_t n)
{
    const void *terms[MOST_RANKS];
    for (int32_t p = 0; p < c->mesh.size; p++)
        terms[p] = p == c->mesh.rank ? own : c->staging + (size_t)p * c->slot;
    k->sum(own, terms, c->mesh.size, n);
}

static mm_status reduce_small(comm *c, const kind *k, void *data, size_t n)
{
    for (int32_t p = 0; p < c->mesh.size; p++) {
        mmi_link *link = &c->mesh.links[p];
        link->out = data;
        link->in = c->staging + (size_t)p * c->slot;
        link->out_size = link->in_size = n * k->size;
    }
    mm_status status = mmi_mesh_exchange(&c->mesh, k->talk, n * k->size);
    if (status == MM_OK)
        add_in_order(c, k, data, n);
    return status;
}

/* Everybody has part `rank` of `data`; then all have all. */
static mm_status gather(comm *c, mmi_talk talk, unsigned char *data, size_t n, size_t size, uint64_t total)
{
    const mmi_mesh *m = &c->mesh;
    size_t own = part(n, m->rank, m->size), own_end = part(n, m->rank + 1, m->size);
    for (int32_t p = 0; p < m->size; p++) {
        size_t first = part(n, p, m->size), end = part(n, p + 1, m->size);
        mmi_link *link = &m->links[p];
        link->out = data + own * size;
        link->out_size = (own_end - own) * size;
        link->in = data + first * size;
        link->in_size = (end - first) * size;
    }
    return mmi_mesh_exchange(&c->mesh, talk, total);
}

static mm_status reduce_round(comm *c, const kind *k, unsigned char *data, size_t n, uint64_t total)
{
    const mmi_mesh *m = &c->mesh;
    size_t own = part(n, m->rank, m->size), own_n = part(n, m->rank + 1, m->size) - own;
    for (int32_t p = 0; p < m->size; p++) {
        size_t first = part(n, p, m->size), end = part(n, p + 1, m->size);
        mmi_link *link = &m->links[p];
        link->out = data + first * k->size;
        link->out_size = (end - first) * k->size;
        link->in = c->staging + (size_t)p * c->slot;
        link->in_size = own_n * k->size;
    }
    mm_status status = mmi_mesh_exchange(&c->mesh, k->talk, total);
    if (status != MM_OK)
        return status;
    add_in_order(c, k, data + own * k->size, own_n);
    return gather(c, k->talk, data, n, k->size, total);
}

static mm_status reduce(comm *c, const kind *k, void *data, int64_t count)
{
    if (count < 0 || (!data && count > 0))
        return mmi_fail(MM_ERR_ARG, "all_reduce: %s", data ? "count is below 0" : "data is NULL");
    if (c->mesh.size == 1)
        return MM_OK;
    size_t n = (size_t)count, round = (size_t)c->mesh.size * (c->slot / k->size);
    if (n * k->size <= SMALL)
        return reduce_small(c, k, data, n);
    mm_status status = MM_OK;
    for (size_t at = 0; at < n && status == MM_OK; at += round)
        status = reduce_round(c, k, (unsigned char *)data + at * k->size, n - at < round ? n - at : round, n * k->size);
    return status;
}

/* --- The table --- */

static mm_status all_reduce(void *user, float *data, int64_t count)
{
    return reduce(user, &f32, data, count);
}

static mm_status all_reduce_f64(void *user, double *data, int64_t count)
{
    return reduce(user, &f64, data, count);
}

/* The root deals out the parts, and they are gathered. */
static mm_status broadcast(void *user, void *data, size_t size, int32_t root)
{
    comm *c = user;
    mmi_mesh *m = &c->mesh;
    if (root < 0 || root >= m->size || (!data && size > 0))
        return mmi_fail(MM_ERR_ARG, "broadcast: %s", data ? "there is no such root" : "data is NULL");
    if (m->size == 1)
        return MM_OK;
    mmi_mesh_clear(m);
    bool small = size <= SMALL;
    unsigned char *bytes = data;
    for (int32_t p = 0; p < m->size; p++) {
        int32_t receiver = m->rank == root ? p : m->rank;
        size_t first = small ? 0 : part(size, receiver, m->size),
               end = small ? size : part(size, receiver + 1, m->size);
        if (m->rank == root) {
            m->links[p].out = bytes + first;
            m->links[p].out_size = end - first;
        } else if (p == root) {
            m->links[p].in = bytes + first;
            m->links[p].in_size = end - first;
        }
    }
    mm_status status = mmi_mesh_exchange(m, MMI_TALK_BROADCAST, size);
    return status == MM_OK && !small ? gather(c, MMI_TALK_BROADCAST, bytes, size, 1, size) : status;
}

static mm_status barrier(void *user)
{
    comm *c = user;
    mmi_mesh_clear(&c->mesh);
    return c->mesh.size == 1 ? MM_OK : mmi_mesh_exchange(&c->mesh, MMI_TALK_BARRIER, 0);
}

static mm_status leave(void *user, const char *reason)
{
    comm *c = user;
    if (c->mesh.size > 1 && c->mesh.broken == MM_OK)
        mmi_mesh_break(&c->mesh, MM_ERR_CANCELLED, reason && *reason ? reason : "it gave no reason");
    return MM_OK;
}

/* --- Life --- */

static mm_status check_options(const mm_comm_options *o, int32_t rank, int32_t size)
{
    if (size < 1 || size > MOST_RANKS)
        return mmi_fail(MM_ERR_ARG, "communicator: size is %d, it must be 1 to %d", size, MOST_RANKS);
    if (rank < 0 || rank >= size)
        return mmi_fail(MM_ERR_ARG, "communicator: rank is %d, it must be 0 to %d", rank, size - 1);
    if (!(o->connect_seconds > 0) || !isfinite(o->connect_seconds))
        return mmi_fail(MM_ERR_ARG, "communicator: connect_seconds is %g, it must be finite and above 0",
                        o->connect_seconds);
    if (!(o->timeout_seconds > 0) || !isfinite(o->timeout_seconds))
        return mmi_fail(MM_ERR_ARG, "communicator: timeout_seconds is %g, it must be finite and above 0",
                        o->timeout_seconds);
    return MM_OK;
}

static comm *make(int32_t rank, int32_t size, const mm_comm_options *o)
{
    comm *c = mmi_calloc(1, sizeof *c);
    if (!c) {
        mmi_fail_memory(sizeof *c, "a communicator");
        return NULL;
    }
    c->slot = mmi_align_up(STAGING / (size_t)size);
    if (c->slot < SMALL)
        c->slot = SMALL;
    if (mmi_mesh_make(&c->mesh, rank, size, o->timeout_seconds) != MM_OK) {
        mmi_free(c);
        return NULL;
    }
    if (size > 1 && !(c->staging = mmi_alloc((size_t)size, c->slot))) {
        mmi_fail_memory((size_t)size * c->slot, "a communicator's buffers");
        mm_comm_free(&c->table);
        return NULL;
    }
    c->table = (mm_comm){ sizeof c->table, c, rank, size, all_reduce, all_reduce_f64, broadcast, barrier, leave };
    return c;
}

static mm_status create(const char *who, const char *name, bool local, int32_t rank, int32_t size,
                        const mm_comm_options *options, mm_comm **out)
{
    if (!name || !out)
        return mmi_fail(MM_ERR_ARG, "%s: %s is NULL", who, name ? "out" : local ? "path" : "address");
    mm_comm_options o = MM_COMM_OPTIONS_INIT;
    mm_status status = mmi_options_read(&o, sizeof o, options, "mm_comm_options");
    if (status == MM_OK)
        status = check_options(&o, rank, size);
    if (status != MM_OK)
        return status;
    comm *c = make(rank, size, &o);
    if (!c)
        return MM_ERR_MEMORY;
    const mmi_meeting meeting = { name, local, mmi_now() + o.connect_seconds };
    status = size > 1 ? mmi_join(&c->mesh, &meeting) : MM_OK;
    if (status != MM_OK) {
        mm_comm_free(&c->table);
        return status;
    }
    *out = &c->table;
    return MM_OK;
}

mm_status mm_comm_local_create(const char *path, int32_t rank, int32_t size, const mm_comm_options *options,
                               mm_comm **out)
{
    return create("mm_comm_local_create", path, true, rank, size, options, out);
}

mm_status mm_comm_tcp_create(const char *address, int32_t rank, int32_t size, const mm_comm_options *options,
                             mm_comm **out)
{
    return create("mm_comm_tcp_create", address, false, rank, size, options, out);
}

void mm_comm_free(mm_comm *table)
{
    if (!table)
        return;
    comm *c = (comm *)table;
    mmi_mesh_free(&c->mesh);
    mmi_free(c->staging);
    mmi_free(c);
}
