/* How fast memory is read, by threads that do nothing else. */
#define _GNU_SOURCE /* madvise, CPU_SET */

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <threads.h>

#include "bench.h"

#define AT_LEAST ((size_t)1 << 30) /* bytes to read for one figure */
#define WARM_UP 4                  /* times that all is read before, by all readers together, ... */
#define MEETING ((size_t)1 << 18)  /* ... who wait for each other after so many bytes */
#define LARGE_PAGE ((size_t)2 << 20)

typedef uint64_t words __attribute__((vector_size(16)));
#define STREAMS 4
#define LINE_WORDS 4
#define AHEAD ((2 << 10) / sizeof(words))

typedef struct stretch {
    const words *data;
    size_t count; /* a multiple of STREAMS * LINE_WORDS */
} stretch;

/* Where readers wait for each other. */
typedef struct meeting {
    atomic_int readers; /* 0: it is not known yet how many there are */
    atomic_long come;   /* all times */
} meeting;

typedef struct reader {
    int cpu; /* to read on; -1 for any */
    stretch all, own;
    int times;
    meeting *meeting;
    long met;
    double start, end;
    uint64_t sum; /* so that nothing is optimised away */
} reader;

/* `any`: the processors that this thread may have. The scheduler takes longer to find a second one for a new thread
 * than a reading lasts, so each reader has its own while it reads; more readers than processors are left to the
 * scheduler. */
static void name_cpus(reader *readers, int n, const cpu_set_t *any)
{
    for (int i = 0, cpu = 0; i < n; i++, cpu++) {
        while (n <= CPU_COUNT(any) && !CPU_ISSET(cpu, any))
            cpu++;
        readers[i].cpu = n <= CPU_COUNT(any) ? cpu : -1;
    }
}

static void move_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    if (cpu < 0)
        return;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* As several streams, a line of each in turn, and asking ahead of time: memory answers that faster. */
static uint64_t read_times(stretch what, int times)
{
    words sum[STREAMS] = { 0 };
    const size_t run = what.count / STREAMS;
    for (int t = 0; t < times; t++) {
        for (size_t i = 0; i < run; i += LINE_WORDS)
            for (int s = 0; s < STREAMS; s++) {
                const words *line = what.data + (size_t)s * run + i;
                __builtin_prefetch(line + AHEAD);
                sum[s] += (line[0] + line[1]) + (line[2] + line[3]);
            }
        sum[0][0] += (uint64_t)t;
    }
    return sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
}

static void meet(reader *r)
{
    r->met++;
    atomic_fetch_add(&r->meeting->come, 1);
    for (;;) {
        long readers = atomic_load(&r->meeting->readers);
        if (readers > 0 && atomic_load(&r->meeting->come) >= r->met * readers)
            return;
        thrd_yield();
    }
}

/* First all of it, together with the others: what ran before has had the caches to itself, and what several cores have
 * read at the same time may come faster, of which the library makes use. */
static int read_own(void *arg)
{
    reader *r = arg;
    const size_t most = MEETING / sizeof(words);
    move_to(r->cpu);
    for (int t = 0; t < WARM_UP; t++)
        for (size_t i = 0; i < r->all.count; i += most) {
            meet(r);
            r->sum += read_times((stretch){ r->all.data + i, r->all.count - i < most ? r->all.count - i : most }, 1);
        }
    meet(r);
    r->start = now();
    r->sum += read_times(r->own, r->times);
    r->end = now();
    return 0;
}

void reading_open(reading *r, size_t size)
{
    size_t rounded = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    r->size = size;
    r->data = need(aligned_alloc(LARGE_PAGE, rounded));
    madvise(r->data, rounded, MADV_HUGEPAGE); /* as the library asks for its own */
    memset(r->data, 1, rounded);
}

double reading_rate(const reading *r, int threads)
{
    reader readers[MOST_RUNS];
    thrd_t handles[MOST_RUNS];
    cpu_set_t any;
    int n = threads < MOST_RUNS ? threads : MOST_RUNS, started = 1, times = (int)(1 + AT_LEAST / r->size);
    const words *data = (const words *)(const void *)r->data;
    size_t each = r->size / sizeof(words) / (size_t)n / (STREAMS * LINE_WORDS) * (STREAMS * LINE_WORDS);
    meeting meeting = { 0 };
    CPU_ZERO(&any); /* stays so, and readers go where they like, should the next line fail */
    sched_getaffinity(0, sizeof any, &any);
    for (int i = 0; i < n; i++)
        readers[i] = (reader){ .all = { data, each * (size_t)n },
                               .own = { data + (size_t)i * each, each },
                               .times = times,
                               .meeting = &meeting };
    name_cpus(readers, n, &any);
    while (started < n && thrd_create(&handles[started], read_own, &readers[started]) == thrd_success)
        started++;
    atomic_store(&meeting.readers, started);
    read_own(&readers[0]);
    double start = readers[0].start, end = readers[0].end;
    for (int i = 1; i < started; i++) {
        thrd_join(handles[i], NULL);
        start = readers[i].start < start ? readers[i].start : start;
        end = readers[i].end > end ? readers[i].end : end;
    }
    if (CPU_COUNT(&any) > 0)
        sched_setaffinity(0, sizeof any, &any);
    return (double)started * (double)each * sizeof(words) * times / (end - start);
}

void reading_close(reading *r)
{
    free(r->data);
    r->data = NULL;
}
