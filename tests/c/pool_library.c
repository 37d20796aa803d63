/* The runtime's threads as a shared library without kernels, for pool_stress.c. Linked once with
 * the embedded runtime, once with one compiled for ThreadSanitizer. */
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define VISIBLE __attribute__((visibility("default")))

/* As in src/runtime/tec_runtime.h. */
typedef int32_t Task(void *, int64_t, int64_t);
HIDDEN int32_t tec_rt_parallel_for(Task *, void *, int64_t, int64_t);
HIDDEN void tec_rt_set_num_threads(int32_t);
HIDDEN void *tec_rt_workspace_acquire(uint64_t);
HIDDEN void tec_rt_workspace_release(void *);

VISIBLE int32_t pool_run(Task *task, void *data, int64_t n) {
    return tec_rt_parallel_for(task, data, n, 0);
}
VISIBLE int32_t pool_run_small(Task *task, void *data, int64_t n, int64_t steps) {
    return tec_rt_parallel_for(task, data, n, steps);
}
VISIBLE void pool_set_threads(int32_t n) { tec_rt_set_num_threads(n); }
VISIBLE void *pool_acquire(uint64_t bytes) { return tec_rt_workspace_acquire(bytes); }
VISIBLE void pool_release(void *memory) { tec_rt_workspace_release(memory); }
