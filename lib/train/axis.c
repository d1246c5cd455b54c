#include "train/axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* printf's decimal point is the locale's; there is nothing else in a number that could be taken for it. */
static void point(char *text)
{
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        if (strchr("0123456789+-e", *c))
            text[n++] = *c;
        else if (n > 0 && text[n - 1] != '.')
            text[n++] = '.';
    }
    text[n] = '\0';
}

void mmi_number(char out[32], double value, int digits)
{
    snprintf(out, 32, "null");
    if (!isfinite(value))
        return;
    snprintf(out, 32, "%.*g", digits, value);
    point(out);
}

void mmi_count(char out[32], int64_t value)
{
    char plain[24];
    int length = snprintf(plain, sizeof plain, "%lld", (long long)value), n = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && plain[i - 1] != '-')
            out[n++] = ',';
        out[n++] = plain[i];
    }
    out[n] = '\0';
}

/* Beyond this numbers are drawn as if they were there: their differences must not overflow. */
#define LARGEST 1e300
#define SMALLEST 1e-300

/* 1, 2 or 5 times a power of ten. */
static double nice_step(double raw)
{
    double power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

/* `step` apart from its neighbours on the same axis, whose largest is `high`. */
static void label_tick(char out[24], double value, double step, double high)
{
    const char *unit = "";
    if (value == 0) {
        snprintf(out, 24, "0");
        return;
    }
    int digits = (int)fmin(9, fmax(3, floor(log10(fabs(value))) - floor(log10(step)) + 1)); /* so many show a step */
    if (high < 1e-3 || fabs(value) < 1e-4) { /* 5e-5 reads better than zeros */
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, value);
        point(text);
        char *zero = strstr(text, "e-0");
        if (zero)
            memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
        snprintf(out, 24, "%.23s", text);
        return;
    }
    if (high >= 1e15) {
        snprintf(out, 24, "%.*g", digits, value);
        point(out);
        return;
    }
    static const struct {
        double from, by;
        const char *unit;
    } units[] = { { 1e10, 1e9, "G" }, { 1e7, 1e6, "M" }, { 1e4, 1e3, "k" } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (high >= units[i].from) {
            value /= units[i].by;
            step /= units[i].by;
            unit = units[i].unit;
            break;
        }
    int decimals = step >= 1 ? 0 : (int)fmin(9, ceil(-log10(step) - 1e-9));
    char text[32];
    snprintf(text, sizeof text, "%.*f", decimals, value);
    point(text);
    snprintf(out, 24, "%.20s%s", text, unit);
}

static void add_tick(mmi_axis *a, double value, double step)
{
    if (a->ticks == MMI_AXIS_TICKS)
        return;
    a->tick[a->ticks] = value;
    label_tick(a->label[a->ticks++], value, step, fmax(fabs(a->low), fabs(a->high)));
}

void mmi_axis_linear(mmi_axis *a, double low, double high, int target)
{
    *a = (mmi_axis){ 0 };
    low = fmin(fmax(low, -LARGEST), LARGEST);
    high = fmax(fmin(high, LARGEST), -LARGEST);
    if (low >= 0 && low < 0.15 * high)
        low = 0; /* what is near nothing is shown with its distance to nothing */
    double around = fmax(fabs(low), fabs(high));
    if (high - low <= 1e-9 * around || around < SMALLEST) {
        double half = around < SMALLEST ? 1 : 0.05 * around;
        low -= half;
        high += half;
    }
    double step = nice_step((high - low) / target);
    a->low = floor(low / step + 1e-9) * step;
    a->high = ceil(high / step - 1e-9) * step;
    int count = (int)lround((a->high - a->low) / step);
    for (int i = 0; i <= count; i++) {
        double value = a->low + i * step;
        add_tick(a, fabs(value) < 1e-9 * step ? 0 : value, step);
    }
}

void mmi_axis_log(mmi_axis *a, double low, double high)
{
    static const double few[] = { 1 }, some[] = { 1, 2, 5 }, many[] = { 1, 1.5, 2, 3, 4, 5, 6, 8 };
    low = fmin(fmax(low, SMALLEST), LARGEST);
    high = fmin(fmax(high, low), LARGEST);
    double decades = log10(high) - log10(low);
    const double *at = decades > 4 ? few : decades > 1.2 ? some : many;
    int count = decades > 4 ? 1 : decades > 1.2 ? 3 : 8;
    double margin = pow(10, fmin(1, 0.03 * fmax(decades, 0.02)));
    *a = (mmi_axis){ .low = low / margin, .high = high * margin, .log = true };
    double first = floor(log10(a->low)), last = ceil(log10(a->high));
    double every = decades > 10 ? ceil(decades / 10) : 1;
    for (double e = first; e <= last; e += every)
        for (int i = 0; i < count; i++) {
            double value = at[i] * pow(10, e);
            if (value >= a->low && value <= a->high)
                add_tick(a, value, at[i] == 1.5 || count == 8 ? 0.1 * pow(10, e) : pow(10, e));
        }
}

void mmi_axis_steps(mmi_axis *a, int64_t last)
{
    *a = (mmi_axis){ .high = last > 0 ? (double)last : 1 };
    double step = fmax(1, nice_step(a->high / 5));
    for (double value = 0; value <= a->high * (1 + 1e-12); value += step)
        add_tick(a, value, step);
}

double mmi_axis_place(const mmi_axis *a, double value)
{
    double part =
        a->log ? (log(value) - log(a->low)) / (log(a->high) - log(a->low)) : (value - a->low) / (a->high - a->low);
    return MMI_AXIS_LENGTH * fmin(1, fmax(0, part));
}
