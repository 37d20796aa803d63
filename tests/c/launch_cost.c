/* Measures the overhead of a parallel loop; linked with tec_runtime.o. Prints for each number of
 * threads and iterations the median and the minimum of many runs, in nanoseconds. warm: empty loops
 * without pauses. busy: one iteration of 2 microseconds for each thread, whose time is subtracted.
 * cold: an empty loop after a pause in which workers fall asleep.
 *
 *     launch_cost [THREADS ...] */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* As in src/runtime/tec_runtime.h. */
typedef int32_t Task(void *, int64_t, int64_t);
__attribute__((visibility("hidden"))) int32_t tec_rt_parallel_for(Task *, void *, int64_t, int64_t);
__attribute__((visibility("hidden"))) void tec_rt_set_num_threads(int32_t);

enum { RUNS = 301, LOOPS = 1000, BUSY_LOOPS = 20, COLD_RUNS = 51, WORK = 2000 };

static int32_t empty(void *data, int64_t begin, int64_t end) {
    (void)data, (void)begin, (void)end;
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int32_t work(void *data, int64_t begin, int64_t end) {
    (void)data;
    double start = now();
    while (now() - start < (double)(end - begin) * WORK) {}
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, int threads, int64_t n, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, ascending);
    printf("  %-5s %2d threads %6" PRId64 " iterations: %7.0f ns   (min %.0f)\n", what, threads,
           n, times[count / 2], times[0]);
}

static void measure(int threads, int64_t n) {
    static double times[RUNS];
    tec_rt_set_num_threads(threads);
    for (int run = 0; run < RUNS; run++) {
        double start = now();
        for (int i = 0; i < LOOPS; i++) tec_rt_parallel_for(empty, NULL, n, 0);
        times[run] = (now() - start) / LOOPS;
    }
    report("warm", threads, n, times, RUNS);
    for (int run = 0; run < RUNS; run++) {
        double start = now();
        for (int i = 0; i < BUSY_LOOPS; i++) tec_rt_parallel_for(work, NULL, threads, 0);
        times[run] = (now() - start) / BUSY_LOOPS - WORK;
    }
    report("busy", threads, threads, times, RUNS);
    struct timespec pause = {0, 300000};
    for (int run = 0; run < COLD_RUNS; run++) {
        nanosleep(&pause, NULL);
        double start = now();
        tec_rt_parallel_for(empty, NULL, n, 0);
        times[run] = now() - start;
    }
    report("cold", threads, n, times, COLD_RUNS);
}

int main(int argc, char **argv) {
    static const int64_t iterations[] = {2, 16, 1024};
    for (int i = 1; i < (argc > 1 ? argc : 3); i++) {
        int threads = argc > 1 ? atoi(argv[i]) : i;
        for (int k = 0; k < 3; k++) measure(threads, iterations[k]);
    }
    return 0;
}
