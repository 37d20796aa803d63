/* Runs the iterations of a parallel loop: with the host's function, else on the module's own
 * threads. */
#include "tec_runtime.h"

/* What a host's threads get: the loop of the kernel, and how it went. */
struct job {
    tec_task task;
    void *closure;
    int32_t failure;
};

/* One range of iterations, on any thread: in the default floating-point mode, as everything that
 * a kernel computes. */
static int32_t run_range(void *data, int64_t begin, int64_t end) {
    struct job *job = data;
    if (begin >= end) return 0;
    uint32_t saved = tec_rt_fp_enter();
    int32_t result = job->task(job->closure, begin, end);
    if (saved) tec_rt_fp_leave(saved);
    if (result) __atomic_store_n(&job->failure, result, __ATOMIC_RELAXED);
    return result;
}

/* Runs iterations 0 .. n. 0 when all are done, else what a task returned, or FAILED_HOST if only
 * the host's function says that something went wrong. A task's failure counts even if the host
 * forgets it. */
INTERNAL int32_t tec_rt_parallel_for(tec_task task, void *closure, int64_t n, int64_t steps) {
    if (n <= 0) return 0;
    if (n == 1) return task(closure, 0, n);
    if (!host_parallel_for) return run_on_pool(task, closure, n, steps);
    struct job job = {task, closure, 0};
    int32_t result = host_parallel_for(run_range, &job, n, host_user);
    int32_t failure = __atomic_load_n(&job.failure, __ATOMIC_RELAXED);
    if (failure) return failure;
    return result ? FAILED_HOST : 0;
}
