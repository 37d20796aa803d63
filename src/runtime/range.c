/* Whether all elements of an integer tensor are valid indices, faster than the checks of kernels,
 * which say which element is not. */
#include "tec_runtime.h"

/* For each width, a function that returns 1 if all elements are from 0 to `last`, whose highest bit
 * is 0. For such an x, the highest bits of x and of last - x are 0; for every other x, that of one
 * of them is 1. */
#define ALL_BELOW(bits)                                                                            \
    typedef uint##bits##_t lanes##bits                                                             \
        __attribute__((vector_size(16), aligned(bits / 8), may_alias));                            \
    static int32_t all_below##bits(const uint##bits##_t *data, int64_t count,                      \
                                   uint##bits##_t last) {                                          \
        enum { LANES = 128 / bits };                                                               \
        lanes##bits limit = (lanes##bits){0} + last, a = {0}, b = {0};                             \
        int64_t at = 0;                                                                            \
        for (; count - at >= 2 * LANES; at += 2 * LANES) {                                         \
            lanes##bits x = *(const lanes##bits *)(data + at);                                     \
            lanes##bits y = *(const lanes##bits *)(data + at + LANES);                             \
            a |= x | (limit - x);                                                                  \
            b |= y | (limit - y);                                                                  \
        }                                                                                          \
        uint##bits##_t all = 0;                                                                    \
        a |= b;                                                                                    \
        for (int64_t lane = 0; lane < LANES; lane++)                                               \
            all |= a[lane];                                                                        \
        for (; at < count; at++)                                                                   \
            all |= data[at] | (uint##bits##_t)(last - data[at]);                                   \
        return !(all >> (bits - 1));                                                               \
    }

ALL_BELOW(8)
ALL_BELOW(16)
ALL_BELOW(32)
ALL_BELOW(64)

int32_t tec_rt_all_below(const void *data, int64_t count, int32_t bits, int32_t is_signed,
                         int64_t extent) {
    int64_t last = extent - 1, largest = (int64_t)(~UINT64_C(0) >> (65 - bits));
    if (extent <= 0)
        return count <= 0;
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
