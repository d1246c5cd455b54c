#include "model/show.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/fields.h"

const char *mmi_real_show(char text[MMI_SHOWN], double value)
{
    int digits = 0;
    do
        snprintf(text, MMI_SHOWN, "%.*g", ++digits, value);
    while (digits < 17 && strtod(text, NULL) != value);
    return text;
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
        mmi_real_show(text, value.f);
    else
        snprintf(text, MMI_SHOWN, "%s", field->type == MM_TYPE_STRING ? field->words[value.i] : value.i ? "true" : "false");
    return field->name;
}
