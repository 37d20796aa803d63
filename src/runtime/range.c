/* Whether all elements of an integer tensor are valid indices, faster than the checks of kernels,
 * which say which element is not. */
#include "tec_runtime.h"

typedef uint64_t words __attribute__((vector_size(16)));

/* For each width, a function that returns 1 if all elements are from 0 to `last`, whose highest bit
 * is 0. For such an x, the highest bits of x and of last - x are 0; for every other x, that of one
 * of them is 1. `top` has the highest bit of each element in a word. */
#define ALL_BELOW(bits, top)                                                                       \
    typedef uint##bits##_t lanes##bits                                                             \
        __attribute__((vector_size(16), aligned(bits / 8), may_alias));                            \
    static int32_t all_below##bits(const uint##bits##_t *data, int64_t count,                      \
                                   uint##bits##_t last) {                                          \
        enum { LANES = 128 / bits };                                                               \
        lanes##bits limit = (lanes##bits){0} + last, found = {0};                                  \
        for (int64_t at = 0; at < count; at += LANES) {                                            \
            /* The last vector may overlap the one before. */                                      \
            int64_t first = count - at < LANES ? count - LANES : at;                               \
            lanes##bits x = *(const lanes##bits *)(data + first);                                  \
            found |= x | (limit - x);                                                              \
        }                                                                                          \
        words both = (words)found;                                                                 \
        return !((both[0] | both[1]) & top);                                                       \
    }

ALL_BELOW(8, UINT64_C(0x8080808080808080))
ALL_BELOW(16, UINT64_C(0x8000800080008000))
ALL_BELOW(32, UINT64_C(0x8000000080000000))
ALL_BELOW(64, UINT64_C(0x8000000000000000))

int32_t tec_rt_all_below(const void *data, int64_t count, int32_t bits, int32_t is_signed,
                         int64_t extent) {
    int64_t last = extent - 1, largest = (int64_t)(~UINT64_C(0) >> (65 - bits));
    if (extent <= 0)
        return 0;
    if (last > largest) {
        /* Unsigned elements may have the highest bit. */
        if (!is_signed)
            return 0;
        last = largest;
    }
    switch (bits) {
    case 8: return all_below8(data, count, (uint8_t)last);
    case 16: return all_below16(data, count, (uint16_t)last);
    case 32: return all_below32(data, count, (uint32_t)last);
    default: return all_below64(data, count, (uint64_t)last);
    }
}
