/**
 * @file data.h
 * From files to batches: JSON-lines data sets and the loader that turns their rows into ids and targets.
 */
#ifndef MINIMIND_DATA_H
#define MINIMIND_DATA_H

#include <minimind/context.h>
#include <minimind/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mm_dataset mm_dataset;
typedef struct mm_loader mm_loader;

/**
 * Open a JSON-lines file of pretraining rows, {"text": "…"}. The file is read once to find where its lines begin; rows
 * are read when they are needed. Empty lines are passed over; the last line may lack its end.
 *
 * @param path  Must stay as it is while the data set is in use; rows that change are reported as MM_ERR_IO.
 * @param out   Yours: pair it with mm_dataset_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_FORMAT, no row in it; MM_ERR_MEMORY.
 *
 * Threads: may be shared for reading. Since: 0.1
 */
MM_API mm_status mm_dataset_open(const char *path, mm_dataset **out);

/** Give the data set back; its memory goes with the last loader that uses it. NULL is fine. Since: 0.1 */
MM_API void mm_dataset_free(mm_dataset *dataset);

/** Rows in it. Since: 0.1 */
MM_API int64_t mm_dataset_rows(const mm_dataset *dataset);

/**
 * The text of a row.
 *
 * @param text    Room for `capacity` bytes; NULL with capacity 0 only asks for the size.
 * @param needed  Its bytes, without a closing NUL; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, no such row, or `capacity` too small (and not 0); MM_ERR_IO; MM_ERR_MEMORY;
 *         MM_ERR_FORMAT, not JSON, or no "text" that is a string: the message has the file and the line's number.
 *         Since: 0.1
 */
MM_API mm_status mm_dataset_text(mm_dataset *dataset, int64_t row, char *text, size_t capacity, size_t *needed);

/** How rows become batches. */
enum {
    MM_ROWS_PAD = 0, /**< one row each, cut and padded: MiniMind2's form without bos and eos, T = max_length - 1 */
    MM_ROWS_PAD3 = 1, /**< the same in MiniMind-3's form: bos, text, eos; T = max_length */
    MM_ROWS_PACK = 2 /**< bos, text, eos end to end in rows of max_length that see only their own document */
};

typedef struct mm_loader_options {
    size_t struct_size;     /**< sizeof(mm_loader_options) */
    uint64_t seed;          /**< of the shuffle */
    int32_t batch;          /**< rows per batch */
    int32_t max_length;     /**< ids per row, at least 2 */
    int32_t form;           /**< MM_ROWS_… */
    int32_t shuffle;        /**< 1: each epoch in an order of its own, computed from (seed, epoch, row) */
    int32_t skip_bad_lines; /**< 1: pass over rows that cannot be read and count them */
    int32_t bos_id;         /**< -1: none */
    int32_t eos_id;         /**< -1: none */
    int32_t pad_id;
} mm_loader_options;
#define MM_LOADER_OPTIONS_INIT { sizeof(mm_loader_options), 0, 8, 512, MM_ROWS_PAD, 1, 0, 1, 2, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_loader_options_init(mm_loader_options *options, size_t struct_size);

/**
 * A loader over a data set.
 *
 * @param dataset    Kept alive by the loader.
 * @param tokenizer  Kept alive by the loader.
 * @param out        Yours: pair it with mm_loader_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY. Threads: one call at a time. Since: 0.1
 */
MM_API mm_status mm_loader_create(mm_dataset *dataset, mm_tokenizer *tokenizer, const mm_loader_options *options,
                                  mm_loader **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_loader_free(mm_loader *loader);

/** Tokens per row of its batches: T. Since: 0.1 */
MM_API int32_t mm_loader_length(const mm_loader *loader);

/**
 * The next batch of the epoch: ids, targets and, when packing, document_ids, in MM_TRAIN mode. The arrays are lent by
 * the loader until its next call. The last batch of an epoch may have fewer rows.
 *
 * @param batch  Set, with batch->batch 0 at the end of the epoch; the call after that begins the next one.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY; MM_ERR_FORMAT, a bad line (see skip_bad_lines): the loader
 *         stands where it stood. Since: 0.1
 */
MM_API mm_status mm_loader_next(mm_loader *loader, mm_batch *batch);

/** Where a loader stands; enough to go on from there. */
typedef struct mm_loader_position {
    size_t struct_size; /**< sizeof(mm_loader_position) */
    int64_t epoch;      /**< from 0 */
    int64_t row;        /**< rows of the epoch begun or done */
    int64_t offset;     /**< when packing: tokens of the current document already given */
    int64_t skipped;    /**< bad lines passed over so far */
} mm_loader_position;
#define MM_LOADER_POSITION_INIT { sizeof(mm_loader_position), 0, 0, 0, 0 }

/** Set every field of `position` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_loader_position_init(mm_loader_position *position, size_t struct_size);

/**
 * Where it stands, and going there: what follows is what would have followed.
 *
 * @return MM_OK; MM_ERR_ARG, no such place; of mm_loader_seek() into a document also what reading that may give:
 *         MM_ERR_IO, MM_ERR_FORMAT, MM_ERR_MEMORY. On failure the loader stands where it stood. Since: 0.1
 */
MM_API mm_status mm_loader_tell(const mm_loader *loader, mm_loader_position *out);
MM_API mm_status mm_loader_seek(mm_loader *loader, const mm_loader_position *position);

#ifdef __cplusplus
}
#endif

#endif
