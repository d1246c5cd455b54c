#include "train/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#define MANY_LINES 12 /* more than these are not named one by one */
#define COLOURS 8

typedef struct kind {
    const char *name, *title, *unit;
    double scale;   /* what is shown is the value divided by this */
    bool from_zero; /* an amount: half as high is half as much */
    bool idle;      /* nothing but 0: this run has none */
} kind;

static const kind known[] = {
    { "loss", "Loss", "nats per token", 1, false, false },
    { "aux_loss", "Auxiliary loss", "", 1, false, false },
    { "cross_entropy", "Cross-entropy", "nats per token", 1, false, false },
    { "perplexity", "Perplexity", "", 1, false, false },
    { "bits_per_byte", "Bits per byte", "", 1, false, false },
    { "accuracy", "Accuracy", "", 1, true, false },
    { "learning_rate", "Learning rate", "", 1, true, false },
    { "grad_norm", "Gradient norm", "before clipping", 1, true, false },
    { "tokens_per_s", "Tokens per second", "", 1, true, false },
    { "memory", "Memory", "MiB", 1048576, true, false },
    { "expert_load", "Expert load", "share of tokens", 1, true, false },
    { "loss_scale", "Loss scale", "", 1, false, false },
    { "kl", "KL divergence", "nats", 1, false, true },
    { "step_kl", "KL divergence from the policy that answered", "nats", 1, false, true },
    { "value_loss", "Value loss", "", 1, false, true },
};

/* Beside these a loss is that of distillation, preferences or rewards, of which no token has so many nats. */
static const char *const other_losses[] = { "cross_entropy", "margin", "reward" };

static const kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

/* --- Which curves go together --- */

void mmi_chart_title(char *out, size_t size, const char *name)
{
    const kind *k = find_kind(name);
    snprintf(out, size, "%s", k ? k->title : name);
    if (k)
        return;
    for (char *c = out; *c; c++)
        if (*c == '_')
            *c = ' ';
    if (out[0] >= 'a' && out[0] <= 'z')
        out[0] = (char)(out[0] - 'a' + 'A');
}

/* The chart that a name belongs to, and what it is called there: "time/forward" is "forward" of "time",
 * "validation_loss" is "validation" of "loss". */
static void split_name(char *chart, const char **line, const char *name)
{
    static const char validation[] = "validation_";
    const char *slash = strrchr(name, '/');
    if (slash && slash > name && slash[1]) {
        snprintf(chart, MMI_TRACK_NAME_SIZE + 1, "%.*s", (int)(slash - name), name);
        *line = slash + 1;
    } else if (strncmp(name, validation, sizeof validation - 1) == 0 && name[sizeof validation - 1]) {
        snprintf(chart, MMI_TRACK_NAME_SIZE + 1, "%s", name + sizeof validation - 1);
        *line = "validation";
    } else {
        snprintf(chart, MMI_TRACK_NAME_SIZE + 1, "%s", name);
        *line = "training";
    }
}

static bool has_values(const mmi_series *s)
{
    return s->count > 0 && !isnan(s->lowest);
}

static bool is_idle(const mmi_track *track)
{
    const kind *k = find_kind(track->name);
    bool idle = k && k->idle;
    for (size_t i = 0; idle && i < track->curves[0].count; i++) {
        const mmi_bucket *b = &track->curves[0].buckets[i];
        idle = b->finite == 0 || (b->low == 0 && b->high == 0);
    }
    return idle;
}

static bool add_line(mmi_chart *chart, const mmi_series *series, const char *name)
{
    mmi_chart_line *lines = mmi_realloc(chart->lines, chart->count + 1, sizeof *lines);
    if (!lines)
        return false;
    chart->lines = lines;
    chart->lines[chart->count].series = series;
    snprintf(chart->lines[chart->count++].name, sizeof chart->lines->name, "%s", name);
    return true;
}

static void begin_chart(mmi_chart *chart, const char *name)
{
    const kind *k = find_kind(name);
    *chart = (mmi_chart){ .unit = k ? k->unit : "", .scale = k ? k->scale : 1, .from_zero = k && k->from_zero };
    chart->wide = strcmp(name, "loss") == 0;
    mmi_chart_title(chart->title, sizeof chart->title, name);
}

/* A vector has a chart of its own: "expert_load/layer 3" is "Expert load, layer 3", with a curve for each element. */
static bool add_vector(mmi_chart *chart, const mmi_track *track)
{
    char group[MMI_TRACK_NAME_SIZE + 1], number[24];
    const char *part;
    bool ok = true;
    split_name(group, &part, track->name);
    begin_chart(chart, strrchr(track->name, '/') ? group : track->name);
    if (strrchr(track->name, '/')) {
        size_t used = strlen(chart->title);
        snprintf(chart->title + used, sizeof chart->title - used, ", %s", part);
    }
    for (size_t i = 0; i < track->count && ok; i++) {
        snprintf(number, sizeof number, "%zu", i);
        ok = add_line(chart, &track->curves[i], number);
    }
    return ok;
}

