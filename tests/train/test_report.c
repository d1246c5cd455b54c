/* A report: what is told comes back from its files, whatever interrupts it. */
#define _XOPEN_SOURCE 700
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/memory.h"
#include "support.h"
#include "text/utf8.h"
#include "train/axis.h"
#include "train/report.h"

static char directory[400], metrics[480], page[480];

static void start(void)
{
    snprintf(directory, sizeof directory, "%s/report", scratch_directory());
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", directory);
    snprintf(page, sizeof page, "%s/report.html", directory);
}

static mm_report *open_from(int64_t resume_step)
{
    mm_report *report = NULL;
    mm_report_options o = MM_REPORT_OPTIONS_INIT;
    o.resume_step = resume_step;
    ck_ok(mm_report_create(directory, &o, &report));
    return report;
}

static char *contents(const char *path)
{
    char *data = NULL;
    size_t size;
    ck_ok(mmi_read_file(path, &data, &size));
    char *text = mmi_strndup(data, size);
    ck_assert_ptr_nonnull(text);
    mmi_free(data);
    return text;
}

static void put(const char *path, const char *text)
{
    ck_ok(mmi_write_file(path, text, strlen(text)));
}

/* Line `index` of metrics.jsonl; NULL if there are not so many. mmi_json_free it. */
static mmi_json *line(int index)
{
    char *text = contents(metrics), *at = text;
    for (int i = 0; i < index && at; i++)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    mmi_json *value = NULL;
    char *end = at ? strchr(at, '\n') : NULL;
    if (end)
        ck_ok(mmi_json_parse(at, (size_t)(end - at), "a line", &value));
    mmi_free(text);
    return value;
}

static int lines(void)
{
    char *text = contents(metrics);
    int n = 0;
    for (const char *c = text; *c; c++)
        n += *c == '\n';
    mmi_free(text);
    return n;
}

static int64_t step_of(int index)
{
    mmi_json *value = line(index);
    int64_t step = mmi_json_int(mmi_json_get(value, "step"), -1);
    mmi_json_free(value);
    return step;
}

static void tell(mm_report *report, int64_t from, int64_t until)
{
    for (int64_t step = from; step <= until; step++) {
        static const char *const names[] = { "loss", "learning_rate" };
        const double values[] = { 5 * exp(-(double)step / 300) + 0.1 * sin((double)(step * step)), 1e-3 };
        const double load[] = { 0.5 + 0.1 * sin((double)step), 0.25, 0.25 };
        ck_ok(mm_report_scalars(report, step, names, values, 2));
        ck_ok(mm_report_vector(report, step, "expert_load/layer 1", load, 3));
        if (step % 10 == 0)
            ck_ok(mm_report_scalar(report, step, "validation_loss", values[0] + 0.1));
        if (step % 7 == 0)
            ck_ok(mm_report_text(report, step, "Once", "upon a time", (size_t)(step % 11)));
    }
}

START_TEST(what_was_told_is_in_metrics_jsonl_line_by_line)
{
    mm_report *report = open_from(INT64_MAX);
    static const char *const names[] = { "loss", "grad_norm", "time/forward" };
    const double values[] = { 3.25, NAN, 0.125 }, load[] = { 0.75, INFINITY };
    double before = mmi_wall_time();
    ck_ok(mm_report_scalars(report, 10, names, values, 3));
    ck_ok(mm_report_vector(report, 10, "expert_load", load, 2));
    ck_ok(mm_report_text(report, 11, "你是谁？", "a \"b\"\n\0c\xFF", 9));
    mmi_json *value = line(0); /* while the report is open: nothing waits in a buffer */
    ck_assert_int_eq(mmi_json_int(mmi_json_get(value, "step"), -1), 10);
    ck_assert(fabs(mmi_json_number(mmi_json_get(value, "time"), 0) - before) < 60);
    ck_assert(mmi_json_number(mmi_json_get(value, "loss"), 0) == 3.25);
    ck_assert_int_eq(mmi_json_what(mmi_json_get(value, "grad_norm")), MMI_JSON_NULL);
    ck_assert(mmi_json_number(mmi_json_get(value, "time/forward"), 0) == 0.125);
    ck_assert_uint_eq(mmi_json_size(value), 5);
    mmi_json_free(value);
    value = line(1);
    ck_assert(mmi_json_number(mmi_json_at(mmi_json_get(value, "expert_load"), 0), 0) == 0.75);
    ck_assert_int_eq(mmi_json_what(mmi_json_at(mmi_json_get(value, "expert_load"), 1)), MMI_JSON_NULL);
    mmi_json_free(value);
    value = line(2);
    size_t length;
    const char *text = mmi_json_string(mmi_json_get(value, "你是谁？"), &length);
    ck_assert_uint_eq(length, 11);
    ck_assert_mem_eq(text, "a \"b\"\n\0c\xEF\xBF\xBD", 11); /* what is not UTF-8 is U+FFFD */
    mmi_json_free(value);
    ck_assert_int_eq(lines(), 3);
    mm_report_free(report);
}
END_TEST

START_TEST(a_report_goes_on_from_the_step_of_its_checkpoint)
{
    mm_report *report = open_from(-1);
    tell(report, 1, 9);
    mm_report_free(report);
    ck_assert_int_eq(lines(), 19);
    report = open_from(6);
    ck_assert_int_eq(lines(), 12);
    ck_assert_int_eq(step_of(11), 6);
    tell(report, 7, 7);
    ck_assert_int_eq(lines(), 15);
    ck_assert_int_eq(step_of(12), 7);
    mm_report_free(report);
    report = open_from(INT64_MAX);
    ck_assert_int_eq(lines(), 15);
    mm_report_free(report);
    report = open_from(-1);
    ck_assert_int_eq(lines(), 0);
    mm_report_free(report);
}
END_TEST

