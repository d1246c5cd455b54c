/* A config's values as text, for comparing and for telling. */
#ifndef MMI_MODEL_SHOW_H
#define MMI_MODEL_SHOW_H

#include <minimind/config.h>

/* Room for any value: a number or a word. */
#define MMI_SHOWN 256

/* A number in as few digits as give it again when they are read; returns `text`. */
const char *mmi_real_show(char text[MMI_SHOWN], double value);

/* The value in force of the key at 0 ≤ index < mm_config_key_count(), "unset" where it has none in this family; returns the
 * key's name. What was said last stands: that a key is unset is no failure. */
const char *mmi_config_show(char text[MMI_SHOWN], const mm_config *config, int32_t index);

#endif
