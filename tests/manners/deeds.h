/* What a program may ask of the library, to be tried under conditions that are not comfortable. */
#ifndef MM_TESTS_MANNERS_DEEDS_H
#define MM_TESTS_MANNERS_DEEDS_H

#include "support.h"

typedef struct deed {
    const char *name;
    mm_status (*run)(void); /* gives back all it made, whatever happens; the first status that is not MM_OK */
    bool trains;            /* so it takes long, and removes directories */
    bool alike;             /* it trains, as another does, for another objective */
} deed;

#define DEEDS 16
extern const deed deeds[DEEDS];

/* Files that the deeds need, in a directory of their own. */
void deeds_prepare(void);
extern const char *deeds_directory;

/* OpenBLAS ends the process when memory runs out; the library's own products don't touch it. */
#define DEEDS_KERNELS "c"

mm_status deeds_load_tokenizer(mm_tokenizer **out);

/* In deeds_learn.c. */
mm_status training_with_checkpoints(void);
mm_status learning_from_rewards(void);
mm_status learning_from_preferences(void);
mm_status learning_from_a_teacher(void);
mm_status learning_from_a_file(void);
mm_status training_an_adapter(void);
mm_status evaluating(void);
mm_status reporting(void);

#endif
