/**
 * @file report.h
 * Watching a run: what a training loop tells, kept in files that people and other tools can read.
 *
 *     mm_report *report = NULL;
 *     mm_report_create("out/report", NULL, &report);
 *     … at every step …   mm_report_scalar(report, step, "loss", loss);
 *     … now and then …    mm_report_text(report, step, "Once upon a time", story, length);
 *                         mm_report_flush(report);                        redraws report.html
 *     mm_report_free(report);
 *
 * In its directory:
 *
 *  - `metrics.jsonl`: one object a line, {"step": 10, "time": 1700000000.5, "loss": 3.2}, with every value as it came:
 *    numbers, arrays for vectors, strings for texts; null for a number that is not finite. A line is there whole, or not at
 *    all.
 *  - `events.out.tfevents.…`: the same for TensorBoard, a file for each time the directory was opened.
 *  - `report.html`: one page with curves and texts that needs nothing but itself: no network, and no JavaScript to be read.
 *    It is redrawn by mm_report_flush() and replaced in one step. Of long curves it shows means and extremes.
 *
 * Names are free. What begins alike up to the last "/" shares a chart ("time/forward", "time/backward"), and a name that is
 * another one behind "validation_" joins that one's ("loss", "validation_loss"). Known names get a title and a unit: loss,
 * learning_rate, grad_norm, tokens_per_s, memory (in bytes), expert_load and some more.
 *
 * It knows nothing of trainers: any loop may use it. Its memory does not grow with the run's length: up to 30 KB for each curve,
 * of which a vector has one for each element; the page has up to 60 KB of it.
 *
 * Threads: one call at a time per report.
 */
#ifndef MINIMIND_REPORT_H
#define MINIMIND_REPORT_H

#include <minimind/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A report being written. */
typedef struct mm_report mm_report;

/** What a report writes; added together. */
enum {
    MM_REPORT_METRICS = 1,     /**< metrics.jsonl; without it, a report that is opened again knows nothing of before */
    MM_REPORT_TENSORBOARD = 2, /**< events.out.tfevents.… */
    MM_REPORT_PAGE = 4,        /**< report.html */
    MM_REPORT_ALL = 7
};

/** What a report holds. */
typedef struct mm_report_options {
    size_t struct_size;  /**< sizeof(mm_report_options) */
    const char *title;   /**< of the page; NULL: the directory's path */
    int64_t resume_step; /**< of what metrics.jsonl holds already, lines beyond this step are dropped: a run that goes on from a
                              checkpoint gives the checkpoint's step. -1: all are, for a run that begins anew */
    int64_t total_steps; /**< of the run, so that the page can show how far it is; 0: not known */
    int32_t outputs;     /**< MM_REPORT_… */
    int32_t reserved;    /**< 0 */
} mm_report_options;
#define MM_REPORT_OPTIONS_INIT { sizeof(mm_report_options), NULL, INT64_MAX, 0, MM_REPORT_ALL, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_report_options_init(mm_report_options *options, size_t struct_size);

/**
 * Open a report, which has its directory to itself until mm_report_free() (where the file system knows locks). What a
 * metrics.jsonl in it says up to options->resume_step is taken over, so that the curves go on; its last line is dropped if it
 * is torn.
 *
 * @param directory  Made if it is missing.
 * @param options    Copied, strings included; NULL for the defaults.
 * @param out        Yours: pair it with mm_report_free().
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_IO, the directory or a file in it can't be made or written;
 *         MM_ERR_STATE, another report has the directory open, in this process or another one;
 *         MM_ERR_FORMAT, metrics.jsonl has a line that is none of a report's (the message has its number): it is left as it
 *         is. Since: 0.1
 */
MM_API mm_status mm_report_create(const char *directory, const mm_report_options *options, mm_report **out);

/** Close the files. The page stays as the last mm_report_flush() drew it. NULL is fine. Since: 0.1 */
MM_API void mm_report_free(mm_report *report);

/**
 * Add a value, or several at one step. Those of one call share a line of metrics.jsonl.
 *
 * @param step   At least 0. Steps should not go back; nothing breaks if they do.
 * @param name   UTF-8 without control characters, 1 to 500 bytes; not "step" or "time". One call has each name once, and a
 *               name is for one kind of value: scalar, vector or text. A report has at most 1000 names.
 * @param value  May be infinite or NaN: that is worth seeing. The page shows a gap.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_IO, a full disk for one. On failure it is as if the call had not been made:
 *         a run can go on without its report. Since: 0.1
 */
MM_API mm_status mm_report_scalar(mm_report *report, int64_t step, const char *name, double value);
MM_API mm_status mm_report_scalars(mm_report *report, int64_t step, const char *const *names, const double *values,
                                   int32_t count);

/**
 * Add a vector: `count` values that belong together, such as the share of tokens that each expert got. Its curves share a
 * chart; for TensorBoard they are scalars named "name/0", "name/1", ….
 *
 * @param count  1 to 256, and always the same for one name.
 *
 * @return as mm_report_scalar(). Since: 0.1
 */
MM_API mm_status mm_report_vector(mm_report *report, int64_t step, const char *name, const double *values, int32_t count);

/**
 * Add a text, such as a sample of what the model writes; `name` may be its prompt. The page shows texts of one name side by
 * side in the order of their steps: the first, the last and some between, each cut at 2000 bytes.
 *
 * @param text  `length` bytes, at most 1 MiB. Need not be UTF-8: what is not becomes U+FFFD.
 *
 * @return as mm_report_scalar(). Since: 0.1
 */
MM_API mm_status mm_report_text(mm_report *report, int64_t step, const char *name, const char *text, size_t length);

/**
 * Say something about the run as a whole, for the head of the page: "Parameters", "25.8 M". A name that was given before gets
 * the new text; facts are not kept in metrics.jsonl, so say them again after opening a report again.
 *
 * @param text  UTF-8, NUL-terminated.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_report_fact(mm_report *report, const char *name, const char *text);

/**
 * Redraw report.html. Without MM_REPORT_PAGE it does nothing.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_IO: the page is as it was. Since: 0.1
 */
MM_API mm_status mm_report_flush(mm_report *report);

#ifdef __cplusplus
}
#endif

#endif
