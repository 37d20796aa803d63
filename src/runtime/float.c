/* The floating-point mode, and arithmetic that the baseline CPU lacks. */
#include "tec_runtime.h"

/* Modules run with round to nearest, denormals, and masked exceptions. The caller's mode is
 * restored only if it was different, so the common case costs a store and a compare. */

#if defined(__x86_64__)

/* The six sticky exception flags are results and not part of the mode. */
enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLAGS = 0x3f };

INTERNAL uint32_t tec_rt_fp_enter(void) {
    uint32_t mode = MXCSR_DEFAULT, saved;
    __asm__ volatile("stmxcsr %0" : "=m"(saved));
    if ((saved & ~MXCSR_FLAGS) == MXCSR_DEFAULT) return 0;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode));
    return saved | 0x80000000u;
}

INTERNAL void tec_rt_fp_leave(uint32_t saved) {
    saved &= 0x7fffffffu;
    __asm__ volatile("ldmxcsr %0" : : "m"(saved));
}

#elif defined(__aarch64__)

INTERNAL uint32_t tec_rt_fp_enter(void) {
    uint64_t saved, mode = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    if ((uint32_t)saved == 0) return 0;
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return (uint32_t)saved | 0x80000000u;
}

INTERNAL void tec_rt_fp_leave(uint32_t saved) {
    uint64_t mode = saved & 0x7fffffffu;
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}

#elif defined(__riscv)

/* RISC-V always has denormals and never traps, so the mode is the rounding mode. */
INTERNAL uint32_t tec_rt_fp_enter(void) {
    uint64_t saved;
    __asm__ volatile("frrm %0" : "=r"(saved));
    if (saved == 0) return 0;
    __asm__ volatile("fsrm zero");
    return (uint32_t)saved | 0x80000000u;
}

INTERNAL void tec_rt_fp_leave(uint32_t saved) {
    uint64_t mode = saved & 7;
    __asm__ volatile("fsrm %0" : : "r"(mode));
}

#endif

#if defined(__x86_64__)

/* Exact fused multiply-add for x86 CPUs without the instruction. Runs in the default mode, as all
 * kernels do. */

static uint64_t bits_of(double x) {
    union {
        double d;
        uint64_t u;
    } v = {x};
    return v.u;
}

static double double_of(uint64_t u) {
    union {
        uint64_t u;
        double d;
    } v = {u};
    return v.d;
}

/* The product of two floats is exact in double. The sum is rounded to odd, so that rounding it to
 * float is correct: if it was inexact and its last bit is 0, step towards the exact sum. */
INTERNAL float tec_rt_fmaf(float x, float y, float z) {
    double product = (double)x * y, addend = z;
    double sum = product + addend;
    uint64_t bits = bits_of(sum);
    if ((bits >> 52 & 0x7ff) == 0x7ff) return (float)sum;
    double part = sum - product;
    double lost = (product - (sum - part)) + (addend - part);
    if (lost != 0 && !(bits & 1)) {
        bits += (lost > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    }
    return (float)double_of(bits);
}

/* A finite nonzero number: mantissa * 2^exponent, 2^52 <= mantissa < 2^53. */
struct number {
    uint64_t mantissa;
    int32_t exponent;
};

static struct number split(uint64_t bits) {
    struct number n = {bits & 0xfffffffffffffull, (int32_t)(bits >> 52 & 0x7ff)};
    if (n.exponent == 0) {
        n.exponent = 1;
        while (!(n.mantissa >> 52)) {
            n.mantissa <<= 1;
            n.exponent--;
        }
    } else {
        n.mantissa |= 1ull << 52;
    }
    n.exponent -= 1075;
    return n;
}

typedef unsigned __int128 wide;

/* Shifts right; sets the last bit if a one was shifted out. */
static wide shift_sticky(wide x, int32_t by) {
    if (by > 127) return x != 0;
    return by == 0 ? x : x >> by | ((x << (128 - by)) != 0);
}

/* Rounds x * 2^exponent to nearest even; x is not 0. */
static double round_wide(wide x, int32_t exponent, uint64_t sign) {
    int32_t top = (uint64_t)(x >> 64) ? 127 - __builtin_clzll((uint64_t)(x >> 64))
                                      : 63 - __builtin_clzll((uint64_t)x);
    int32_t drop = top - 52;
    if (exponent + drop < -1074) drop = -1074 - exponent;
    /* Keeps two bits below the last one, which decide the rounding. */
    wide kept = drop - 2 >= 0 ? shift_sticky(x, drop - 2) : x << (2 - drop);
    uint64_t mantissa = (uint64_t)(kept >> 2), rest = (uint64_t)kept & 3;
    mantissa += rest > 2 || (rest == 2 && (mantissa & 1));
    exponent += drop;
    if (mantissa >> 53) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent > 971) return double_of(sign | 0x7ff0000000000000ull);
    uint64_t biased = mantissa >> 52 ? (uint64_t)(exponent + 1075) : 0;
    return double_of(sign | biased << 52 | (mantissa & 0xfffffffffffffull));
}

INTERNAL double tec_rt_fma(double x, double y, double z) {
    uint64_t bx = bits_of(x), by = bits_of(y), bz = bits_of(z);
    const uint64_t sign_bit = 1ull << 63, infinity = 0x7ffull << 52;
    if ((bx & infinity) == infinity || (by & infinity) == infinity || x == 0 || y == 0) {
        return x * y + z;
    }
    if ((bz & infinity) == infinity) return z;
    if (z == 0) return x * y;
    struct number nx = split(bx), ny = split(by), nz = split(bz);
    /* Both have their top bit at 124 or 125, which leaves room for a carry, and more than 53 bits
     * below. */
    wide product = ((wide)nx.mantissa * ny.mantissa) << 20, addend = (wide)nz.mantissa << 72;
    int32_t exponent = nx.exponent + ny.exponent - 20, other = nz.exponent - 72;
    if (exponent >= other) {
        addend = shift_sticky(addend, exponent - other);
    } else {
        product = shift_sticky(product, other - exponent);
        exponent = other;
    }
    uint64_t sign = (bx ^ by) & sign_bit;
    if (sign == (bz & sign_bit)) return round_wide(product + addend, exponent, sign);
    if (product == addend) return 0;
    if (product > addend) return round_wide(product - addend, exponent, sign);
    return round_wide(addend - product, exponent, bz & sign_bit);
}

#endif
