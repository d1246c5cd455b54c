/* The metrics.jsonl of a report that is opened again: taken over or refused, drawn, and added to. */
#include <math.h>

#include "base/files.h"
#include "fuzz.h"

static char place[512];

/* 1 if it was opened. */
static int open_again(int64_t resume_step)
{
    static const double numbers[2] = { 0.5, -INFINITY };
    mm_report *report = NULL;
    mm_report_options options = MM_REPORT_OPTIONS_INIT;
    options.resume_step = resume_step, options.outputs = MM_REPORT_METRICS | MM_REPORT_PAGE, options.total_steps = 100;
    mm_status status = mm_report_create(place, &options, &report);
    MUST(status == MM_OK ? report != NULL : refused(status) && report == NULL);
    if (status != MM_OK)
        return 0;
    MUST(mm_report_flush(report) == MM_OK);
    status = mm_report_scalar(report, 7, "loss", 1.5); /* a name may be of another kind, or there may be too many */
    MUST(status == MM_OK || refused(status));
    status = mm_report_vector(report, 8, "vector", numbers, 2);
    MUST(status == MM_OK || refused(status));
    status = mm_report_text(report, 9, "text", "\xff<b>&", 5);
    MUST(status == MM_OK || refused(status));
    MUST(mm_report_flush(report) == MM_OK);
    mm_report_free(report);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    snprintf(place, sizeof place, "%s/report", fuzz_directory());
    MUST(mmi_make_directory(place) == MM_OK);
    fuzz_file("report/metrics.jsonl", data, size);
    if (open_again(INT64_MAX)) {
        MUST(open_again(8)); /* what it wrote itself it reads */
        if (runs++ % 16 == 0)
            MUST(open_again(-1));
    }
    return 0;
}
