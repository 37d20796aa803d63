/* The runtime's threads under stress, also with ThreadSanitizer: loops of all sizes, concurrent
 * callers, nested loops, changing numbers of threads, pauses in which workers fall asleep,
 * failures, fork, loading and unloading. SIGALRM ends a deadlock. ThreadSanitizer supports no
 * threads in children of a process with threads, so children run their loops on one thread. */
#include "pool.h"
#include <sys/wait.h>

enum { MOST = 5000, CALLERS = 4, SECONDS = 120 };

#ifdef __SANITIZE_THREAD__
/* Without this each process sleeps for a second at its end. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "atexit_sleep_ms=0"; }
#endif

static int buffer[MOST];

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void every_size(void) {
    for (int threads = 0; threads <= 8; threads++) {
        pool_set_threads(threads);
        for (int64_t n = 1; n <= MOST; n += n < 40 ? 1 : n) {
            EXPECT(try_loop(buffer, n, 0, 0) == 0);
            EXPECT(try_loop(buffer, n, 0, 100) == 0);
        }
        EXPECT(try_loop(buffer, 20, 2, 0) == 0);
    }
}

static void failures_come_back(void) {
    for (int threads = 1; threads <= 4; threads++) {
        pool_set_threads(threads);
        for (int64_t n = 1; n <= MOST; n *= 3) {
            for (int64_t fails = 0; fails < n; fails += 1 + n / 5) {
                Loop loop = {buffer, 0, 10, fails};
                memset(buffer, 0, sizeof buffer);
                EXPECT(pool_run(iterate, &loop, n) == 7);
                EXPECT(buffer[fails] == 1);
            }
            EXPECT(try_loop(buffer, n, 0, 0) == 0);
        }
    }
}

/* A host's thread that runs loops, changes the number of threads, uses the workspace and pauses. */
static void *call(void *argument) {
    uint32_t random = (uint32_t)(uintptr_t)argument;
    int rounds = 400;
    int64_t bad = 0;
    int *count = malloc(MOST * sizeof *count);
    while (rounds--) {
        uint32_t draw = next_random(&random);
        int64_t n = 1 + next_random(&random) % (draw % 8 ? 50 : MOST);
        bad += try_loop(count, n, draw % 16 == 1 ? 1 : 0, draw % 200);
        if (draw % 32 == 2) pool_set_threads((int32_t)(next_random(&random) % 6));
        if (draw % 8 == 3) sleep_microseconds(next_random(&random) % 150);
        uint64_t bytes = (uint64_t)64 << next_random(&random) % 17;
        char *memory = pool_acquire(bytes);
        if (!memory) return (void *)1;
        memset(memory, (int)rounds, bytes);
        for (uint64_t i = 0; i < bytes; i += 61) bad += memory[i] != (char)rounds;
        pool_release(memory);
    }
    free(count);
    return (void *)(intptr_t)bad;
}

static void run_in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        int64_t bad = 0;
        alarm(SECONDS);
#ifdef __SANITIZE_THREAD__
        pool_set_threads(1);
#endif
        for (int round = 0; round < 20; round++) bad += try_loop(buffer, 300, round % 5 == 0, 50);
        exit(bad ? 1 : 0);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Concurrent callers, while this process forks children. */
static void many_callers(int forks) {
    pthread_t callers[CALLERS];
    for (intptr_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)(i + 1));
    for (int i = 0; i < forks; i++) run_in_child();
    for (int i = 0; i < CALLERS; i++) {
        void *bad;
        pthread_join(callers[i], &bad);
        EXPECT(bad == NULL);
    }
}

int main(void) {
    alarm(SECONDS);
    load_pool();
    every_size();
    failures_come_back();
    many_callers(0);
    many_callers(10);
    pool_set_threads(3);
    for (int i = 0; i < 5; i++) {
        EXPECT(try_loop(buffer, 300, 1, 50) == 0);
        run_in_child();
    }
    unload_pool();
    int before = count_threads();
    for (int i = 0; i < 60; i++) {
        load_pool();
        pool_set_threads(1 + i % 5);
        for (int k = 0; k < i % 4; k++) EXPECT(try_loop(buffer, 100, 0, 50) == 0);
        if (i % 3 == 0) sleep_microseconds(200);
        unload_pool();
        EXPECT_THREADS(before);
    }
    return finish();
}
