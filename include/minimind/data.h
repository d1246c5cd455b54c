/**
 * @file data.h
 * From files to batches: JSON-lines data sets and the loader that turns their rows into ids and targets.
 *
 *     mm_dataset_open("sft.jsonl", &dataset);
 *     mm_loader_options options = MM_LOADER_OPTIONS_INIT;
 *     options.kind = MM_ROW_CHAT;
 *     mm_loader_create(dataset, tokenizer, &options, &loader);
 *     while (mm_loader_next(loader, &batch) == MM_OK && batch.batch > 0) …      one epoch
 *
 * Files are read row by row, never whole. Where rows begin is found by reading a file once; for a large one that is kept in
 * "FILE.mmidx" beside it, and made again when the file changes.
 *
 * A bad row (not JSON, not UTF-8, a field missing or of another type, a line that is too long, a conversation that its
 * template refuses) is MM_ERR_FORMAT, with file and line in the message; a loader passes over and counts such rows when asked.
 * A file that was shortened or changed while in use is MM_ERR_IO.
 */
#ifndef MINIMIND_DATA_H
#define MINIMIND_DATA_H

#include <minimind/chat.h>
#include <minimind/context.h>
#include <minimind/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Files of rows. */
typedef struct mm_dataset mm_dataset;
/** Turns the rows of a data set into batches. */
typedef struct mm_loader mm_loader;

/** Which rows of a split a data set has. */
enum {
    MM_SIDE_ALL = 0,
    MM_SIDE_TRAIN = 1,     /**< all but those kept apart */
    MM_SIDE_VALIDATION = 2 /**< those kept apart */
};

/** What a data set is made of. */
typedef struct mm_dataset_options {
    size_t struct_size;          /**< sizeof(mm_dataset_options) */
    const char *const *paths;    /**< [count] JSON-lines files */
    const double *weights;       /**< [count], or NULL for 1 each: how often an epoch takes each row of a file, above 0.
                                      1: once; 0.5: every other row, the rest in the next epoch; 3: three times */
    const int64_t *max_rows;     /**< [count], or NULL: only so many rows from the beginning of a file; 0: all */
    const char *index_directory; /**< where indices are kept, named after the files and a hash of where these are; NULL: beside
                                      each file. Where it can't be written, they are made anew each time, in memory */
    double validation;           /**< part of the rows that is kept apart, in [0, 1): by a hash of the row's own bytes, without its
                                      end, 0x0A or 0x0D 0x0A, so that it stays on its side wherever it moves, and equal rows stay
                                      together */
    int64_t cache_from;          /**< keep indices of files of so many bytes and more; -1: of none */
    int64_t max_line;            /**< longest line that is read, in bytes; a longer one is a bad row */
    int32_t count;               /**< files */
    int32_t side;                /**< MM_SIDE_… */
} mm_dataset_options;
#define MM_DATASET_OPTIONS_INIT { sizeof(mm_dataset_options), NULL, NULL, NULL, NULL, 0, 8388608, 67108864, 0, MM_SIDE_ALL }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_dataset_options_init(mm_dataset_options *options, size_t struct_size);

/**
 * Open JSON-lines files as one data set. Only byte 0x0A ends a line; empty lines are passed over; the last line may lack its
 * end; a byte order mark is passed over. Rows are not looked at before they are needed.
 *
 * @param options  The files must stay as they are while the data set is in use: rows of one that was changed or shortened
 *                 are MM_ERR_IO.
 * @param out      Yours: pair it with mm_dataset_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY; MM_ERR_FORMAT, no row in a file, or none on the side asked for.
 *
 * Threads: may be shared for reading. Since: 0.1
 */
MM_API mm_status mm_dataset_create(const mm_dataset_options *options, mm_dataset **out);

/** The same for one file, with the defaults. Since: 0.1 */
MM_API mm_status mm_dataset_open(const char *path, mm_dataset **out);

/** Give the data set back; its memory goes with the last loader that uses it. NULL is fine. Since: 0.1 */
MM_API void mm_dataset_free(mm_dataset *dataset);

/** Rows in it, each counted once; 0 for NULL. Since: 0.1 */
MM_API int64_t mm_dataset_rows(const mm_dataset *dataset);

/**
 * The "text" of a row.
 *
 * @param text    Room for `capacity` bytes; NULL with capacity 0 only asks for the size.
 * @param needed  Its bytes, without a closing NUL; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, no such row, or `capacity` too small (and not 0); MM_ERR_IO; MM_ERR_MEMORY;
 *         MM_ERR_FORMAT, not JSON, or no "text" that is a string: the message has the file and the line's number.
 *         Since: 0.1
 */
MM_API mm_status mm_dataset_text(mm_dataset *dataset, int64_t row, char *text, size_t capacity, size_t *needed);

/** The line of a row as it stands in its file, without its 0x0A (a 0x0D before that stays); else as mm_dataset_text(). Since: 0.1 */
MM_API mm_status mm_dataset_line(mm_dataset *dataset, int64_t row, char *text, size_t capacity, size_t *needed);

