/* Whether a pass of few rows is better left to the caller's thread. */
#ifndef MMI_RUN_ALONE_H
#define MMI_RUN_ALONE_H

#include <stdbool.h>
#include <stdint.h>

/* A small model's pass is over before another thread is of much use. How much it is of depends on whether their
 * processors are far apart, or one core's two halves, and on who else wants them, and a virtual machine's host changes
 * all of that from one second to the next. So it is not foreseen but tried: now and then some passes are made with all
 * threads and some without the others, and until the next time the better of the two is kept. Results have the same
 * bits either way. */
typedef struct mmi_trial {
    int64_t rows; /* of the passes that this is about; 0: none so far */
    int32_t stage, left;
    int32_t wait;   /* passes from one time to the next: longer where nothing has changed */
    double best[2]; /* seconds: with all threads, and alone */
    bool alone;     /* what came out */
} mmi_trial;

#define MMI_TRIALS 8 /* numbers of rows that take turns, mostly */

/* That of passes of so many rows, which takes the place of another number's where it must. NULL: they are always worth
 * all threads. */
mmi_trial *mmi_trial_of(mmi_trial trials[MMI_TRIALS], int64_t rows);

/* Whether the next pass is to be made alone. */
bool mmi_trial_alone(const mmi_trial *t);

/* It took so long, on a pool of so many threads, which is crowded or not. */
void mmi_trial_took(mmi_trial *t, double seconds, int threads, bool crowded);

#endif
