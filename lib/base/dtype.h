/* What mm_dtype_size() can't say: some dtypes pack their numbers in blocks. */
#ifndef MMI_BASE_DTYPE_H
#define MMI_BASE_DTYPE_H

#include <minimind/view.h>

#define MMI_BLOCK 32                         /* numbers in a block of MM_Q8_0 or MM_Q4_0 */
#define MMI_MOST_BLOCK_BYTES (2 + MMI_BLOCK) /* of either */

/* Bytes of one block; 0 for a dtype whose numbers stand alone. */
size_t mmi_block_bytes(int32_t dtype);

/* Bytes of `elements` numbers; in blocks, a multiple of MMI_BLOCK of them. */
size_t mmi_dtype_bytes(int32_t dtype, int64_t elements);

#endif
