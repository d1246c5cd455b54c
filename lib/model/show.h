/* A config's values as text, for comparing and for telling. */
#ifndef MMI_MODEL_SHOW_H
#define MMI_MODEL_SHOW_H

#include <minimind/config.h>

/* Room for any value: a number or a word. */
#define MMI_SHOWN 256

/* A fraction, where it is one, in as few digits as give it again when they are read, in place: people write 0.0005 for
 * what takes 17 digits to store. Returns `text`. */
char *mmi_shorten(char *text);

/* The value in force of the key at 0 ≤ index < mm_config_key_count(), "unset" where it has none in this family; returns the
 * key's name. Hashes that are kept with checkpoints are made of these texts. What was said last stands: that a key is
 * unset is no failure. */
const char *mmi_config_show(char text[MMI_SHOWN], const mm_config *config, int32_t index);

#endif
