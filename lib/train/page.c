#define _POSIX_C_SOURCE 200809L

#include "train/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "train/chart.h"
#include "train/page_files.h" /* page_css, page_js: made from the files of those names */

static void put_lines(mmi_writer *page, const char *const *lines)
{
    for (; *lines; lines++)
        mmi_writer_put(page, *lines, strlen(*lines));
}

#define YEAR_10000 253402300800.0 /* in seconds: no clock says so, but a damaged file may */

/* A moment, in UTC; the page's script makes it the reader's own time. */
static void put_time(mmi_writer *page, double seconds)
{
    struct tm utc;
    char text[32];
    if (!(seconds > 0 && seconds < YEAR_10000))
        return;
    time_t whole = (time_t)seconds;
    if (!gmtime_r(&whole, &utc))
        return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
    mmi_html_put(page, "<time datetime=\"%.10sT%sZ\">%s UTC</time>", text, text + 11, text);
}

static void put_head(mmi_writer *page, const mm_report *r)
{
    mmi_html_put(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                       "<meta name=\"color-scheme\" content=\"light dark\">\n"
                       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                       "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                       "<link rel=\"icon\" href=\"data:,\">\n<title>");
    mmi_html_string(page, r->title);
    mmi_html_put(page, "</title>\n<style>\n");
    put_lines(page, page_css);
    mmi_html_put(page, "</style>\n</head>\n<body>\n");
}

/* --- The head of the page: where the run stands --- */

static void put_progress(mmi_writer *page, const mm_report *r)
{
    char step[32], total[32];
    int64_t now = r->tracks.step, of = r->options.total_steps;
    mmi_count(step, now);
    mmi_count(total, of);
    mmi_html_put(page, "<p class=\"progress\"><strong>Step %s</strong>", step);
    if (of > 0) {
        int64_t done = now < of ? now : of;
        mmi_html_put(page, " of %s <progress max=\"%lld\" value=\"%lld\">%d%%</progress> %d%%", total, (long long)of,
                     (long long)done, (int)(100.0 * (double)done / (double)of),
                     (int)(100.0 * (double)done / (double)of));
    }
    mmi_html_put(page, "</p>\n<p class=\"times\">");
    if (r->tracks.started > 0) {
        mmi_html_put(page, "Begun ");
        put_time(page, r->tracks.started);
        mmi_html_put(page, ", updated ");
        put_time(page, r->tracks.updated);
    }
    mmi_html_put(page, "</p>\n");
}

static void put_tile(mmi_writer *page, const char *name, double value, const char *note)
{
    mmi_html_put(page, "<div><dt>%s</dt><dd>", name);
    mmi_html_reading(page, value);
    mmi_html_put(page, "<small>%s</small></dd></div>\n", note);
}

/* The numbers that one looks for first. */
static void put_tiles(mmi_writer *page, const mm_report *r)
{
    static const char *const names[] = { "loss", "validation_loss", "perplexity", "accuracy", "tokens_per_s" };
    mmi_html_put(page, "<dl class=\"tiles\">\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const mmi_track *track = mmi_tracks_find(&r->tracks, names[i]);
        if (!track || track->kind != MMI_TRACK_SCALAR || !isfinite(track->curves[0].last))
            continue;
        const mmi_series *s = &track->curves[0];
        char title[64], note[96] = "", lowest[32], step[32];
        mmi_chart_title(title, sizeof title, names[i]);
        if (strcmp(names[i], "validation_loss") == 0 && s->lowest < s->last) {
            mmi_number(lowest, s->lowest, 4);
            mmi_count(step, s->lowest_step);
            snprintf(note, sizeof note, " best %s at step %s", lowest, step);
        }
        put_tile(page, title, s->last, note);
    }
    mmi_html_put(page, "</dl>\n");
}

