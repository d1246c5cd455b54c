#include "train/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/axis.h"

void mmi_html_put(mmi_writer *page, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0)
        mmi_writer_put(page, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

static const char *escape(char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return ((unsigned char)c < ' ' && c != '\n' && c != '\t') || c == 0x7F ? "\xEF\xBF\xBD" : NULL;
    }
}

void mmi_html_text(mmi_writer *page, const char *text, size_t length)
{
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        const char *instead = escape(text[i]);
        if (!instead)
            continue;
        mmi_writer_put(page, text + from, i - from);
        mmi_writer_put(page, instead, strlen(instead));
        from = i + 1;
    }
    mmi_writer_put(page, text + from, length - from);
}

void mmi_html_string(mmi_writer *page, const char *text)
{
    mmi_html_text(page, text, strlen(text));
}

void mmi_html_json_string(mmi_writer *page, const char *text)
{
    mmi_writer_put(page, "\"", 1);
    for (const char *c = text; *c; c++) {
        if (strchr("\"\\<>&/", *c) || (unsigned char)*c < ' ')
            mmi_html_put(page, "\\u%04x", (unsigned char)*c);
        else
            mmi_writer_put(page, c, 1);
    }
    mmi_writer_put(page, "\"", 1);
}

void mmi_html_number(mmi_writer *page, double value, int digits)
{
    char text[32];
    mmi_number(text, value, digits);
    mmi_writer_put(page, text, strlen(text));
}

void mmi_html_reading(mmi_writer *page, double value)
{
    bool large = fabs(value) >= 1000;
    mmi_html_number(page, large ? round(value) : value, large ? 15 : 4);
}
