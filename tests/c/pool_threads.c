/* Tests the number of the runtime's threads, their properties, and failures to start them. Each
 * case runs in its own process. The program's pthread_create replaces that of the C library (it is
 * linked with -rdynamic), so that it can fail. */
#include "pool.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint32_t get_mode(void) { return _mm_getcsr() & ~0x3fu; }
static void spoil_mode(void) { _mm_setcsr(0x9fc0); }
enum { DEFAULT_MODE = 0x1f80 };
#else
static uint32_t get_mode(void) { return 0; }
static void spoil_mode(void) {}
enum { DEFAULT_MODE = 0 };
#endif

enum { MOST = 1000, PATIENCE = 20000, ALL = 8 };

static int threads_allowed = 1000;
static int buffer[MOST];

typedef int Create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *data) {
    static Create *create;
    if (!create) *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (threads_allowed == 0) return 11; /* EAGAIN */
    threads_allowed--;
    return create(thread, attributes, run, data);
}

/* A loop whose iterations wait for each other, so it needs one thread for each iteration. */
typedef struct {
    int arrived;
    int late;
    int bad_modes;
    int bad_masks;
    pthread_t caller;
} Meeting;

static int32_t meet(void *data, int64_t begin, int64_t end) {
    Meeting *meeting = data;
    EXPECT(end == begin + 1);
    int all = __atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < PATIENCE && all != ALL; i++) {
        sleep_microseconds(1000);
        all = __atomic_load_n(&meeting->arrived, __ATOMIC_SEQ_CST);
    }
    if (all != ALL) __atomic_store_n(&meeting->late, 1, __ATOMIC_SEQ_CST);
    if (pthread_equal(pthread_self(), meeting->caller)) return 0;
    sigset_t blocked;
    enum { HIGH = 62 }; /* qemu does not block the higher ones */
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    int process = sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM)
               && sigismember(&blocked, SIGALRM) && sigismember(&blocked, SIGRTMIN + 1)
               && sigismember(&blocked, HIGH) && sigismember(&blocked, SIGPROF);
    int handlers = sigismember(&blocked, SIGSEGV) || sigismember(&blocked, SIGBUS)
             || sigismember(&blocked, SIGFPE) || sigismember(&blocked, SIGABRT);
    __atomic_add_fetch(&meeting->bad_masks, !process || handlers, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&meeting->bad_modes, get_mode() != DEFAULT_MODE, __ATOMIC_SEQ_CST);
    return 0;
}

/* Requires that a loop runs on `threads` threads and that this process has as many. */
static void expect_threads(int threads) {
    Meeting meeting = {ALL - threads, 0, 0, 0, pthread_self()};
    EXPECT(pool_run(meet, &meeting, threads) == 0);
    EXPECT(meeting.late == 0 && meeting.bad_modes == 0 && meeting.bad_masks == 0);
    EXPECT_THREADS(threads);
}

static int count_cpus(void) {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    return CPU_COUNT(&cpus);
}

static void none_before_the_first_loop(void) {
    load_pool();
    EXPECT(try_loop(buffer, 1, 0, 0) == 0);
    EXPECT_THREADS(1);
    pool_set_threads(1);
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(1);
    pool_set_threads(4);
    EXPECT_THREADS(1);
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(4);
}

static void one_for_each_cpu(void) {
    load_pool();
    int cpus = count_cpus();
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(cpus);
    if (cpus <= ALL) expect_threads(cpus);
}

static void only_cpus_of_the_mask(void) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    }
    EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
    load_pool();
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(1);
    /* More threads than CPUs are slow, but correct. */
    pool_set_threads(3);
    expect_threads(3);
}

static void the_environment_says_how_many(void) {
    setenv("TEC_NUM_THREADS", "3", 1);
    load_pool();
    expect_threads(3);
    expect_threads(3);
    unload_pool();
    setenv("TEC_NUM_THREADS", "three", 1);
    load_pool();
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(count_cpus());
    pool_set_threads(5);
    expect_threads(5);
}

static void numbers_may_change(void) {
    load_pool();
    pool_set_threads(2);
    expect_threads(2);
    pool_set_threads(6);
    expect_threads(6);
    pool_set_threads(2);
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(6);
    pool_set_threads(7);
    expect_threads(7);
    sleep_microseconds(2000);
    expect_threads(7);
}

static void fewer_than_wanted(void) {
    load_pool();
    for (int allowed = 0; allowed < 3; allowed++) {
        pool_set_threads(4 + allowed);
        threads_allowed = allowed != 0;
        EXPECT(try_loop(buffer, MOST, 1, 0) == 0);
        EXPECT_THREADS(1 + allowed);
        expect_threads(1 + allowed);
    }
    threads_allowed = 1000;
    /* Loops do not retry to start threads; setting the number does. */
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT_THREADS(3);
    pool_set_threads(8);
    expect_threads(8);
}

/* Requires that a loop of ALL iterations of `steps` steps runs on `threads` threads. */
static void expect_participants(int threads, int64_t steps) {
    Meeting meeting = {ALL - threads, 0, 0, 0, pthread_self()};
    EXPECT(pool_run_small(meet, &meeting, ALL, steps) == 0);
    EXPECT(meeting.late == 0);
}

static int32_t all_at_once(void *data, int64_t begin, int64_t end) {
    *(int64_t *)data += 1;
    EXPECT(begin == 0 && end == MOST);
    return 0;
}

static void small_loops_have_few_threads(void) {
    load_pool();
    pool_set_threads(8);
    int64_t calls = 0;
    EXPECT(pool_run_small(all_at_once, &calls, MOST, 7) == 0);
    EXPECT(calls == 1);
    EXPECT_THREADS(1);
    EXPECT(try_loop(buffer, MOST, 0, 0) == 0);
    EXPECT(pool_run_small(all_at_once, &calls, MOST, 7) == 0);
    EXPECT(calls == 2);
    expect_participants(ALL, 1 << 20);
    expect_participants(ALL, INT64_MAX);
    expect_participants(ALL, 0);
}

static void the_callers_mode_and_mask_stay(void) {
    load_pool();
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    spoil_mode();
    uint32_t mode = get_mode();
    pool_set_threads(4);
    expect_threads(4);
    EXPECT(get_mode() == mode);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    EXPECT(sigismember(&after, SIGUSR1) == 1 && sigismember(&after, SIGINT) == 0);
}

static void *run_for_ever(void *data) {
    (void)data;
    static int count[MOST];
    while (try_loop(count, MOST, 0, 20) >= 0) {}
    return NULL;
}

static void a_process_ends_while_kernels_run(void) {
    load_pool();
    pool_set_threads(3);
    pthread_t threads[2];
    EXPECT(pthread_create(&threads[0], NULL, run_for_ever, NULL) == 0);
    sleep_microseconds(3000);
}

static void run(const char *name, void (*test)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        failures = 0;
        test();
        exit(finish());
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status) {
        printf("%s: status %d\n", name, status);
        failures++;
    }
}

#define RUN(test) run(#test, test)

int main(void) {
    unsetenv("TEC_NUM_THREADS");
    RUN(none_before_the_first_loop);
    RUN(one_for_each_cpu);
    RUN(only_cpus_of_the_mask);
    RUN(the_environment_says_how_many);
    RUN(numbers_may_change);
    RUN(fewer_than_wanted);
    RUN(small_loops_have_few_threads);
    RUN(the_callers_mode_and_mask_stay);
    for (int i = 0; i < 20; i++) RUN(a_process_ends_while_kernels_run);
    return finish();
}
