/* Compares the runtime's exact fused multiply-add with the C library's. */
#include "support.h"
#include <math.h>

float tec_rt_fmaf(float x, float y, float z);
double tec_rt_fma(double x, double y, double z);

static uint64_t state = 88172645463325252u;

static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t bits_of(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0x7ff8000000000000u : u;
}

static double double_of(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Returns random numbers: close or extreme exponents, sparse or dense mantissas, or any bits. */
static double some_double(int kind) {
    uint64_t r = random_bits();
    if (kind % 4 == 0) return double_of(r);
    uint64_t exponent = kind % 4 == 1 ? 1023 + r % 64 - 32
                      : kind % 4 == 2 ? r % 130
                                      : 1023 - 512 + r % 1024;
    uint64_t mantissa = random_bits() >> 12;
    if (r >> 40 & 1) mantissa &= ~(uint64_t)0 << (r >> 41 & 31) << 20;
    if (r >> 50 & 1) mantissa |= ((uint64_t)1 << (r >> 51 & 31)) - 1;
    return double_of((r >> 63) << 63 | exponent << 52 | (mantissa & 0xfffffffffffff));
}

static float some_float(int kind) {
    uint32_t r = (uint32_t)random_bits(), m = (uint32_t)random_bits() >> 9;
    if (kind % 4 == 0) return float_of(r);
    uint32_t exponent = kind % 4 == 1 ? 127 + r % 32 - 16
                      : kind % 4 == 2 ? r % 60
                                      : 127 - 64 + r % 128;
    if (r >> 20 & 1) m &= ~(uint32_t)0 << (r >> 21 & 15) << 5;
    return float_of((r >> 31) << 31 | exponent << 23 | (m & 0x7fffff));
}

static void compare(double x, double y, double z) {
    double got = tec_rt_fma(x, y, z), expected = fma(x, y, z);
    if (bits_of(got) != bits_of(expected) && failures++ < 10) {
        printf("fma(%a, %a, %a) = %a, not %a\n", x, y, z, expected, got);
    }
}

static void comparef(float x, float y, float z) {
    float got = tec_rt_fmaf(x, y, z), expected = fmaf(x, y, z);
    if (bits_of(got) != bits_of(expected) && failures++ < 10) {
        printf("fmaf(%a, %a, %a) = %a, not %a\n", (double)x, (double)y, (double)z,
               (double)expected, (double)got);
    }
}

int main(void) {
    static const double special[] = {
        0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p-1074, 0x1p-1022,
        0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0x1p-537, 0x1.8p-538, 0x1p512,
        0x1.0000000000001p0, 0x1.fffffffffffffp-1, 0x1p-149, 0x1p-126f, 0x1.fffffep127,
        0x1p970, 0x1p-75, 0x1.000002p0, 3.0,
    };
    enum { N = sizeof special / sizeof special[0] };
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            for (int k = 0; k < N; k++) {
                compare(special[i], special[j], special[k]);
                comparef((float)special[i], (float)special[j], (float)special[k]);
            }
        }
    }
    for (int i = 0; i < 1000000; i++) {
        double x = some_double(i), y = some_double(i), z = some_double(i / 4);
        compare(x, y, z);
        /* Near cancellation, and half-way cases. */
        compare(x, y, -x * y);
        compare(x, y, double_of(bits_of(x * y) - random_bits() % 3 + ((uint64_t)1 << 63)));
        compare(x, y, x * y * 0x1p-53);
        float u = some_float(i), v = some_float(i), w = some_float(i / 4);
        comparef(u, v, w);
        comparef(u, v, -u * v);
        comparef(u, v, u * v * 0x1p-24f);
    }
    return finish();
}
