/* Kernels compute with denormals and round to nearest in any mode of the caller, and restore its
 * mode. */
#include "m.h"
#include "support.h"

PackedFn __tvm_ffi_add, __tvm_ffi_scalars;

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint32_t get_mode(void) { return _mm_getcsr() & ~0x3fu; }
static void set_mode(uint32_t mode) { _mm_setcsr(mode); }
/* The default; FTZ and DAZ; round towards zero; all of these, and invalid operations trap. */
static const uint32_t modes[] = {0x1f80, 0x9fc0, 0x7f80, 0xff40};
#elif defined(__aarch64__)
static uint32_t get_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return (uint32_t)mode;
}
static void set_mode(uint32_t mode) {
    uint64_t wide = mode;
    __asm__ volatile("msr fpcr, %0" : : "r"(wide));
}
static const uint32_t modes[] = {0, 1u << 24, 3u << 22, 1u << 24 | 3u << 22};
#else
static uint32_t get_mode(void) {
    uint64_t mode;
    __asm__ volatile("frrm %0" : "=r"(mode));
    return (uint32_t)mode;
}
static void set_mode(uint32_t mode) {
    uint64_t wide = mode;
    __asm__ volatile("fsrm %0" : : "r"(wide));
}
static const uint32_t modes[] = {0, 1, 2, 3};
#endif

static float a[100], b[100], c[100];
static int64_t shape[1] = {100};

static DLTensor vector(float *data) {
    DLTensor t = {0};
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = 1;
    t.dtype.code = kDLFloat, t.dtype.bits = 32, t.dtype.lanes = 1;
    t.shape = shape;
    return t;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

int main(void) {
    uint32_t denormal = 5, up = 0x33c00000; /* 1.5 * 2^-24: rounds 1 up to the next float */
    for (int i = 0; i < 100; i++) {
        memcpy(&a[i], i % 2 ? &up : &denormal, sizeof a[i]);
        b[i] = i % 2 ? 1.0f : 0.0f;
    }
    DLTensor A = vector(a), B = vector(b), C = vector(c);
    Cell args[3] = {{DLTENSOR, 0, {0}}, {DLTENSOR, 0, {0}}, {DLTENSOR, 0, {0}}}, ret = {0, 0, {0}};
    args[0].value.pointer = &A, args[1].value.pointer = &B, args[2].value.pointer = &C;
    for (int i = 0; i < (int)(sizeof modes / sizeof modes[0]); i++) {
        for (int way = 0; way < 4; way++) {
            memset(c, 0, sizeof c);
            A.ndim = way == 3 ? 2 : 1;
            set_mode(modes[i]);
            int32_t status = way == 0 ? add(a, b, c)
                           : way == 1 ? add_dl(&A, &B, &C)
                                      : __tvm_ffi_add(NULL, args, 3, &ret);
            uint32_t after = get_mode();
            set_mode(modes[0]);
            EXPECT(after == modes[i]);
            EXPECT(status == (way == 3 ? -1 : 0));
            if (way != 3) EXPECT(bits_of(c[0]) == 5 && bits_of(c[1]) == 0x3f800001);
        }
    }
    return finish();
}
