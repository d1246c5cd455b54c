/* What the targets share that resume from a damaged checkpoint. The first byte of an input says which file the rest
 * stands for: 0 to 3 one of `files`, 4 to 6 members of state.json, 7 all of it. */
#ifndef MM_TESTS_FUZZ_RESUME_H
#define MM_TESTS_FUZZ_RESUME_H

#include "fuzz.h"

typedef struct fuzz_run {
    void (*make)(mm_trainer **out, const char *output); /* one that leaves a checkpoint after its second step */
    const char *files[4];
} fuzz_run;

int fuzz_resume(const fuzz_run *run, const uint8_t *data, size_t size);

/* A trainer of a small model on `rows`, whose second step is the last. */
void fuzz_trainer(mm_trainer **out, const char *rows, const mm_loader_options *lo, mm_trainer_options *to);

#endif
