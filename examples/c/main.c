/* Calls the kernel of kernels/saxpy.te: once without checks, twice with checks. */
#include <stdint.h>
#include <stdio.h>

#include "saxpy.h"

#define N 1000

static float x[N], y[N], z[N];

static DLTensor vector(float *data, int64_t *shape) {
    DLTensor tensor = {data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
    return tensor;
}

int main(void) {
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 1.0f;
    }

    /* The raw entry: pointers and run-time integers, nothing is checked. */
    if (saxpy(2.0f, x, y, z, N) != 0) return 1;
    printf("z[10] = %g\n", z[10]);

    /* The checked entry: DLPack tensors. */
    int64_t all = N, fewer = N - 1;
    DLTensor tx = vector(x, &all), ty = vector(y, &all), tz = vector(z, &all);
    if (saxpy_dl(2.0f, &tx, &ty, &tz) != 0) return 1;
    ty.shape = &fewer;
    if (saxpy_dl(2.0f, &tx, &ty, &tz) == 0) return 1;
    printf("%s\n", saxpy_last_error());
    return 0;
}