/**
 * Where a row comes from.
 *
 * @param path  Its file, as it was given, lent by the data set; may be NULL.
 * @param line  Number of its line, from 1; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, no such row; MM_ERR_IO. Since: 0.1
 */
MM_API mm_status mm_dataset_where(mm_dataset *dataset, int64_t row, const char **path, int64_t *line);

/** What a row holds. Conversations are lists of messages {"role", "content", …}, rendered by the tokenizer's template;
 *  what is learnt of them are the assistant's words and the end of its turn, as each template's authors train it: where the
 *  last turn is another's, or was cut, MM_ROWS_PAD and MM_ROWS_PAD3 learn the padding behind it, too. */
enum {
    MM_ROW_TEXT = 0,       /**< pretraining: {"text"} */
    MM_ROW_CHAT = 1,       /**< fine-tuning: {"conversations"}. MiniMind2 takes roles from the position; MiniMind-3 takes
                                "tools" of a system message and "tool_calls", both JSON in strings; Mini-LLM takes "functions"
                                of a leading system message */
    MM_ROW_PREFERENCE = 2, /**< {"chosen", "rejected"}, two conversations that differ in their last message alone */
    MM_ROW_PROMPT = 3      /**< to be answered by the model: {"conversations"}, whose last turn, if it is the assistant's, is
                                the reference answer; or {"question", "answer"}, where it is what stands behind the last "####", or
                                all of the answer where there is none, without blanks round it and without commas */
};

/** How rows become batches. */
enum {
    MM_ROWS_PAD = 0,  /**< one row each, cut and padded: MiniMind2's form without bos and eos, T = max_length - 1 */
    MM_ROWS_PAD3 = 1, /**< the same in MiniMind-3's form: text has bos and eos; T = max_length. Not for preferences */
    MM_ROWS_PACK = 2  /**< rows end to end, text with bos and eos, cut into rows of max_length in which each sees only itself;
                           T = max_length. For text and conversations */
};

/** How rows become batches. */
typedef struct mm_loader_options {
    size_t struct_size;        /**< sizeof(mm_loader_options) */
    uint64_t seed;             /**< of the shuffle */
    int32_t batch;             /**< rows per batch; of preferences, pairs */
    int32_t max_length;        /**< ids per row, at least 2; of prompts the last so many are kept */
    int32_t form;              /**< MM_ROWS_…; prompts have none */
    int32_t shuffle;           /**< 1: each epoch in an order of its own, computed from (seed, epoch, row) */
    int32_t skip_bad_lines;    /**< 1: pass over rows that cannot be read and count them */
    int32_t bos_id;            /**< of text rows; -1: none */
    int32_t eos_id;            /**< of text rows; -1: none */
    int32_t pad_id;            /**< what fills short rows */
    const char *template_name; /**< as in mm_chat_options; NULL: the tokenizer's own */
    int32_t kind;              /**< MM_ROW_… */
    int32_t strip_empty_think; /**< 1: take empty think blocks out of rendered conversations; prompts keep theirs */
    int32_t thinking;          /**< MM_THINK_… of prompts */
    int32_t rank;              /**< which of `world` processes this is, from 0 */
    int32_t world;             /**< processes that train together. Batches of all ranks together are one step: every rank
                                    makes the same number of steps, and each row comes to one rank, once an epoch */
    int32_t workers;           /**< threads that prepare rows ahead; 0: none, rows are prepared when they are asked for. Batches
                                    are the same with any number */
    int32_t mixed_prompts;     /**< 1: take pairs whose answers are to different prompts, as upstream does; 0: such a row is a bad
                                    one */
    int32_t trim;              /**< 1: a batch of padded rows is cut behind the last target of any of them, so that T varies. The loss
                                    stays as it is, but for an auxiliary one of experts, which then counts less of the padding */
} mm_loader_options;
#define MM_LOADER_OPTIONS_INIT { sizeof(mm_loader_options), 0, 8, 512, MM_ROWS_PAD, 1, 0, 1, 2, 0, NULL, MM_ROW_TEXT, 0, \
                                 MM_THINK_DEFAULT, 0, 1, 1, 0, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_loader_options_init(mm_loader_options *options, size_t struct_size);

/**
 * A loader over a data set. Its threads begin with its first batch and end with it; they call nothing of the program's but its
 * allocator.
 *
 * @param dataset    Kept alive by the loader.
 * @param tokenizer  Kept alive by the loader.
 * @param options    Copied, strings included; NULL for the defaults.
 * @param out        Yours: pair it with mm_loader_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_STATE and MM_ERR_UNSUPPORTED, the tokenizer has no template that is known,
 *         and none was named. Threads: one call at a time. Since: 0.1
 */