START_TEST(a_torn_last_line_is_dropped)
{
    static const char *const torn[] = { "{\"step\":2,\"time\":5,\"lo", "{\"step\":2,\"time\":5,\"loss\":", "{",
                                        "\1\1\1\n" };
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        char text[200];
        ck_ok(mmi_make_directory(directory));
        snprintf(text, sizeof text, "{\"step\":1,\"time\":5,\"loss\":2}\n%s", torn[i]);
        put(metrics, text);
        mm_report *report = open_from(INT64_MAX);
        ck_ok(mm_report_scalar(report, 2, "loss", 1.5));
        mm_report_free(report);
        ck_assert_int_eq(lines(), 2);
        ck_assert_int_eq(step_of(0), 1);
        ck_assert_int_eq(step_of(1), 2);
    }
    put(metrics, "{\"st");
    mm_report *report = open_from(INT64_MAX);
    ck_ok(mm_report_scalar(report, 3, "loss", 1));
    mm_report_free(report);
    ck_assert_int_eq(lines(), 1);
}
END_TEST

START_TEST(a_last_line_without_its_end_gets_one)
{
    /* in the second one, a blank line that goes is as long as the end that comes */
    static const char *const endless[] = { "", "{\"step\":0,\"time\":5,\"loss\":3}\n\n" };
    for (int i = 0; i < 2; i++) {
        char text[200];
        ck_ok(mmi_make_directory(directory));
        snprintf(text, sizeof text, "%s{\"step\":1,\"time\":5,\"loss\":2}", endless[i]);
        put(metrics, text);
        mm_report *report = open_from(INT64_MAX);
        ck_ok(mm_report_scalar(report, 2, "loss", 1));
        mm_report_free(report);
        ck_assert_int_eq(lines(), 2 + i);
        ck_assert_int_eq(step_of(i + 1), 2);
    }
}
END_TEST

START_TEST(a_file_of_blank_lines_is_an_empty_report)
{
    static const char *const blank[] = { "", "\n", "   ", "\n \n\n" };
    for (size_t i = 0; i < sizeof blank / sizeof *blank; i++) {
        ck_ok(mmi_make_directory(directory));
        put(metrics, blank[i]);
        mm_report *report = open_from(INT64_MAX);
        ck_ok(mm_report_scalar(report, 1, "loss", 2));
        mm_report_free(report);
        mmi_json *only = line(0);
        ck_assert_int_eq(mmi_json_int(mmi_json_get(only, "step"), 0), 1);
        mmi_json_free(only);
    }
}
END_TEST

START_TEST(a_damaged_line_is_named_and_the_file_is_left_alone)
{
    static const char *const bad[] = {
        "{\"step\":2,\"time\":5,\"loss\"",
        "[1]",
        "{\"time\":5,\"loss\":1}",
        "{\"step\":-1,\"time\":5}",
        "{\"step\":2,\"loss\":1}",
        "{\"step\":2,\"time\":5,\"loss\":\"a text\"}",
        "{\"step\":2,\"time\":5,\"loss\":[1,2]}",
        "{\"step\":2,\"time\":5,\"other\":[]}",
        "{\"step\":2,\"time\":5,\"other\":[\"x\"]}",
        "{\"step\":2,\"time\":5,\"other\":true}",
        "{\"step\":2,\"time\":5,\"other\":{}}",
        "{\"step\":2,\"time\":5,\"\":1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[300];
        mm_report *report = NULL;
        ck_ok(mmi_make_directory(directory));
        snprintf(text, sizeof text, "{\"step\":1,\"time\":5,\"loss\":2}\n%s\n{\"step\":3,\"time\":5,\"loss\":2}\n",
                 bad[i]);
        put(metrics, text);
        ck_status(mm_report_create(directory, NULL, &report), MM_ERR_FORMAT);
        ck_assert_ptr_null(report);
        ck_error_mentions("metrics.jsonl:2");
        char *after = contents(metrics);
        ck_assert_str_eq(after, text);
        mmi_free(after);
    }
}
END_TEST

/* What the page's script draws from: every point of every curve. */
static char *drawn(void)
{
    char *text = contents(page), *from = strstr(text, "id=\"data\">");
    ck_assert_ptr_nonnull(from);
    char *end = strstr(from, "</script>");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    memmove(text, from, strlen(from) + 1);
    return text;
}

START_TEST(a_resumed_report_draws_the_same_curves_as_one_that_never_stopped)
{
    mm_report *report = open_from(-1);
    tell(report, 1, 1300);
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *whole = drawn();
    report = open_from(-1);
    tell(report, 1, 900);
    mm_report_free(report);
    report = open_from(811);
    tell(report, 812, 1300);
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *parts = drawn();
    ck_assert_str_eq(whole, parts);
    mmi_json *value = NULL;
    ck_ok(mmi_json_parse(whole + strlen("id=\"data\">"), strlen(whole) - strlen("id=\"data\">"), "the page's data",
                         &value));
    ck_assert_int_eq(mmi_json_int(mmi_json_get(value, "last"), 0), 1300);
    mmi_json *charts = mmi_json_get(value, "charts"), *loss = mmi_json_at(charts, 0);
    ck_assert_uint_eq(mmi_json_size(charts), 3);
    ck_assert_str_eq(mmi_json_string(mmi_json_get(loss, "title"), NULL), "Loss");
    mmi_json *curves = mmi_json_get(loss, "lines");
    ck_assert_uint_eq(mmi_json_size(curves), 2);
    ck_assert_str_eq(mmi_json_string(mmi_json_get(mmi_json_at(curves, 1), "name"), NULL), "validation");
    ck_assert_uint_eq(mmi_json_size(mmi_json_get(mmi_json_at(curves, 1), "x")), 130);
    ck_assert_uint_le(mmi_json_size(mmi_json_get(mmi_json_at(curves, 0), "x")), MMI_SERIES_BUCKETS);
    mmi_json_free(value);
    mmi_free(whole);
    mmi_free(parts);
}
END_TEST

