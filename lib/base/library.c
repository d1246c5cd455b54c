#include <minimind/library.h>
#include <minimind/view.h>

#include "base/dtype.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)

uint32_t mm_version(void)
{
    return MM_VERSION;
}

const char *mm_version_string(void)
{
    return NUMBER(MM_VERSION_MAJOR) "." NUMBER(MM_VERSION_MINOR) "." NUMBER(MM_VERSION_PATCH);
}

size_t mm_dtype_size(int32_t dtype)
{
    switch (dtype) {
    case MM_F32:
    case MM_I32:
        return 4;
    case MM_BF16:
    case MM_F16:
        return 2;
    case MM_I64:
        return 8;
    default:
        return 0;
    }
}

size_t mmi_block_bytes(int32_t dtype)
{
    return dtype == MM_Q8_0 ? 2 + MMI_BLOCK : dtype == MM_Q4_0 ? 2 + MMI_BLOCK / 2 : 0;
}

size_t mmi_dtype_bytes(int32_t dtype, int64_t elements)
{
    size_t block = mmi_block_bytes(dtype);
    return block ? (size_t)(elements / MMI_BLOCK) * block : (size_t)elements * mm_dtype_size(dtype);
}

const char *mm_dtype_name(int32_t dtype)
{
    switch (dtype) {
    case MM_F32:
        return "f32";
    case MM_BF16:
        return "bf16";
    case MM_F16:
        return "f16";
    case MM_I32:
        return "i32";
    case MM_I64:
        return "i64";
    case MM_Q8_0:
        return "q8_0";
    case MM_Q4_0:
        return "q4_0";
    default:
        return "unknown";
    }
}