MM_API mm_status mm_loader_create(mm_dataset *dataset, mm_tokenizer *tokenizer, const mm_loader_options *options,
                                  mm_loader **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_loader_free(mm_loader *loader);

/** Tokens per row of its batches: T; of prompts, and with trim, at most. Since: 0.1 */
MM_API int32_t mm_loader_length(const mm_loader *loader);

/**
 * The next batch of the epoch: ids, targets and, when packing, document_ids, in MM_TRAIN mode. The arrays are lent by
 * the loader until its next call. The last batch of an epoch may have fewer rows. Of preferences, the first half of the rows are
 * the chosen answers, the second half the rejected ones in the same order.
 *
 * A rank that is left without a row in the last step gets one row of padding, without a target.
 *
 * @param batch  Set, with batch->batch 0 at the end of the epoch; the call after that begins the next one.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_IO; MM_ERR_MEMORY; MM_ERR_STATE, a loader of prompts, or one whose workers had
 *         begun when this process was forked, as it has none of them; MM_ERR_FORMAT, a bad line (see skip_bad_lines):
 *         the loader stands where it stood. Since: 0.1
 */
MM_API mm_status mm_loader_next(mm_loader *loader, mm_batch *batch);

/** Prompts, as mm_generate_options takes them. All arrays are lent by the loader until its next call. */
typedef struct mm_prompts {
    size_t struct_size;           /**< sizeof(mm_prompts) */
    const int32_t *const *ids;    /**< [count] pointers to ids */
    const int32_t *lengths;       /**< [count], each at least 1 */
    const char *const *answers;   /**< [count] reference answers, NUL-terminated; NULL where the row has none */
    const size_t *answer_lengths; /**< [count] bytes without that NUL */
    const int64_t *rows;          /**< [count] rows of the data set */
    int32_t count;                /**< 0 at the end of the epoch, or on a rank that is left without one */
    int32_t at_end;               /**< 1: the epoch is over, the next call begins the next one */
} mm_prompts;
#define MM_PROMPTS_INIT { sizeof(mm_prompts), NULL, NULL, NULL, NULL, NULL, 0, 0 }

/** Set every field of `prompts` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_prompts_init(mm_prompts *prompts, size_t struct_size);

/** As mm_loader_next(), of a loader of prompts. @return as mm_loader_next(). Since: 0.1 */
MM_API mm_status mm_loader_next_prompts(mm_loader *loader, mm_prompts *prompts);

/** Where a loader stands; enough to go on from there, with any number of ranks. */
typedef struct mm_loader_position {
    size_t struct_size; /**< sizeof(mm_loader_position) */
    int64_t epoch;      /**< from 0 */
    int64_t row;        /**< rows of the epoch begun or done, by all ranks together */
    int64_t offset;     /**< when packing: tokens of the current document already given */
    int64_t skipped;    /**< bad lines passed over so far, by this rank */
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

/** What a loader has done since it was made, and what it cost. */
typedef struct mm_loader_stats {
    size_t struct_size;     /**< sizeof(mm_loader_stats) */
    double elapsed_seconds; /**< since its first batch was asked for */
    double wait_seconds;    /**< of these, in which the caller waited for a row to be ready; with no workers, in which rows were
                                 prepared */
    double call_seconds;    /**< of these, spent in mm_loader_next() and mm_loader_next_prompts(), waiting included */
    int64_t batches;        /**< handed out so far */
    int64_t rows;           /**< read, bad ones not counted; when packing, those of the other ranks too */
    int64_t tokens;         /**< ids given, padding included */
    int64_t bad_lines;      /**< passed over */
} mm_loader_stats;
#define MM_LOADER_STATS_INIT { sizeof(mm_loader_stats), 0, 0, 0, 0, 0, 0, 0 }

/** Set every field of `stats` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_loader_stats_init(mm_loader_stats *stats, size_t struct_size);

/** call_seconds / elapsed_seconds is the loader's share of training. @return MM_OK; MM_ERR_ARG. Since: 0.1 */
MM_API mm_status mm_loader_get_stats(const mm_loader *loader, mm_loader_stats *out);

/** What is remarkable about a row; added together. */
enum {
    MM_REMARK_ROLES = 1,   /**< roles do not alternate; it is rendered as its template does it */
    MM_REMARK_CUT = 2,     /**< longer than max_length, so a part of it is not seen; never when packing */
    MM_REMARK_UNLEARNT = 4 /**< no target counts, or, of a prompt, there is no reference answer */
};

/** How a row is read. */
typedef struct mm_row_report {
    size_t struct_size; /**< sizeof(mm_row_report) */
    int64_t tokens;     /**< ids of the whole row, bos and eos included; of a preference row, of its longer side */
    int64_t learnt;     /**< targets that count after cutting; of a preference row, on the side that has fewer */
    int64_t remarks;    /**< MM_REMARK_… */
} mm_row_report;
#define MM_ROW_REPORT_INIT { sizeof(mm_row_report), 0, 0, 0 }

/** Set every field of `report` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_row_report_init(mm_row_report *report, size_t struct_size);

/**
 * Read one row of the data set the way the loader's batches do, and tell about it. The loader stands where it stood.
 *
 * @param row  In [0, mm_dataset_rows()).
 *
 * @return MM_OK; MM_ERR_ARG, no such row; MM_ERR_IO; MM_ERR_MEMORY; MM_ERR_FORMAT, a bad one. Since: 0.1
 */
MM_API mm_status mm_loader_check_row(mm_loader *loader, int64_t row, mm_row_report *out);

#ifdef __cplusplus
}
#endif

#endif
