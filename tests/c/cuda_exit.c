/* The process exits while other threads call a module for GPUs. `exit` does not wait for them;
 * their calls may fail, but must not crash. */
#include "m.h"
#include "support.h"
#include <pthread.h>
#include <unistd.h>

typedef int32_t (*LaunchFn)(const char *ptx, const char *kernel, const uint32_t *grid,
                            const uint32_t *block, uint32_t shared, int32_t count,
                            const int32_t *sizes, void **params);
void fake_on_launch(LaunchFn run);
int32_t fake_misuses(void);

static _Alignas(16) float data[1024];
static uint32_t calls;

static void *call(void *unused) {
    for (;;) {
        add(data, data, data, 1000, NULL);
        chain(data, 0, 0, 0, false, data, 1000, 2, NULL);
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    }
    return unused;
}

/* Slow, so that most threads are inside a call. */
static int32_t launch(const char *ptx, const char *kernel, const uint32_t *grid,
                      const uint32_t *block, uint32_t shared, int32_t count,
                      const int32_t *sizes, void **params) {
    (void)ptx, (void)kernel, (void)grid, (void)block, (void)shared, (void)count, (void)sizes;
    (void)params;
    usleep(200);
    return 0;
}

static void slow(void) {
    usleep(50000);
    if (fake_misuses()) _exit(3);
}

int main(void) {
    pthread_t thread;
    /* Registered before the first call, so it runs after the module's exit function. */
    atexit(slow);
    fake_on_launch(launch);
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&thread, NULL, call, NULL)) return 2;
    }
    while (__atomic_load_n(&calls, __ATOMIC_RELAXED) < 100) usleep(100);
    return 0;
}
