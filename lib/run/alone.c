#include "run/alone.h"

#include <math.h>
#include <stddef.h>

#define MOST_ROWS 64        /* more are worth all threads in any model */
#define LONGEST 1e-3        /* seconds that a pass would take alone at most; in longer ones threads meet seldom */
#define TRIES 4             /* of each kind: the first wakes those who sleep, or has them look around still */
#define HOPELESS 1.25       /* so much slower than with all threads, one try alone is enough */
#define STALLS_IN_CROWD 1.1 /* what the best of a few tries does not show */
#define FIRST_WAIT 64
#define LONGEST_WAIT 4096

enum { WAITING, TOGETHER, ALONE };

mmi_trial *mmi_trial_of(mmi_trial trials[MMI_TRIALS], int64_t rows)
{
    mmi_trial *t = &trials[rows % MMI_TRIALS];
    if (rows >= MOST_ROWS)
        return NULL;
    if (t->rows != rows)
        *t = (mmi_trial){ .rows = rows, .left = FIRST_WAIT / 4, .wait = FIRST_WAIT };
    return t;
}

bool mmi_trial_alone(const mmi_trial *t)
{
    return t->stage == WAITING ? t->alone : t->stage == ALONE;
}

static void try_next(mmi_trial *t, int32_t stage)
{
    t->stage = stage;
    t->left = TRIES;
    t->best[stage - TOGETHER] = INFINITY;
}

static void decide(mmi_trial *t, bool alone, bool clear)
{
    const int32_t longer = t->wait * (clear ? 4 : 2);
    t->wait = t->alone != alone ? FIRST_WAIT : longer < LONGEST_WAIT ? longer : LONGEST_WAIT;
    t->alone = alone;
    t->stage = WAITING;
    t->left = t->wait;
}

void mmi_trial_took(mmi_trial *t, double seconds, int threads, bool crowded)
{
    t->left--;
    if (t->stage == WAITING) {
        if (t->left <= 0)
            try_next(t, TOGETHER);
        return;
    }
    double *best = t->best;
    best[t->stage - TOGETHER] = fmin(best[t->stage - TOGETHER], seconds);
    if (t->stage == ALONE && best[1] > best[0] * HOPELESS)
        decide(t, false, true);
    else if (t->left > 0)
        return;
    else if (t->stage == ALONE)
        decide(t, best[1] <= best[0] * (crowded ? STALLS_IN_CROWD : 1), false);
    else if (best[0] * threads > LONGEST)
        decide(t, false, true);
    else
        try_next(t, ALONE);
}
