/* A config's values as text, for comparing and for telling. */
#ifndef MMI_MODEL_SHOW_H
#define MMI_MODEL_SHOW_H

#include <stddef.h>

#include <minimind/config.h>

/* Room for any value that is not a long list. */
#define MMI_SHOWN 256

/* The value in force; "unset" where the key has none in this family. */
void mmi_config_show(char text[MMI_SHOWN], const mm_config *config, const mm_config_key *key);

/* The same for 0 ≤ index < mm_config_key_count(); returns the key's name. */
const char *mmi_config_show_at(char text[MMI_SHOWN], const mm_config *config, int32_t index);

#endif