START_TEST(a_long_curve_keeps_its_mean_and_its_extremes)
{
    mmi_series s = { 0 };
    test_rng rng = { 5 };
    double sum = 0, low = INFINITY, high = -INFINITY;
    int64_t finite = 0, seen = 0, points = 0;
    for (int64_t step = 1; step <= 100000; step++) {
        double value = step % 1000 == 7 ? NAN : step == 77777 ? 50 : step == 22222 ? -50 : rng_uniform(&rng);
        ck_each(mmi_series_reserve(&s), "step %lld", (long long)step);
        mmi_series_add(&s, step, value);
        if (isfinite(value)) {
            sum += value;
            finite++;
            low = fmin(low, value);
            high = fmax(high, value);
        }
        ck_each(s.count <= MMI_SERIES_BUCKETS, "step %lld", (long long)step);
    }
    ck_assert_uint_gt(s.count, MMI_SERIES_BUCKETS / 2);
    double total = 0, lowest = INFINITY, highest = -INFINITY;
    int64_t before = 0;
    for (size_t i = 0; i < s.count; i++) {
        const mmi_bucket *b = &s.buckets[i];
        ck_assert_int_eq(b->first, before + 1); /* without gaps */
        before = b->last;
        points += b->points;
        seen += b->finite;
        total += b->sum;
        lowest = fmin(lowest, b->low);
        highest = fmax(highest, b->high);
        ck_assert(mmi_bucket_mean(b) >= b->low && mmi_bucket_mean(b) <= b->high);
    }
    ck_assert_int_eq(points, 100000);
    ck_assert_int_eq(seen, finite);
    ck_assert_double_eq_tol(total, sum, 1e-6); /* of 10⁵ additions in another order */
    ck_assert(lowest == low && highest == high && low == -50 && high == 50);
    ck_assert(s.lowest == -50);
    ck_assert_int_eq(s.lowest_step, 22222);
    mmi_series_free(&s);
}
END_TEST

/* As report.h has them, of a curve as long as any: every bucket full, all drawn twice, numbers of many digits. */
START_TEST(a_long_curve_takes_as_much_memory_and_room_on_the_page_as_is_said)
{
    mm_report *report = open_from(-1);
    test_rng rng = { 6 };
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_report_scalar(report, 0, "loss", 1));
    ck_ok(mm_report_flush(report));
    char *text = contents(page);
    size_t size = strlen(text);
    mmi_free(text);
    ck_ok(mm_memory_get_usage(&before));
    for (int64_t step = 0; step < MMI_SERIES_BUCKETS * 16; step++) {
        mm_status status = mm_report_scalar(report, step * 10000001, "curve", exp(40 * rng_uniform(&rng)));
        ck_each(status == MM_OK, "step %lld", (long long)step);
    }
    ck_ok(mm_memory_get_usage(&after));
    ck_ok(mm_report_flush(report));
    text = contents(page);
    ck_assert_uint_le(after.current - before.current, 30000);
    ck_assert_uint_gt(strlen(text) - size, 40000); /* as long as any it is not, if this does not hold */
    ck_assert_uint_le(strlen(text) - size, 60000);
    mmi_free(text);
    mm_report_free(report);
}
END_TEST

START_TEST(of_many_texts_the_first_the_last_and_some_between_are_shown)
{
    mm_report *report = open_from(-1);
    char text[40];
    for (int64_t step = 1; step <= 1000; step++) {
        snprintf(text, sizeof text, "text number %d.", (int)step);
        ck_ok(mm_report_text(report, step, "prompt", text, strlen(text)));
        const mmi_track *track = mmi_tracks_find(&report->tracks, "prompt");
        ck_assert_uint_le(track->text_count, MMI_TRACK_TEXTS);
        ck_assert_int_eq(track->texts[0].step, 1);
        ck_assert_int_eq(track->texts[track->text_count - 1].step, step);
        for (size_t i = 1; i < track->text_count; i++)
            ck_assert_int_gt(track->texts[i].step, track->texts[i - 1].step);
        ck_assert(step < MMI_TRACK_TEXTS || track->text_count > MMI_TRACK_TEXTS / 2);
    }
    ck_ok(mm_report_flush(report));
    char *html = contents(page);
    ck_assert_ptr_nonnull(strstr(html, "text number 1."));
    ck_assert_ptr_nonnull(strstr(html, "text number 1000."));
    mmi_free(html);
    mm_report_free(report);
}
END_TEST

START_TEST(a_long_text_is_cut_on_the_page_between_characters)
{
    mm_report *report = open_from(-1);
    char text[3 * 1000 + 1] = "x"; /* so that byte 2000 is inside a character */
    for (int i = 0; i < 999; i++)
        memcpy(text + 1 + 3 * i, "今", 3);
    ck_ok(mm_report_text(report, 1, "prompt", text, strlen(text)));
    ck_ok(mm_report_flush(report));
    char *html = contents(page), *cell = strstr(html, "<td>");
    ck_assert_ptr_nonnull(cell);
    ck_assert_int_eq(strncmp(cell + 4, text, 1999), 0);
    ck_assert_int_eq(strncmp(cell + 4 + 1999, "…</td>", strlen("…</td>")), 0);
    mmi_json *value = line(0);
    ck_assert_str_eq(mmi_json_string(mmi_json_get(value, "prompt"), NULL), text); /* the file has all of it */
    mmi_json_free(value);
    mmi_free(html);
    mm_report_free(report);
}
END_TEST

