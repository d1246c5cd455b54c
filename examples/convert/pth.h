/* MiniMind's own files, full_sft_512.pth and the like: what torch.save() writes of a model's weights, without torch. */
#ifndef EXAMPLES_PTH_H
#define EXAMPLES_PTH_H

#include <minimind.h>

/* The model of such a file, or of a checkpoint that has one as its "model" or "state_dict", with weights as they are
 * stored, if that is one of float32, bfloat16 and float16. What is damaged or of another config ends the program with a
 * message. */
mm_model *pth_read(const char *path, const mm_config *config);

/* The adapter of such a file of MiniMind's LoRA, for its model. */
mm_adapter *pth_read_adapter(const char *path, mm_model *model);

#define PTH_BEGIN "PK\3\4" /* of such a file */

/* Write the model, with both names of a tied embedding, as MiniMind's programs load it. Another such file of this name is
 * replaced once this one is whole. */
void pth_write(const char *path, const mm_model *model);

#endif
