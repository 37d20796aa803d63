/* Several threads call the same functions at once; each has its own error and workspace. */
#include "m.h"
#include "support.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 2000 };

static void *work(void *argument) {
    int64_t id = (int64_t)(intptr_t)argument;
    int64_t shape[1] = {100}, wrong[1] = {1000 + id};
    float a[100], c[100];
    long bad = 0;
    char expected[64];
    snprintf(expected, sizeof expected, "got %d (in", (int)wrong[0]);
    DLTensor A = {0}, C;
    A.data = a, A.device.device_type = kDLCPU, A.ndim = 1;
    A.dtype.code = kDLFloat, A.dtype.bits = 32, A.dtype.lanes = 1, A.shape = shape;
    C = A, C.data = c;
    if (m_last_error()[0] != 0) bad++;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 100; i++) a[i] = (float)(id * 1000 + round + i), c[i] = 0;
        int64_t m = 100 << (round % 5) * 4;
        A.shape = shape;
        if (temporary_dl(&A, &C, m) != 0) bad++;
        for (int i = 0; i < 100; i++) bad += c[i] != a[i];
        A.shape = wrong;
        if (temporary_dl(&A, &C, m) != -1 || !strstr(m_last_error(), expected)) bad++;
    }
    return (void *)(intptr_t)bad;
}

int main(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        EXPECT(bad == NULL);
    }
    return finish();
}