static void put_facts(mmi_writer *page, const mm_report *r)
{
    if (r->fact_count == 0)
        return;
    mmi_html_put(page, "<dl class=\"facts\">\n");
    for (size_t i = 0; i < r->fact_count; i++) {
        mmi_html_put(page, "<div><dt>");
        mmi_html_string(page, r->facts[i].name);
        mmi_html_put(page, "</dt><dd>");
        mmi_html_string(page, r->facts[i].text);
        mmi_html_put(page, "</dd></div>\n");
    }
    mmi_html_put(page, "</dl>\n");
}

/* --- Curves and texts --- */

static void put_charts(mmi_writer *page, const mmi_chart *charts, size_t count, const mmi_axis *steps)
{
    if (count == 0) {
        mmi_html_put(page, "<p class=\"none\">No values yet.</p>\n");
        return;
    }
    mmi_html_put(page, "<section class=\"charts\">\n<h2>Curves</h2>\n");
    for (size_t i = 0; i < count; i++)
        mmi_chart_draw(page, &charts[i], i, steps);
    mmi_html_put(page, "</section>\n");
}

static void put_texts_of(mmi_writer *page, const mmi_track *track)
{
    char step[32];
    mmi_html_put(page, "<table>\n<caption>");
    mmi_html_string(page, track->name);
    mmi_html_put(
        page, "</caption>\n<thead><tr><th scope=\"col\">Step</th><th scope=\"col\">Text</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < track->text_count; i++) {
        const mmi_track_text *t = &track->texts[i];
        mmi_count(step, t->step);
        mmi_html_put(page, "<tr><th scope=\"row\">%s</th><td>", step);
        mmi_html_text(page, t->text, t->length);
        mmi_html_put(page, "%s</td></tr>\n", t->cut ? "…" : "");
    }
    mmi_html_put(page, "</tbody>\n</table>\n");
}

static void put_texts(mmi_writer *page, const mm_report *r)
{
    bool any = false;
    for (size_t i = 0; i < r->tracks.count; i++) {
        if (r->tracks.items[i].text_count == 0)
            continue;
        if (!any)
            mmi_html_put(page, "<section class=\"texts\">\n<h2>Samples</h2>\n");
        any = true;
        put_texts_of(page, &r->tracks.items[i]);
    }
    if (any)
        mmi_html_put(page, "</section>\n");
}

static void put_script(mmi_writer *page, const mmi_chart *charts, size_t count, const mmi_axis *steps)
{
    mmi_html_put(page, "<script type=\"application/json\" id=\"data\">{\"last\":");
    mmi_html_number(page, steps->high, 15);
    mmi_html_put(page, ",\"charts\":[");
    for (size_t i = 0; i < count; i++) {
        mmi_html_put(page, i > 0 ? ",\n" : "");
        mmi_chart_data(page, &charts[i]);
    }
    mmi_html_put(page, "]}</script>\n<script>\n");
    put_lines(page, page_js);
    mmi_html_put(page, "</script>\n");
}

mm_status mmi_page_write(const mm_report *r, const char *path)
{
    mmi_chart *charts = NULL;
    size_t count = 0;
    mmi_writer page;
    mm_status status = mmi_charts_make(&charts, &count, &r->tracks);
    if (status == MM_OK)
        status = mmi_writer_open(&page, path);
    if (status == MM_OK) {
        mmi_axis steps;
        mmi_axis_steps(&steps, r->tracks.step);
        put_head(&page, r);
        mmi_html_put(&page, "<header>\n<h1>");
        mmi_html_string(&page, r->title);
        mmi_html_put(&page, "</h1>\n");
        put_progress(&page, r);
        put_tiles(&page, r);
        put_facts(&page, r);
        mmi_html_put(&page, "</header>\n<main>\n");
        put_charts(&page, charts, count, &steps);
        put_texts(&page, r);
        mmi_html_put(&page, "</main>\n");
        put_script(&page, charts, count, &steps);
        mmi_html_put(&page, "</body>\n</html>\n");
        status = mmi_writer_commit(&page);
    }
    mmi_charts_free(charts, count);
    return status;
}