/* By name, not by title: "step_time" and "Step time" are two things. */
static mmi_chart *find_chart(mmi_chart *charts, size_t count, const char *group)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(charts[i].group, group) == 0)
            return &charts[i];
    return NULL;
}

static bool add_scalar(mmi_chart *charts, size_t *count, const mmi_track *track)
{
    char group[MMI_TRACK_NAME_SIZE + 1];
    const char *line;
    split_name(group, &line, track->name);
    mmi_chart *chart = find_chart(charts, *count, group);
    if (!chart) {
        chart = &charts[(*count)++];
        begin_chart(chart, group);
        snprintf(chart->group, sizeof chart->group, "%s", group);
    }
    return add_line(chart, &track->curves[0], line);
}

/* The loss comes first, whatever was told first. */
static void order(mmi_chart *charts, size_t count, const mmi_tracks *tracks)
{
    for (size_t i = 0; i < count; i++)
        if (charts[i].wide) {
            for (size_t k = 0; k < sizeof other_losses / sizeof *other_losses; k++)
                if (mmi_tracks_find(tracks, other_losses[k]))
                    charts[i].unit = "";
            mmi_chart first = charts[i];
            memmove(charts + 1, charts, i * sizeof *charts);
            charts[0] = first;
        }
}

mm_status mmi_charts_make(mmi_chart **out, size_t *count, const mmi_tracks *tracks)
{
    mmi_chart *charts = mmi_calloc(tracks->count, sizeof *charts);
    size_t n = 0;
    bool ok = charts != NULL;
    for (size_t i = 0; i < tracks->count && ok; i++) {
        const mmi_track *track = &tracks->items[i];
        bool shown = false;
        for (size_t k = 0; k < track->count && !is_idle(track); k++)
            shown |= has_values(&track->curves[k]);
        if (shown)
            ok = track->kind == MMI_TRACK_VECTOR ? add_vector(&charts[n++], track) : add_scalar(charts, &n, track);
    }
    if (!ok) {
        mmi_charts_free(charts, n);
        return mmi_fail_memory(tracks->count * sizeof *charts, "the report's charts");
    }
    order(charts, n, tracks);
    *out = charts;
    *count = n;
    return MM_OK;
}

void mmi_charts_free(mmi_chart *charts, size_t count)
{
    for (size_t i = 0; charts && i < count; i++)
        mmi_free(charts[i].lines);
    mmi_free(charts);
}

/* --- Drawing --- */

typedef struct range {
    double low, high;
} range;

static range range_of(const mmi_chart *chart)
{
    range r = { INFINITY, -INFINITY };
    for (size_t i = 0; i < chart->count; i++) {
        const mmi_series *s = chart->lines[i].series;
        for (size_t k = 0; k < s->count; k++) { /* comparisons with NaN, of a bucket without a value, are false */
            r.low = s->buckets[k].low < r.low ? s->buckets[k].low : r.low;
            r.high = s->buckets[k].high > r.high ? s->buckets[k].high : r.high;
        }
    }
    r.low /= chart->scale;
    r.high /= chart->scale;
    return r;
}

/* Is a logarithmic scale of any use? */
static bool spreads(range r)
{
    return r.low > 0 && r.high > 1.5 * r.low;
}

/* One drawing of a chart. */
typedef struct canvas {
    mmi_writer *page;
    const mmi_axis *x, *y;
    double scale;
} canvas;

static int at_x(const canvas *c, double step)
{
    return (int)lround(mmi_axis_place(c->x, step));
}

static int at_y(const canvas *c, double value)
{
    return (int)lround(MMI_AXIS_LENGTH - mmi_axis_place(c->y, value / c->scale));
}

/* The value of bucket `index` smoothed: a triangle of weights over its neighbours, `reach` to each side. Near the
 * beginning, where a loss falls most, no further ahead than there is behind: the curve begins where the values do. */
static double smoothed(const mmi_series *s, size_t index, size_t reach)
{
    double sum = 0, weights = 0;
    if (reach > index)
        reach = index;
    size_t until = index + reach < s->count ? index + reach : s->count - 1;
    for (size_t i = index - reach; i <= until; i++) {
        double weight = (double)(reach + 1 - (i > index ? i - index : index - i)),
               value = mmi_bucket_mean(&s->buckets[i]);
        if (isfinite(value)) {
            sum += weight * value;
            weights += weight;
        }
    }
    return weights > 0 ? sum / weights : NAN;
}

