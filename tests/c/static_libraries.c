/* Calls kernels of two static libraries. */
#include "first.h"
#include "second.h"
#include <stdio.h>
#include <string.h>

#define N 100000

static float x[N], y[N], z[N];

int main(void) {
    for (int i = 0; i < N; i++) x[i] = (float)i;
    first_set_num_threads(2);
    if (twice(x, y, N) != 0 || thrice(x, z, N) != 0) return 1;
    for (int i = 0; i < N; i++) {
        if (y[i] != 2 * x[i] || z[i] != 3 * x[i]) return 2;
    }
    if (twice_dl(NULL, NULL) != -1 || !strstr(first_last_error(), "(in `twice(")) return 3;
    if (thrice_dl(NULL, NULL) != -1 || !strstr(second_last_error(), "(in `thrice(")) return 4;
    return 0;
}
