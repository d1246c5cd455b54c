/* state.json of a checkpoint: where the run stood, under which options, and what its files must look like. */
#ifndef MMI_TRAIN_STATE_H
#define MMI_TRAIN_STATE_H

#include "base/json.h"
#include "train/trainer.h"

/* All of it but what is said of the files; mmi_json_free it. */
mm_status mmi_state_new(mmi_json **out, const mm_trainer *trainer);

/* Add the size and hash of every other file in `directory`, and write it there, last. */
mm_status mmi_state_write(mmi_json *state, const char *directory);

/* The options and the data that decide how a run goes on, a value for each name; NULL: no memory. */
mmi_json *mmi_state_options(const mm_trainer *trainer);

/* Those of a loader and its rows. False: no memory. */
bool mmi_state_data(mmi_json *to, const mm_loader *loader);

/* Read it and check it against its own checksum; mmi_json_free it. */
mm_status mmi_state_read(mmi_json **out, const char *directory);

/* Are the options and the data that decide what follows the trainer's own, but for a length that may have grown?
 * MM_ERR_FORMAT says which is not. */
mm_status mmi_state_check_options(mmi_json *state, const mm_trainer *trainer, const char *directory);

/* Is every file as it was written? */
mm_status mmi_state_check_files(mmi_json *state, const char *directory);

/* Where the run stood, and where its last update had left it. */
mm_status mmi_state_places(mmi_place *now, mmi_place *boundary, mmi_json *state, const char *directory);

/* What the last step was like, and how well the run was: where it stood, or `of_update`. */
mm_status mmi_state_readings(mmi_reading *last, mmi_health *health, mmi_json *state, bool of_update,
                             const char *directory);

#endif
