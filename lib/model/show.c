#include "model/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fields.h"

char *mmi_shorten(char *text)
{
    char *end, shorter[40];
    int digits = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !strpbrk(text, ".e"))
        return text;
    do
        snprintf(shorter, sizeof shorter, "%.*g", ++digits, value);
    while (digits < 17 && strtod(shorter, NULL) != value);
    return strlen(shorter) < strlen(text) ? strcpy(text, shorter) : text;
}

const char *mmi_config_show(char text[MMI_SHOWN], const mm_config *config, int32_t index)
{
    const mmi_field *field = mmi_field_get((mmi_key)index);
    mmi_value value;
    if (!mmi_config_value(config, (mmi_key)index, &value))
        snprintf(text, MMI_SHOWN, "unset");
    else if (field->type == MM_TYPE_INT)
        snprintf(text, MMI_SHOWN, "%lld", (long long)value.i);
    else if (field->type == MM_TYPE_FLOAT)
        snprintf(text, MMI_SHOWN, "%.17g", value.f);
    else
        snprintf(text, MMI_SHOWN, "%s", field->type == MM_TYPE_STRING ? field->words[value.i] : value.i ? "true" : "false");
    return field->name;
}
