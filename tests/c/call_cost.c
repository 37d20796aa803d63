/* Prints the cost of a call with three tensors: `add` of one element, so the kernel itself takes
 * almost no time. A cost is the minimum of many short runs in nanoseconds, the loop included. */
#include "one.h"
#include "support.h"
#include <time.h>

PackedFn __tvm_ffi_add_one;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static float a[1], b[1], c[1];
static int64_t shape[1] = {1}, strides[1] = {1};
static DLTensor A, B, C;
static Cell args[3];

static int32_t (*volatile raw)(const float *, const float *, float *) = add_one;
static int32_t (*volatile typed)(const DLTensor *, const DLTensor *, DLTensor *) = add_one_dl;
static PackedFn *volatile packed = __tvm_ffi_add_one;

static int32_t call(int way) {
    Cell ret = {0, 0, {0}};
    return way == 0 ? raw(a, b, c) : way == 1 ? typed(&A, &B, &C) : packed(NULL, args, 3, &ret);
}

int main(void) {
    static const char *const names[] = {"raw", "_dl", "packed"};
    A.data = a, A.device.device_type = kDLCPU, A.ndim = 1, A.shape = shape, A.strides = strides;
    A.dtype.code = kDLFloat, A.dtype.bits = 32, A.dtype.lanes = 1;
    B = C = A, B.data = b, C.data = c;
    DLTensor *tensors[3] = {&A, &B, &C};
    for (int i = 0; i < 3; i++) args[i].type = DLTENSOR, args[i].value.pointer = tensors[i];
    for (int way = 0; way < 3; way++) {
        double best = 1e9;
        for (int run = 0; run < 2000; run++) {
            double start = now();
            for (int i = 0; i < 1000; i++) EXPECT(call(way) == 0);
            double each = (now() - start) / 1000;
            if (each < best) best = each;
        }
        printf("%s call: %.1f ns\n", names[way], best);
    }
    return finish();
}