/* How often `what` is in the page. */
static int count_of(const char *html, const char *what)
{
    int count = 0;
    for (const char *at = html; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

START_TEST(no_text_breaks_out_of_the_page)
{
    static const char bad[] = "</script></td><img src=x onerror=alert(1)>&\"'\1";
    mm_report *report = NULL;
    mm_report_options o = MM_REPORT_OPTIONS_INIT;
    o.title = "</title><b>";
    ck_ok(mm_report_create(directory, &o, &report));
    ck_ok(mm_report_text(report, 1, "<i>\"prompt\"", bad, sizeof bad - 1));
    ck_ok(mm_report_scalar(report, 1, "</script><u>", 1));
    ck_ok(mm_report_fact(report, "<em>", "</dd><s>"));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    static const char *const marks[] = { "<b>", "<i>", "<u>", "<em>", "<s>", "<img", "\1" };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        ck_assert_msg(!strstr(html, marks[i]), "the page holds %s as it is", marks[i]);
    ck_assert_ptr_nonnull(strstr(html, "&lt;/script&gt;&lt;/td&gt;&lt;img src=x onerror=alert(1)&gt;&amp;&quot;&#39;"));
    ck_assert_int_eq(count_of(html, "</script>"), 2);
    mmi_free(html);
}
END_TEST

START_TEST(an_empty_report_and_one_without_a_finite_value_have_a_page)
{
    mm_report *report = open_from(-1);
    ck_ok(mm_report_flush(report));
    char *html = contents(page);
    ck_assert_ptr_nonnull(strstr(html, "No values yet"));
    mmi_free(html);
    ck_ok(mm_report_scalar(report, 0, "loss", NAN));
    ck_ok(mm_report_flush(report));
    html = contents(page);
    ck_assert_ptr_nonnull(strstr(html, "No values yet"));
    mmi_free(html);
    ck_ok(mm_report_scalar(report, 0, "other", 0));
    ck_ok(mm_report_flush(report));
    html = contents(page);
    ck_assert_ptr_nonnull(strstr(html, "<figure"));
    ck_assert_ptr_null(strstr(html, "nan"));
    ck_assert_ptr_null(strstr(html, "inf"));
    mmi_free(html);
    mm_report_free(report);
}
END_TEST

START_TEST(a_value_between_gaps_is_a_dot_and_a_path_as_a_title_is_text)
{
    mm_report *report = NULL;
    snprintf(directory, sizeof directory, "%s/a\xFF", scratch_directory());
    snprintf(page, sizeof page, "%s/report.html", directory);
    ck_ok(mm_report_create(directory, NULL, &report));
    for (int i = 0; i < 60; i++)
        ck_ok(mm_report_scalar(report, i, "loss", i % 3 == 1 ? i : NAN));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    ck_assert_uint_eq(mmi_utf8_valid(html, strlen(html)), strlen(html));
    int dots = 0;
    for (const char *at = strstr(html, "<path class=\"line"); at && *at != '>'; at++)
        dots += strncmp(at, "h0", 2) == 0;
    ck_assert_int_eq(dots, 20);
    mmi_free(html);
}
END_TEST

/* The page after two steps of a run with this loss and one more value, 0 at first and then `then`. */
static char *page_of_two(const char *name, double then)
{
    mm_report *report = open_from(-1);
    for (int i = 0; i < 2; i++) {
        const char *const names[] = { "loss", name };
        const double values[] = { 3 - i, i * then };
        ck_ok(mm_report_scalars(report, i + 1, names, values, 2));
    }
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    return contents(page);
}

START_TEST(only_a_loss_of_tokens_is_in_nats_per_token)
{
    static const char *const others[] = { "reward", "margin", "cross_entropy" };
    static const char loss[] = "<h3>Loss</h3><small>nats per token</small>";
    char *html = page_of_two("accuracy", 1);
    ck_assert_ptr_nonnull(strstr(html, loss));
    mmi_free(html);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        html = page_of_two(others[i], 1);
        ck_assert_ptr_nonnull(strstr(html, "<h3>Loss</h3><small></small>"));
        mmi_free(html);
    }
}
END_TEST

START_TEST(what_a_run_has_none_of_has_no_chart)
{
    static const char *const titles[][2] = { { "kl", "<h3>KL divergence</h3><small>nats" },
                                             { "step_kl", "<h3>KL divergence from the policy that answered</h3><small>nats" },
                                             { "value_loss", "<h3>Value loss</h3>" } };
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        char *without = page_of_two(titles[i][0], 0), *with = page_of_two(titles[i][0], 1e-9);
        ck_assert_ptr_null(strstr(without, titles[i][1]));
        ck_assert_ptr_nonnull(strstr(without, "<h3>Loss</h3>"));
        ck_assert_ptr_nonnull(strstr(with, titles[i][1]));
        mmi_free(without);
        mmi_free(with);
    }
    char *clipped = page_of_two("clipped", 0); /* of these there were none, which says something */
    ck_assert_ptr_nonnull(strstr(clipped, "<h3>Clipped</h3>"));
    mmi_free(clipped);
}
END_TEST

START_TEST(names_that_look_alike_have_charts_of_their_own)
{
    mm_report *report = open_from(-1);
    static const char *const names[] = { "step_time", "Step time", "step time", "step_time/read", "Expert load, layer 3" };
    const double loads[] = { 0.25, 0.75 };
    ck_ok(mm_report_vector(report, 1, "expert_load/layer 3", loads, 2));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_ok(mm_report_scalar(report, 1, names[i], 1));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    ck_assert_int_eq(count_of(html, "<h3>Step time<"), 3); /* "step_time/read" is a line of the first */
    ck_assert_int_eq(count_of(html, "<h3>Expert load, layer 3<"), 2);
    mmi_free(html);
}
END_TEST

/* Where a path begins, as it stands in the page. */
static void first_point(char point[24], const char *html, const char *path)
{
    const char *at = strstr(html, path), *end;
    ck_assert_ptr_nonnull(at);
    at = strstr(at, "d=\"M");
    ck_assert_ptr_nonnull(at);
    end = strchr(at, 'L');
    ck_assert(end && end - at < 24);
    snprintf(point, 24, "%.*s", (int)(end - at), at);
}