/* A path through the buckets' values; `reach` 0: as they are. Where there is none, the line is broken. */
static void draw_line(const canvas *c, const mmi_series *s, size_t reach)
{
    bool broken = true;
    for (size_t i = 0; i < s->count; i++) {
        double value = mmi_bucket_mean(&s->buckets[i]);
        if (reach > 0 && isfinite(value))
            value = smoothed(s, i, reach);
        if (isfinite(value))
            mmi_html_put(c->page, "%s%d %d%s", broken ? "M" : "L", at_x(c, mmi_bucket_step(&s->buckets[i])),
                         at_y(c, value), broken ? "h0" : ""); /* a value between two gaps is a dot */
        broken = !isfinite(value);
    }
}

static void draw_dots(const canvas *c, const mmi_series *s)
{
    for (size_t i = 0; i < s->count; i++) {
        double value = mmi_bucket_mean(&s->buckets[i]);
        if (isfinite(value))
            mmi_html_put(c->page, "M%d %dh0", at_x(c, mmi_bucket_step(&s->buckets[i])), at_y(c, value));
    }
}

/* The area between the highest and the lowest value of each bucket, from one gap to the next. */
static void draw_band(const canvas *c, const mmi_series *s)
{
    const mmi_bucket *b = s->buckets;
    for (size_t i = 0, end; i < s->count; i = end + 1) {
        for (end = i; end < s->count && b[end].finite > 0; end++)
            mmi_html_put(c->page, "%s%d %d", end == i ? "M" : "L", at_x(c, mmi_bucket_step(&b[end])),
                         at_y(c, b[end].high));
        for (size_t k = end; k-- > i;)
            mmi_html_put(c->page, "L%d %d%s", at_x(c, mmi_bucket_step(&b[k])), at_y(c, b[k].low), k == i ? "Z" : "");
    }
}

/* How often the curve turns, of all its points. A schedule hardly turns, the loss of single batches always does. */
static bool is_noisy(const mmi_series *s)
{
    size_t turns = 0;
    double before = 0, last = NAN;
    for (size_t i = 0; i < s->count; i++) {
        double value = mmi_bucket_mean(&s->buckets[i]);
        if (isfinite(value) && isfinite(last) && value != last) {
            turns += (value - last) * before < 0;
            before = value - last;
        }
        last = value;
    }
    return s->count >= 40 && 4 * turns > s->count;
}

static void draw_curve(const canvas *c, const mmi_series *s, size_t colour)
{
    if (s->per_bucket > 1) {
        mmi_html_put(c->page, "<path class=\"band c%zu\" d=\"", colour);
        draw_band(c, s);
        mmi_html_put(c->page, "\"/>");
    }
    bool noisy = is_noisy(s);
    if (noisy) {
        mmi_html_put(c->page, "<path class=\"raw c%zu\" d=\"", colour);
        draw_line(c, s, 0);
        mmi_html_put(c->page, "\"/>");
    }
    mmi_html_put(c->page, "<path class=\"line c%zu\" d=\"", colour);
    draw_line(c, s, noisy ? s->count / 40 : 0);
    mmi_html_put(c->page, "\"/>");
    if (s->count <= 40) {
        mmi_html_put(c->page, "<path class=\"dots c%zu\" d=\"", colour);
        draw_dots(c, s);
        mmi_html_put(c->page, "\"/>");
    }
}

static void put_percent(mmi_writer *page, double place)
{
    int hundredths = (int)lround(place);
    mmi_html_put(page, "%d.%02d%%", hundredths / 100, hundredths % 100);
}

/* A scale's drawing and its labels; `form` is "lin" or "log". */
static void draw_scale(mmi_writer *page, const mmi_chart *chart, const char *form, const mmi_axis *x, const mmi_axis *y)
{
    canvas c = { page, x, y, chart->scale };
    int side = (int)MMI_AXIS_LENGTH;
    mmi_html_put(page,
                 "<svg class=\"%s\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
                 "<path class=\"grid\" d=\"",
                 form, side, side);
    for (int i = 0; i < y->ticks; i++)
        mmi_html_put(page, "M0 %dH%d", at_y(&c, y->tick[i] * chart->scale), side);
    mmi_html_put(page, "\"/>");
    for (size_t i = chart->count; i-- > 0;) /* the first one on top */
        draw_curve(&c, chart->lines[i].series, i % COLOURS);
    mmi_html_put(page, "</svg>");
    for (int i = 0; i < y->ticks; i++) {
        mmi_html_put(page, "<span class=\"y %s\" style=\"top:", form);
        put_percent(page, MMI_AXIS_LENGTH - mmi_axis_place(y, y->tick[i]));
        mmi_html_put(page, "\">%s</span>", y->label[i]);
    }
    mmi_html_put(page, "\n");
}

