/* Of the programs that run.py makes: arguments with a fixed pattern, outputs as a hash. Only
 * integer arithmetic, so that every architecture makes the same values. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *dumped = "";

static uint64_t state;

/* Xorshift, starting over for each tensor. */
static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * UINT64_C(2685821657736338717) >> 8;
}

static int64_t count(const DLTensor *t) {
    int64_t n = 1;
    for (int k = 0; k < t->ndim; k++) n *= t->shape[k];
    return n;
}

static size_t size(const DLTensor *t) { return (size_t)count(t) * (t->dtype.bits / 8); }

static DLTensor tensor(int64_t *shape, int ndim, int code, int bits) {
    DLTensor t = {0};
    t.device.device_type = kDLCPU, t.ndim = ndim, t.shape = shape;
    t.dtype.code = code, t.dtype.bits = bits, t.dtype.lanes = 1;
    t.data = calloc(1, size(&t) + 64);
    return t;
}

/* Width of the exponent of a float type. */
static int exponent(int code, int bits) {
    return code == kDLBfloat || bits == 32 ? 8 : bits == 64 ? 11 : 5;
}

/* Of a float type: zero, infinity, NaN, the least and largest numbers, one, near one, with any
 * sign; random bits; and mostly numbers between 1/16 and 16. Tame ones are between 1/4 and 4. */
static uint64_t float_bits(int code, int bits, int wild) {
    int e = exponent(code, bits), m = bits - 1 - e;
    uint64_t one = ((UINT64_C(1) << (e - 1)) - 1) << m, inf = ((UINT64_C(1) << e) - 1) << m;
    uint64_t special[] = {0, inf, inf + 1, inf | UINT64_C(1) << (m - 1), 1, (UINT64_C(1) << m) - 1,
                          UINT64_C(1) << m, inf - 1, one, one - 1, one + 1,
                          one - (UINT64_C(1) << m)};
    uint64_t r = next(), sign = (r & 1) << (bits - 1), mantissa = next() & ((UINT64_C(1) << m) - 1);
    int spread = wild ? 8 : 4;
    uint64_t scale = one + ((r >> 1) % spread << m) - ((uint64_t)(spread / 2) << m);
    if (wild && (r >> 8) % 8 == 0) return sign | special[(r >> 16) % 12];
    if (wild && (r >> 8) % 8 <= 2) return next() << 8 ^ next();
    return sign | (scale + mantissa);
}

static void fill(void *data, int64_t n, int code, int bits, int wild, int place) {
    state = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(wild + 2 * place + 1);
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = next(), value = r % 8;
        if (code == kDLFloat || code == kDLBfloat) value = float_bits(code, bits, wild);
        else if (code == kDLBool) value = r & 1;
        else if (wild && r % 4 == 0) value = UINT64_C(1) << (bits - 1);
        else if (wild && r % 4 == 1) value = (uint64_t)0 - (r >> 4) % 4;
        else if (wild) value = next() << 8 ^ next();
        memcpy((char *)data + i * (bits / 8), &value, bits / 8);
    }
}

/* The bits of an element; one value for every NaN. */
static uint64_t element(const DLTensor *t, int64_t i) {
    int code = t->dtype.code, bits = t->dtype.bits;
    uint64_t value = 0;
    memcpy(&value, (char *)t->data + i * (bits / 8), bits / 8);
    if (code != kDLFloat && code != kDLBfloat) return value;
    int m = bits - 1 - exponent(code, bits);
    uint64_t inf = ((UINT64_C(1) << exponent(code, bits)) - 1) << m;
    uint64_t magnitude = value & ~(UINT64_C(1) << (bits - 1));
    return magnitude > inf ? inf | UINT64_C(1) << (m - 1) : value;
}

/* The hash of an output of the raw entry; the checked one, `u`, must have made the same. */
static void show(const char *kernel, const char *name, int wild, DLTensor *t, DLTensor *u) {
    uint64_t hash = UINT64_C(14695981039346656037);
    int same = 1;
    for (int64_t i = 0; i < count(t); i++) {
        uint64_t value = element(t, i);
        same &= value == element(u, i);
        hash = (hash ^ value) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
        if (strcmp(kernel, dumped)) continue;
        printf("%s %s %d [%" PRId64 "] %" PRIx64 "\n", kernel, name, wild, i, value);
    }
    printf("%s %s %d %016" PRIx64 "%s\n", kernel, name, wild, hash, same ? "" : " entries differ");
}
