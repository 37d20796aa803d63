/* Shared by the tests of the runtime's threads: loading the library, and a loop that checks
 * itself. */
#ifndef POOL_H
#define POOL_H

#include "support.h"
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef int32_t Task(void *, int64_t, int64_t);
typedef int32_t Run(Task *, void *, int64_t);

static void *library;
static Run *pool_run;
static int32_t (*pool_run_small)(Task *, void *, int64_t, int64_t);
static void (*pool_set_threads)(int32_t);
static void *(*pool_acquire)(uint64_t);
static void (*pool_release)(void *);

static void load_pool(void) {
    library = dlopen("./libpool.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    *(void **)&pool_run = dlsym(library, "pool_run");
    *(void **)&pool_run_small = dlsym(library, "pool_run_small");
    *(void **)&pool_set_threads = dlsym(library, "pool_set_threads");
    *(void **)&pool_acquire = dlsym(library, "pool_acquire");
    *(void **)&pool_release = dlsym(library, "pool_release");
}

static inline void unload_pool(void) { EXPECT(dlclose(library) == 0); }

/* The number of threads of this process. */
static inline int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count - 2;
}

/* Requires a number of threads of this process; an emulator adds its own. */
#ifdef EMULATED
#define EXPECT_THREADS(count) EXPECT((count) > 0)
#else
#define EXPECT_THREADS(count) EXPECT(count_threads() == (count))
#endif

static inline void sleep_microseconds(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

/* A loop over `count`; each iteration increments its own element. */
typedef struct {
    int *count;
    int depth;     /* levels of nested loops in each iteration */
    int work;      /* iterations of an empty loop in each iteration */
    int64_t fails; /* the iteration that fails with 7; -1: none */
} Loop;

static inline int32_t iterate(void *data, int64_t begin, int64_t end) {
    Loop *loop = data;
    for (int64_t i = begin; i < end; i++) {
        loop->count[i]++;
        for (volatile int turn = 0; turn < loop->work; turn++) {}
        if (loop->depth > 0) {
            int inner[9] = {0};
            Loop nested = {inner, loop->depth - 1, 0, -1};
            if (pool_run(iterate, &nested, 9)) return 3;
            for (int k = 0; k < 9; k++) {
                if (inner[k] != 1) return 4;
            }
        }
        if (i == loop->fails) return 7;
    }
    return 0;
}

/* Runs a loop. Returns the number of iterations that did not run exactly once, or the loop's
 * failure. */
static inline int64_t try_loop(int *count, int64_t n, int depth, int work) {
    Loop loop = {count, depth, work, -1};
    memset(count, 0, (size_t)n * sizeof *count);
    int64_t bad = pool_run(iterate, &loop, n);
    for (int64_t i = 0; i < n; i++) bad += count[i] != 1;
    return bad;
}

#endif