START_TEST(a_smoothed_curve_begins_where_the_values_do)
{
    mm_report *report = open_from(-1);
    char raw[24], line[24];
    for (int i = 0; i < 400; i++) /* falls fast, and turns at every point */
        ck_ok(mm_report_scalar(report, i, "loss", 2 + 8 * exp(-i / 10.0) + 0.1 * (i % 2)));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    first_point(raw, html, "<path class=\"raw");
    first_point(line, html, "<path class=\"line");
    ck_assert_str_eq(line, raw);
    mmi_free(html);
}
END_TEST

START_TEST(there_is_room_for_the_longest_label)
{
    mm_report *report = open_from(-1);
    ck_ok(mm_report_scalar(report, 1, "one", 1e-4));
    ck_ok(mm_report_scalar(report, 2, "one", 1.002e-4));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    ck_assert_int_eq(count_of(html, "style=\"--room:10\""), 1); /* 0.00010002 */
    mmi_free(html);
}
END_TEST

START_TEST(a_reading_of_thousands_is_whole)
{
    mm_report *report = open_from(-1);
    ck_ok(mm_report_scalar(report, 1, "tokens_per_s", 65536.4));
    ck_ok(mm_report_scalar(report, 1, "other", 0.123456));
    ck_ok(mm_report_flush(report));
    mm_report_free(report);
    char *html = contents(page);
    ck_assert_ptr_nonnull(strstr(html, "<dd>65536<"));
    ck_assert_ptr_nonnull(strstr(html, "<output>65536<"));
    ck_assert_ptr_nonnull(strstr(html, "<output>0.1235<"));
    mmi_free(html);
}
END_TEST

START_TEST(extreme_values_can_be_drawn)
{
    mm_report *report = open_from(-1);
    static const double values[] = { 1e308, -1e308, 5e-324, 0, 1e-300, 1e300 };
    for (int i = 0; i < 6; i++) {
        ck_ok(mm_report_scalar(report, i == 5 ? INT64_MAX : i, "all", values[i]));
        ck_ok(mm_report_scalar(report, i, "positive", fabs(values[i]) + 5e-324));
    }
    ck_ok(mm_report_scalar(report, 1, "large", 1e300));
    ck_ok(mm_report_scalar(report, 1, "small", 5e-324));
    ck_ok(mm_report_flush(report));
    char *html = contents(page);
    ck_assert_ptr_null(strstr(html, "nan"));
    ck_assert_ptr_null(strstr(html, "inf"));
    ck_assert_ptr_null(strstr(html, "-2147483648"));
    mmi_free(html);
    mm_report_free(report);
}
END_TEST

