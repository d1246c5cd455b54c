#include "model/show.h"

#include <stdio.h>

void mmi_config_show(char text[MMI_SHOWN], const mm_config *config, const mm_config_key *key)
{
    int64_t integer;
    int32_t truth;
    double real;
    mm_status status;
    switch (key->type) {
    case MM_TYPE_INT:
        if ((status = mm_config_get_int(config, key->name, &integer)) == MM_OK)
            snprintf(text, MMI_SHOWN, "%lld", (long long)integer);
        break;
    case MM_TYPE_FLOAT:
        if ((status = mm_config_get_float(config, key->name, &real)) == MM_OK)
            snprintf(text, MMI_SHOWN, "%.17g", real);
        break;
    case MM_TYPE_BOOL:
        if ((status = mm_config_get_bool(config, key->name, &truth)) == MM_OK)
            snprintf(text, MMI_SHOWN, "%s", truth ? "true" : "false");
        break;
    default:
        status = mm_config_get_string(config, key->name, text, MMI_SHOWN, NULL);
    }
    if (status != MM_OK)
        snprintf(text, MMI_SHOWN, "unset");
}

const char *mmi_config_show_at(char text[MMI_SHOWN], const mm_config *config, int32_t index)
{
    mm_config_key key = MM_CONFIG_KEY_INIT;
    mm_config_key_get(index, &key); /* there is one */
    mmi_config_show(text, config, &key);
    return key.name;
}
