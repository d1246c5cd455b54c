#include "model/patterns.h"

#include <stdint.h>
#include <string.h>

bool mmi_pattern_next(mmi_pattern *out, const char **list)
{
    const char *at = *list;
    if (!at)
        return false;
    size_t length = strcspn(at, ",");
    *list = at[length] ? at + length + 1 : NULL;
    for (; length > 0 && *at == ' '; length--)
        at++;
    for (; length > 0 && at[length - 1] == ' '; length--) {}
    *out = (mmi_pattern){ at, length };
    return true;
}

/* On a mismatch behind a `*` the last one swallows one character more. */
static bool means_whole(mmi_pattern p, const char *name)
{
    size_t i = 0, star = SIZE_MAX;
    const char *resume = NULL;
    while (*name) {
        if (i < p.length && p.text[i] == '*') {
            star = i++;
            resume = name;
        } else if (i < p.length && p.text[i] == *name) {
            i++;
            name++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (i < p.length && p.text[i] == '*')
        i++;
    return i == p.length;
}

bool mmi_pattern_means(mmi_pattern pattern, const char *name)
{
    if (pattern.length == 0)
        return false;
    if (!memchr(pattern.text, '*', pattern.length)) { /* lists of thousands of plain names are asked about as many */
        size_t length = strlen(name), end = length - pattern.length;
        return length >= pattern.length && (end == 0 || name[end - 1] == '.') &&
               memcmp(name + end, pattern.text, pattern.length) == 0;
    }
    while (name) {
        if (means_whole(pattern, name))
            return true;
        name = strchr(name, '.');
        name = name ? name + 1 : NULL;
    }
    return false;
}

bool mmi_patterns_mean(const char *list, const char *name)
{
    for (mmi_pattern p; mmi_pattern_next(&p, &list);)
        if (mmi_pattern_means(p, name))
            return true;
    return false;
}