START_TEST(axes_have_round_numbers)
{
    static const struct {
        double low, high;
        const char *labels;
    } cases[] = {
        { 2.1, 7.9, "2 3 4 5 6 7 8" },
        { 0, 5.5e-4, "0 0.0001 0.0002 0.0003 0.0004 0.0005 0.0006" },
        { 1e-6, 9e-5, "0 2e-5 4e-5 6e-5 8e-5 0.0001" },
        { 890, 942, "890 900 910 920 930 940 950" },
        { 0, 123456, "0 20k 40k 60k 80k 100k 120k 140k" },
        { -1.5, 2, "-1.5 -1.0 -0.5 0 0.5 1.0 1.5 2.0" },
        { 3, 3, "2.85 2.90 2.95 3.00 3.05 3.10 3.15" },
        { 0, 0, "-1.0 -0.8 -0.6 -0.4 -0.2 0 0.2 0.4 0.6 0.8 1.0" },
        { 0, 3e9, "0 500M 1000M 1500M 2000M 2500M 3000M" },
        { 1e-4, 1.002e-4, "0.0001 0.00010002 0.00010004 0.00010006 0.00010008 0.0001001 0.00010012 0.00010014 0.00010016 0.00010018 0.0001002" },
        { 0.69314718, 0.69314724, "0.69314718 0.69314719 0.69314720 0.69314721 0.69314722 0.69314723 0.69314724" },
        { 1e305, 1e306, "9.4e+299 9.6e+299 9.8e+299 1e+300 1.02e+300 1.04e+300 1.06e+300" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mmi_axis a;
        char all[400] = "";
        mmi_axis_linear(&a, cases[i].low, cases[i].high, 6);
        for (int k = 0; k < a.ticks; k++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? " " : "", a.label[k]);
        ck_assert_str_eq(all, cases[i].labels);
        ck_assert(a.low <= cases[i].low && a.high >= fmin(cases[i].high, 1e300));
        ck_assert(mmi_axis_place(&a, a.low) == 0 && mmi_axis_place(&a, a.high) == MMI_AXIS_LENGTH);
    }
    mmi_axis a;
    mmi_axis_log(&a, 1, 1000);
    ck_assert_int_eq(a.ticks, 10); /* 1 2 5 10 … 1000 */
    ck_assert_str_eq(a.label[4], "20");
    ck_assert_double_eq_tol(mmi_axis_place(&a, sqrt(1000)), MMI_AXIS_LENGTH / 2, 1e-6);
    char text[32];
    mmi_count(text, 1234567);
    ck_assert_str_eq(text, "1,234,567");
    mmi_count(text, -123);
    ck_assert_str_eq(text, "-123");
}
END_TEST

START_TEST(numbers_are_spelled_the_same_under_any_locale)
{
    char text[32];
    for (int comma = 0; comma < 2; comma++) {
        mmi_number(text, -1234.5, 6);
        ck_assert_str_eq(text, "-1234.5");
        mmi_number(text, 1.5e-10, 6);
        ck_assert_str_eq(text, "1.5e-10");
        if (comma == 0 && !set_decimal_comma())
            break;
    }
    mmi_number(text, NAN, 6);
    ck_assert_str_eq(text, "null");
}
END_TEST

START_TEST(a_step_of_training_becomes_values)
{
    mm_report *report = open_from(-1);
    const mm_train_metric stage[] = { { "kl", 0.25 } }, measured[] = { { "kl", 0.5 } };
    mm_train_progress p = MM_TRAIN_PROGRESS_INIT;
    p.step = 5;
    p.loss = 3.5;
    p.evaluations = 1; /* behind step 4 */
    p.evaluated_step = 4;
    p.learning_rate = 1e-3;
    ck_ok(mm_report_progress(report, &p)); /* before the first update */
    p.step = 6;
    p.updates = 1;
    p.grad_norm = 0.75;
    p.tokens_per_s = 1000;
    p.metrics = stage;
    p.metric_count = 1;
    p.evaluated_step = 6;
    p.validation_loss = 3.25;
    p.validation_metrics = measured;
    ck_ok(mm_report_progress(report, &p));
    mmi_json *value = line(0);
    ck_assert_ptr_null(mmi_json_get(value, "validation_loss"));
    ck_assert(mmi_json_number(mmi_json_get(value, "loss"), 0) == 3.5);
    ck_assert_ptr_null(mmi_json_get(value, "grad_norm"));
    ck_assert(mmi_json_number(mmi_json_get(value, "memory"), 0) > 0);
    mmi_json_free(value);
    value = line(1);
    ck_assert_int_eq(mmi_json_int(mmi_json_get(value, "step"), 0), 6);
    ck_assert(mmi_json_number(mmi_json_get(value, "grad_norm"), 0) == 0.75);
    ck_assert(mmi_json_number(mmi_json_get(value, "tokens_per_s"), 0) == 1000);
    ck_assert(mmi_json_number(mmi_json_get(value, "kl"), 0) == 0.25);
    ck_assert(mmi_json_number(mmi_json_get(value, "validation_loss"), 0) == 3.25);
    ck_assert(mmi_json_number(mmi_json_get(value, "validation_kl"), 0) == 0.5);
    mmi_json_free(value);
    ck_status(mm_report_progress(NULL, &p), MM_ERR_ARG);
    ck_status(mm_report_progress(report, NULL), MM_ERR_ARG);
    mm_report_free(report);
}
END_TEST

START_TEST(only_what_was_asked_for_is_written)
{
    static const int32_t asked[] = { 0, MM_REPORT_METRICS, MM_REPORT_PAGE, MM_REPORT_ALL };
    for (size_t i = 0; i < 4; i++) {
        start();
        mm_report *report = NULL;
        mm_report_options o = MM_REPORT_OPTIONS_INIT;
        o.outputs = asked[i];
        ck_ok(mm_report_create(directory, &o, &report));
        tell(report, 1, 20);
        ck_ok(mm_report_flush(report));
        mm_report_free(report);
        ck_assert_int_eq(mmi_file_exists(metrics), (asked[i] & MM_REPORT_METRICS) != 0);
        ck_assert_int_eq(mmi_file_exists(page), (asked[i] & MM_REPORT_PAGE) != 0);
    }
}
END_TEST

START_TEST(a_full_disk_is_a_status_and_every_line_stays_whole)
{
    mm_report *report = open_from(-1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    struct rlimit small = { 10000, limit.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    int64_t step = 0;
    mm_status status = MM_OK;
    while (status == MM_OK && step < 1000)
        status = mm_report_scalar(report, ++step, "loss", 1.5);
    ck_assert_int_eq(status, MM_ERR_IO);
    const mmi_track *track = mmi_tracks_find(&report->tracks, "loss");
    ck_assert_int_eq((int64_t)track->curves[0].count, step - 1); /* as if the call had not been made */
    ck_assert_int_eq(lines(), (int)step - 1);
    ck_status(mm_report_scalar(report, step, "loss", 1), MM_ERR_IO);
    ck_status(mm_report_text(report, step, "rate", "a text", 6), MM_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_uint_eq(report->tracks.count, 1); /* what "rate" is has not been said yet */
    ck_ok(mm_report_scalar(report, step, "loss", 0.25)); /* there is room again */
    ck_assert_int_eq(step_of((int)step - 1), step);
    ck_ok(mm_report_flush(report));
    char *before = contents(page);
    setrlimit(RLIMIT_FSIZE, &small);
    ck_status(mm_report_flush(report), MM_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &limit);
    char *after = contents(page);
    ck_assert_str_eq(before, after);
    mmi_free(before);
    mmi_free(after);
    mm_report_free(report);
}
END_TEST

START_TEST(what_a_killed_process_left_goes_when_its_directory_is_opened)
{
    static const char *const names[] = { "report.html.12-3.tmp", "metrics.jsonl.4-0.tmp", "report.html.tmp",
                                         "report.html.12-3.tmp.txt" };
    char path[4][600];
    ck_ok(mmi_make_directory(directory));
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", directory, names[i]);
        put(path[i], "half");
    }
    mm_report_free(open_from(-1));
    for (int i = 0; i < 4; i++)
        ck_assert_msg(mmi_file_exists(path[i]) == (i >= 2), "%s", names[i]);
}
END_TEST

/* The second would have taken back, or written anew without them, lines that the first adds. */
START_TEST(a_directory_has_one_report_at_a_time)
{
    mm_report *first = open_from(-1), *second = NULL;
    tell(first, 1, 3);
    const int told = lines();
    ck_status(mm_report_create(directory, NULL, &second), MM_ERR_STATE);
    ck_error_mentions(directory);
    ck_assert_ptr_null(second);
    tell(first, 4, 4);
    ck_assert_int_gt(lines(), told);
    mm_report_free(first);
    second = open_from(INT64_MAX);
    mm_report_free(second);
}
END_TEST

/* A trainer may write its checkpoints there, under a lock of its own, for which it would wait a minute. */
START_TEST(a_report_is_in_nobody_elses_way)
{
    char path[600];
    snprintf(path, sizeof path, "%s/.lock", directory);
    mm_report *report = open_from(-1);
    int lock = mmi_lock_file(path, 0);
    ck_assert_int_ge(lock, 0);
    mmi_unlock_file(lock);
    mm_report_free(report);
}
END_TEST

START_TEST(a_directory_that_cant_be_is_a_status)
{
    mm_report *report = NULL;
    char inside[600];
    put(directory, "a file");
    ck_status(mm_report_create(directory, NULL, &report), MM_ERR_IO);
    ck_error_mentions(directory);
    snprintf(inside, sizeof inside, "%s/deeper", directory);
    ck_status(mm_report_create(inside, NULL, &report), MM_ERR_IO);
    ck_assert_int_eq(remove(directory), 0);
    ck_ok(mmi_make_directory(metrics)); /* in place of the file */
    ck_status(mm_report_create(directory, NULL, &report), MM_ERR_IO);
    ck_error_mentions("metrics.jsonl");
    ck_assert_ptr_null(report);
    ck_assert_int_eq(rmdir(metrics), 0);
    /* the file of events has a longer name than the others: where that one can't be, there is none to look for */
    char deep[PATH_MAX];
    int length = snprintf(deep, sizeof deep, "%s", scratch_directory());
    for (; length < PATH_MAX - 36; length++)
        deep[length] = length % 200 == 0 ? '/' : 'd';
    deep[length] = '\0';
    ck_status(mm_report_create(deep, NULL, &report), MM_ERR_IO);
    ck_assert_ptr_null(report);
    report = open_from(-1);
    ck_ok(mmi_make_directory(page));
    ck_status(mm_report_flush(report), MM_ERR_IO);
    ck_error_mentions("report.html");
    mm_report_free(report);
}
END_TEST

START_TEST(misuse_is_refused)
{
    mm_report *report = open_from(-1), *none = NULL;
    const double one[] = { 1, 2 };
    const char *const twice[] = { "a", "a" }, *const missing[] = { NULL };
    char longer[MMI_TRACK_NAME_SIZE + 2];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    mm_report_free(NULL);
    ck_status(mm_report_create(NULL, NULL, &none), MM_ERR_ARG);
    ck_status(mm_report_create(directory, NULL, NULL), MM_ERR_ARG);
    ck_status(mm_report_scalar(NULL, 1, "a", 1), MM_ERR_ARG);
    ck_error_mentions("mm_report_scalar: ");
    ck_status(mm_report_scalar(report, -1, "a", 1), MM_ERR_ARG);
    ck_error_mentions("mm_report_scalar: ");
    ck_status(mm_report_scalar(report, 1, NULL, 1), MM_ERR_ARG);
    ck_status(mm_report_scalar(report, 1, "", 1), MM_ERR_ARG);
    ck_error_mentions("mm_report_scalar: ");
    ck_status(mm_report_scalar(report, 1, "step", 1), MM_ERR_ARG);
    ck_status(mm_report_scalar(report, 1, "time", 1), MM_ERR_ARG);
    ck_status(mm_report_scalar(report, 1, "a\nb", 1), MM_ERR_ARG);
    ck_status(mm_report_scalar(report, 1, "a\xFF", 1), MM_ERR_ARG);
    ck_error_mentions("byte 1");
    ck_status(mm_report_scalar(report, 1, longer, 1), MM_ERR_ARG);
    ck_status(mm_report_scalars(report, 1, twice, one, 2), MM_ERR_ARG);
    ck_error_mentions("twice");
    ck_status(mm_report_scalars(report, 1, missing, one, 1), MM_ERR_ARG);
    ck_status(mm_report_scalars(report, 1, NULL, one, 1), MM_ERR_ARG);
    ck_status(mm_report_scalars(report, 1, twice, NULL, 1), MM_ERR_ARG);
    ck_status(mm_report_scalars(report, 1, twice, one, 0), MM_ERR_ARG);
    ck_status(mm_report_vector(report, 1, "v", NULL, 2), MM_ERR_ARG);
    ck_status(mm_report_vector(report, 1, "v", one, 0), MM_ERR_ARG);
    ck_status(mm_report_vector(NULL, 1, "v", one, 2), MM_ERR_ARG);
    double many[MMI_VECTOR_SIZE + 1] = { 0 };
    ck_status(mm_report_vector(report, 1, "v", many, MMI_VECTOR_SIZE + 1), MM_ERR_ARG);
    ck_status(mm_report_vector(report, 1, "v", many, INT32_MAX), MM_ERR_ARG); /* which aren't read */
    mm_train_progress progress = MM_TRAIN_PROGRESS_INIT;
    const mm_train_metric metric = { "accuracy", 1 };
    progress.metric_count = 2;
    ck_status(mm_report_progress(report, &progress), MM_ERR_ARG);
    ck_error_mentions("metrics");
    progress.metrics = &metric;
    progress.metric_count = -1;
    ck_status(mm_report_progress(report, &progress), MM_ERR_ARG);
    const mm_train_metric unnamed = { NULL, 1 };
    progress.metric_count = progress.evaluations = 1;
    progress.validation_metrics = &unnamed;
    ck_status(mm_report_progress(report, &progress), MM_ERR_ARG);
    ck_error_mentions("no name");
    ck_status(mm_report_text(report, 1, "t", NULL, 3), MM_ERR_ARG);
    ck_status(mm_report_text(report, 1, "t", "x", ((size_t)1 << 20) + 1), MM_ERR_ARG);
    ck_status(mm_report_fact(report, "a", NULL), MM_ERR_ARG);
    ck_status(mm_report_fact(report, NULL, "a"), MM_ERR_ARG);
    ck_status(mm_report_fact(report, "a", "\xFF"), MM_ERR_ARG);
    ck_status(mm_report_fact(NULL, "a", "b"), MM_ERR_ARG);
    ck_status(mm_report_flush(NULL), MM_ERR_ARG);
    ck_assert_uint_eq(report->tracks.count, 0);
    ck_ok(mm_report_scalar(report, 1, "a", 1));
    ck_ok(mm_report_vector(report, 1, "v", one, 2));
    ck_status(mm_report_vector(report, 1, "a", one, 2), MM_ERR_ARG);
    ck_error_mentions("\"a\"");
    ck_status(mm_report_text(report, 1, "a", "x", 1), MM_ERR_ARG);
    ck_status(mm_report_vector(report, 1, "v", one, 1), MM_ERR_ARG);
    ck_assert_int_eq(lines(), 2);
    mm_report_free(report);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    mm_report *report = NULL;
    mm_report_options o = MM_REPORT_OPTIONS_INIT;
    o.outputs = 8;
    ck_status(mm_report_create(directory, &o, &report), MM_ERR_ARG);
    ck_error_mentions("outputs");
    o = (mm_report_options)MM_REPORT_OPTIONS_INIT;
    o.resume_step = -2;
    ck_status(mm_report_create(directory, &o, &report), MM_ERR_ARG);
    o = (mm_report_options)MM_REPORT_OPTIONS_INIT;
    o.total_steps = -1;
    ck_status(mm_report_create(directory, &o, &report), MM_ERR_ARG);
    o = (mm_report_options)MM_REPORT_OPTIONS_INIT;
    o.reserved = 1;
    ck_status(mm_report_create(directory, &o, &report), MM_ERR_ARG);
    o = (mm_report_options)MM_REPORT_OPTIONS_INIT;
    o.title = "\xFF";
    ck_status(mm_report_create(directory, &o, &report), MM_ERR_ARG);
    ck_assert_ptr_null(report);
    ck_assert(!mmi_file_exists(directory));
}
END_TEST

/* All that can be done with a report; the status of what failed first. */
static mm_status use(mm_report *report)
{
    const double load[] = { 1, 2 };
    mm_status status = mm_report_scalar(report, 3, "loss", 1);
    if (status == MM_OK)
        status = mm_report_vector(report, 3, "load", load, 2);
    if (status == MM_OK)
        status = mm_report_text(report, 3, "text", "abc", 3);
    if (status == MM_OK)
        status = mm_report_fact(report, "a", "b");
    if (status == MM_OK)
        status = mm_report_flush(report);
    return status;
}

START_TEST(every_failing_allocation_is_survived)
{
    mm_report *report = open_from(-1);
    tell(report, 1, 2);
    mm_report_free(report);
    mm_memory_usage before = MM_MEMORY_USAGE_INIT, after = MM_MEMORY_USAGE_INIT;
    ck_ok(mm_memory_get_usage(&before));
    mm_status status = MM_ERR_MEMORY;
    for (uint64_t n = 1; status != MM_OK && n < 1000; n++) {
        mm_report_options o = MM_REPORT_OPTIONS_INIT;
        o.resume_step = 2;
        report = NULL;
        mmi_memory_fail_at(n, false);
        status = mm_report_create(directory, &o, &report);
        if (status == MM_OK)
            status = use(report);
        mmi_memory_fail_at(0, false);
        ck_assert(status == MM_OK || status == MM_ERR_MEMORY);
        mm_report_free(report);
        ck_ok(mm_memory_get_usage(&after));
        ck_assert_uint_eq(before.current, after.current);
        ck_assert_int_ge(lines(), 4);
    }
    ck_assert_int_eq(status, MM_OK);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("train/report");
    TCase *tc = tcase_create("report");
    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, what_a_killed_process_left_goes_when_its_directory_is_opened);
    tcase_add_test(tc, a_directory_has_one_report_at_a_time);
    tcase_add_test(tc, a_report_is_in_nobody_elses_way);
    tcase_add_test(tc, what_was_told_is_in_metrics_jsonl_line_by_line);
    tcase_add_test(tc, a_report_goes_on_from_the_step_of_its_checkpoint);
    tcase_add_test(tc, a_torn_last_line_is_dropped);
    tcase_add_test(tc, a_last_line_without_its_end_gets_one);
    tcase_add_test(tc, a_file_of_blank_lines_is_an_empty_report);
    tcase_add_test(tc, a_damaged_line_is_named_and_the_file_is_left_alone);
    tcase_add_test(tc, a_resumed_report_draws_the_same_curves_as_one_that_never_stopped);
    tcase_add_test(tc, a_long_curve_keeps_its_mean_and_its_extremes);
    tcase_add_test(tc, a_long_curve_takes_as_much_memory_and_room_on_the_page_as_is_said);
    tcase_add_test(tc, of_many_texts_the_first_the_last_and_some_between_are_shown);
    tcase_add_test(tc, a_long_text_is_cut_on_the_page_between_characters);
    tcase_add_test(tc, no_text_breaks_out_of_the_page);
    tcase_add_test(tc, an_empty_report_and_one_without_a_finite_value_have_a_page);
    tcase_add_test(tc, a_value_between_gaps_is_a_dot_and_a_path_as_a_title_is_text);
    tcase_add_test(tc, only_a_loss_of_tokens_is_in_nats_per_token);
    tcase_add_test(tc, what_a_run_has_none_of_has_no_chart);
    tcase_add_test(tc, names_that_look_alike_have_charts_of_their_own);
    tcase_add_test(tc, a_smoothed_curve_begins_where_the_values_do);
    tcase_add_test(tc, there_is_room_for_the_longest_label);
    tcase_add_test(tc, a_reading_of_thousands_is_whole);
    tcase_add_test(tc, extreme_values_can_be_drawn);
    tcase_add_test(tc, axes_have_round_numbers);
    tcase_add_test(tc, numbers_are_spelled_the_same_under_any_locale);
    tcase_add_test(tc, a_step_of_training_becomes_values);
    tcase_add_test(tc, only_what_was_asked_for_is_written);
    tcase_add_test(tc, a_full_disk_is_a_status_and_every_line_stays_whole);
    tcase_add_test(tc, a_directory_that_cant_be_is_a_status);
    tcase_add_test(tc, misuse_is_refused);
    tcase_add_test(tc, bad_options_are_refused);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return run_suite(make_suite());
}
