/* pretrain, and a Ctrl-C that comes when all is done: right behind the end of its trainer, by the linker's --wrap. Its
 * clock is set back by an hour each time it is asked, and it says when a page is drawn. */
#include <minimind.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

void __real_mm_trainer_free(mm_trainer *trainer);
void __wrap_mm_trainer_free(mm_trainer *trainer);
time_t __wrap_time(time_t *out);
time_t __wrap___time64(time_t *out);
mm_status __real_mm_report_flush(mm_report *report);
mm_status __wrap_mm_report_flush(mm_report *report);

time_t __wrap_time(time_t *out)
{
    static time_t now = 1800000000;
    (void)out;
    return now -= 3600;
}

/* What it is called where 32 bits count time in 64. */
time_t __wrap___time64(time_t *out)
{
    return __wrap_time(out);
}

mm_status __wrap_mm_report_flush(mm_report *report)
{
    fputs("a page is drawn\n", stderr); /* at once: the signal ends what waits in a buffer */
    return __real_mm_report_flush(report);
}

void __wrap_mm_trainer_free(mm_trainer *trainer)
{
    __real_mm_trainer_free(trainer);
    raise(SIGINT);
}
