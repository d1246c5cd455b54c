/* One case of datasets/dataset_cases.jsonl, for golden_text. */
#ifndef MM_TESTS_GOLDEN_DATASETS_H
#define MM_TESTS_GOLDEN_DATASETS_H

#include <minimind.h>
#include <stdbool.h>

#include "base/json.h"

/* What cases share: the tokenizer of each generation, and a file to put their rows into. Zeroed, it is ready but for
 * `tokenizers`, the directory that holds one for each generation. */
typedef struct golden_datasets {
    const char *tokenizers;
    mm_tokenizer *loaded[16];
    char names[16][64];
    char row_path[512];
} golden_datasets;

/* True if the library reads the case's row as it says. False: `story` tells what differed. */
bool golden_datasets_case(golden_datasets *g, char *story, size_t size, const mmi_json *item);

void golden_datasets_end(golden_datasets *g);

#endif