static void draw_legend(mmi_writer *page, const mmi_chart *chart)
{
    mmi_html_put(page, "<p class=\"legend\">");
    for (size_t i = 0; i < chart->count && chart->count <= MANY_LINES; i++) {
        mmi_html_put(page, "<span class=\"key c%zu\">", i % COLOURS);
        if (chart->count > 1 || strcmp(chart->lines[i].name, "training") != 0)
            mmi_html_string(page, chart->lines[i].name);
        mmi_html_put(page, " <output>");
        if (isfinite(chart->lines[i].series->last))
            mmi_html_reading(page, chart->lines[i].series->last / chart->scale);
        else
            mmi_html_put(page, "not finite");
        mmi_html_put(page, "</output></span>");
    }
    mmi_html_put(page, "</p>\n");
}

/* Characters of the longest label of a y axis, for which the style leaves room. */
static int label_room(const mmi_axis *linear, const mmi_axis *log_axis)
{
    size_t most = 0;
    for (int i = 0; i < linear->ticks + log_axis->ticks; i++) {
        size_t length = strlen(i < linear->ticks ? linear->label[i] : log_axis->label[i - linear->ticks]);
        most = length > most ? length : most;
    }
    return (int)most;
}

static void make_axes(mmi_axis *linear, mmi_axis *log_axis, const mmi_chart *chart)
{
    range r = range_of(chart);
    mmi_axis_linear(linear, chart->from_zero ? fmin(r.low, 0) : r.low, r.high, chart->wide ? 6 : 4);
    if (spreads(r))
        mmi_axis_log(log_axis, r.low, r.high);
}

void mmi_chart_draw(mmi_writer *page, const mmi_chart *chart, size_t number, const mmi_axis *steps)
{
    mmi_axis linear, log_axis = { 0 };
    make_axes(&linear, &log_axis, chart);
    mmi_html_put(page, "<figure class=\"chart%s\">\n", chart->wide ? " wide" : "");
    mmi_html_put(page, "<figcaption><h3>");
    mmi_html_string(page, chart->title);
    mmi_html_put(page, "</h3><small>%s</small></figcaption>\n", chart->unit);
    if (log_axis.log)
        mmi_html_put(page,
                     "<input type=\"checkbox\" class=\"switch\" id=\"log%zu\"><label for=\"log%zu\">log</label>\n",
                     number, number);
    draw_legend(page, chart);
    mmi_html_put(page, "<div class=\"plot\" style=\"--room:%d\">\n", label_room(&linear, &log_axis));
    draw_scale(page, chart, "lin", steps, &linear);
    if (log_axis.log)
        draw_scale(page, chart, "log", steps, &log_axis);
    for (int i = 0; i < steps->ticks; i++) {
        mmi_html_put(page, "<span class=\"x\" style=\"left:");
        put_percent(page, mmi_axis_place(steps, steps->tick[i]));
        mmi_html_put(page, "\">%s</span>", steps->label[i]);
    }
    mmi_html_put(page, "\n</div>\n</figure>\n");
}

/* --- The same as numbers --- */

static void put_range(mmi_writer *page, const char *name, const mmi_axis *axis)
{
    mmi_html_put(page, "\"%s\":[", name);
    mmi_html_number(page, axis->low, 9);
    mmi_html_put(page, ",");
    mmi_html_number(page, axis->high, 9);
    mmi_html_put(page, "],");
}

void mmi_chart_data(mmi_writer *page, const mmi_chart *chart)
{
    mmi_axis linear, log_axis = { 0 };
    make_axes(&linear, &log_axis, chart);
    mmi_html_put(page, "{\"title\":");
    mmi_html_json_string(page, chart->title);
    mmi_html_put(page, ",");
    put_range(page, "lin", &linear);
    if (log_axis.log)
        put_range(page, "log", &log_axis);
    mmi_html_put(page, "\"lines\":[");
    for (size_t i = 0; i < chart->count; i++) {
        const mmi_series *s = chart->lines[i].series;
        mmi_html_put(page, "%s{\"name\":", i > 0 ? "," : "");
        mmi_html_json_string(page, chart->lines[i].name);
        mmi_html_put(page, ",\"x\":[");
        for (size_t k = 0; k < s->count; k++) {
            mmi_html_put(page, k > 0 ? "," : "");
            mmi_html_number(page, mmi_bucket_step(&s->buckets[k]), 15);
        }
        mmi_html_put(page, "],\"y\":[");
        for (size_t k = 0; k < s->count; k++) {
            mmi_html_put(page, k > 0 ? "," : "");
            mmi_html_number(page, mmi_bucket_mean(&s->buckets[k]) / chart->scale, 5);
        }
        mmi_html_put(page, "]}");
    }
    mmi_html_put(page, "]}");
}
