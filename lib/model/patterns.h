/* Which names are meant by a list of patterns, separated by commas. */
#ifndef MMI_MODEL_PATTERNS_H
#define MMI_MODEL_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

/* A `*` stands for any characters, and a pattern also means names that end in "." and it. Blanks round it don't count. */
typedef struct mmi_pattern {
    const char *text;
    size_t length;
} mmi_pattern;

/* Take the next pattern off *list. False at the end. One between two commas is empty, and means no name. */
bool mmi_pattern_next(mmi_pattern *out, const char **list);

bool mmi_pattern_means(mmi_pattern pattern, const char *name);

/* Any of the list's does. */
bool mmi_patterns_mean(const char *list, const char *name);

#endif
