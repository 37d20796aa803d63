/* Runs the iterations of a parallel loop by the host's function, if it set one, else on the
 * module's own threads. */
#include "tec_runtime.h"

/* The data of the host's threads: the task with its closure, and its failure. */
struct job {
    tec_task task;
    void *closure;
    int32_t failure;
};

/* Runs a range of iterations on any thread, in the default floating-point mode. */
static int32_t run_range(void *data, int64_t begin, int64_t end) {
    struct job *job = data;
    if (begin >= end) return 0;
    uint32_t saved = tec_rt_fp_enter();
    int32_t result = job->task(job->closure, begin, end);
    if (saved) tec_rt_fp_leave(saved);
    if (result) __atomic_store_n(&job->failure, result, __ATOMIC_RELAXED);
    return result;
}

/* Runs iterations 0 .. n. Returns 0 if all are done, the result of a failed task (even if the
 * host's function returns 0), or FAILED_HOST if only the host's function failed. */
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
