/* JSON as Python writes it: what templates call tojson. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/chat_text.h"

#define DIGITS 17 /* always enough for a double */

/* `count` digits as a whole number, times 10^exponent. No decimal point occurs, so the locale doesn't matter. */
static double read_digits(const char *digits, int count, int exponent)
{
    char text[DIGITS + 16];
    snprintf(text, sizeof text, "%.*se%d", count, digits, exponent);
    return strtod(text, NULL);
}

/* The next number of as many digits; false for 99…9. */
static bool count_up(char *digits, int count)
{
    while (count > 0 && digits[count - 1] == '9')
        digits[--count] = '0';
    if (count == 0)
        return false;
    digits[count - 1]++;
    return true;
}

/* The shortest digits d.ddd · 10^exponent that read back as `value` > 0. Of a power of two, numbers above lie twice as
 * far apart as numbers below: there the nearest decimal may not read back while the next one up does. */
static int shortest(char digits[DIGITS + 1], int *exponent, double value)
{
    for (int count = 1;; count++) {
        char text[DIGITS + 16];
        snprintf(text, sizeof text, "%.*e", count - 1, value);
        const char *e = strchr(text, 'e');
        *exponent = atoi(e + 1);
        digits[0] = text[0];
        if (count > 1)
            memcpy(digits + 1, e - (count - 1), (size_t)count - 1);
        if (count == DIGITS || read_digits(digits, count, *exponent - count + 1) == value)
            return count;
        if (count_up(digits, count) && read_digits(digits, count, *exponent - count + 1) == value)
            return count;
    }
}

static void put_zeros(mmi_chat_text *text, int count)
{
    while (count-- > 0)
        mmi_chat_text_put(text, MMI_SLICE("0"));
}

static void put_fixed(mmi_chat_text *text, const char *digits, int count, int exponent)
{
    if (exponent < 0) {
        mmi_chat_text_put(text, MMI_SLICE("0."));
        put_zeros(text, -exponent - 1);
        mmi_chat_text_put(text, (mmi_slice){ digits, (size_t)count });
        return;
    }
    int whole = exponent + 1 < count ? exponent + 1 : count;
    mmi_chat_text_put(text, (mmi_slice){ digits, (size_t)whole });
    put_zeros(text, exponent + 1 - count);
    mmi_chat_text_put(text, MMI_SLICE("."));
    mmi_chat_text_put(text, (mmi_slice){ digits + whole, (size_t)(count - whole) });
    put_zeros(text, whole == count);
}

static void put_scientific(mmi_chat_text *text, const char *digits, int count, int exponent)
{
    char tail[16];
    mmi_chat_text_put(text, (mmi_slice){ digits, 1 });
    if (count > 1)
        mmi_chat_text_put(text, MMI_SLICE("."));
    mmi_chat_text_put(text, (mmi_slice){ digits + 1, (size_t)count - 1 });
    snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    mmi_chat_text_put(text, (mmi_slice){ tail, strlen(tail) });
}

static void put_real(mmi_chat_text *text, double value)
{
    char digits[DIGITS + 1] = "0";
    int exponent = 0, count = 1;
    if (signbit(value))
        mmi_chat_text_put(text, MMI_SLICE("-"));
    if (value != 0)
        count = shortest(digits, &exponent, fabs(value));
    if (exponent < -4 || exponent >= 16)
        put_scientific(text, digits, count, exponent);
    else
        put_fixed(text, digits, count, exponent);
}

/* What stands for `c` inside a string; nothing if it stands for itself. */
static mmi_slice escape(char buffer[8], unsigned char c)
{
    static const char named[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t i = 0; i + 1 < sizeof named; i += 2)
        if ((unsigned char)named[i] == c) {
            buffer[0] = '\\';
            buffer[1] = named[i + 1];
            return (mmi_slice){ buffer, 2 };
        }
    if (c >= 0x20)
        return (mmi_slice){ NULL, 0 };
    snprintf(buffer, 8, "\\u%04x", c);
    return (mmi_slice){ buffer, 6 };
}

void mmi_chat_text_put_json_string(mmi_chat_text *text, mmi_slice string)
{
    size_t start = 0;
    mmi_chat_text_put(text, MMI_SLICE("\""));
    for (size_t i = 0; i < string.length; i++) {
        char buffer[8];
        mmi_slice escaped = escape(buffer, (unsigned char)string.at[i]);
        if (escaped.length == 0)
            continue;
        mmi_chat_text_put(text, (mmi_slice){ string.at + start, i - start });
        mmi_chat_text_put(text, escaped);
        start = i + 1;
    }
    mmi_chat_text_put(text, mmi_slice_from(string, start));
    mmi_chat_text_put(text, MMI_SLICE("\""));
}

static void put_array(mmi_chat_text *text, mmi_json *array)
{
    mmi_chat_text_put(text, MMI_SLICE("["));
    for (size_t i = 0; i < mmi_json_size(array); i++) {
        if (i > 0)
            mmi_chat_text_put(text, MMI_SLICE(", "));
        mmi_chat_text_put_json(text, mmi_json_at(array, i));
    }
    mmi_chat_text_put(text, MMI_SLICE("]"));
}

static void put_object(mmi_chat_text *text, mmi_json *object)
{
    mmi_chat_text_put(text, MMI_SLICE("{"));
    void *first = mmi_json_first(object);
    for (void *i = first; i; i = mmi_json_next(object, i)) {
        const char *key = mmi_json_key(i);
        if (i != first)
            mmi_chat_text_put(text, MMI_SLICE(", "));
        mmi_chat_text_put_json_string(text, (mmi_slice){ key, strlen(key) });
        mmi_chat_text_put(text, MMI_SLICE(": "));
        mmi_chat_text_put_json(text, mmi_json_value(i));
    }
    mmi_chat_text_put(text, MMI_SLICE("}"));
}

static void put_word(mmi_chat_text *text, const char *word)
{
    mmi_chat_text_put(text, (mmi_slice){ word, strlen(word) });
}

void mmi_chat_text_put_json(mmi_chat_text *text, mmi_json *value)
{
    char number[32];
    mmi_slice string;
    switch (mmi_json_what(value)) {
    case MMI_JSON_BOOL:
        put_word(text, mmi_json_bool(value, false) ? "true" : "false");
        break;
    case MMI_JSON_INT:
        snprintf(number, sizeof number, "%" PRId64, mmi_json_int(value, 0));
        put_word(text, number);
        break;
    case MMI_JSON_REAL:
        put_real(text, mmi_json_number(value, 0));
        break;
    case MMI_JSON_STRING:
        string.at = mmi_json_string(value, &string.length);
        mmi_chat_text_put_json_string(text, string);
        break;
    case MMI_JSON_ARRAY:
        put_array(text, value);
        break;
    case MMI_JSON_OBJECT:
        put_object(text, value);
        break;
    default:
        put_word(text, "null");
    }
}
