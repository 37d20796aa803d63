/* System calls, the clock, threads, memory and the environment; `windows.c` and `macos.c` have the
 * same for other systems. Threads come from the C library by weak symbols, because a process may
 * lack them. */
#include "tec_runtime.h"

long syscall(long number, ...);
char *getenv(const char *);
void *mmap(void *, size_t, int, int, int, int64_t);
int munmap(void *, size_t);

struct instant {
    int64_t seconds;
    int64_t nanoseconds;
};

int clock_gettime(int, struct instant *);

#if defined(__x86_64__)
enum {
    SYS_SIGPROCMASK = 14,
    SYS_YIELD = 24,
    SYS_MADVISE = 28,
    SYS_GETPID = 39,
    SYS_PRCTL = 157,
    SYS_ARCH_PRCTL = 158,
    SYS_FUTEX = 202,
    SYS_GETAFFINITY = 204
};
#else /* aarch64 and riscv64 share the generic numbers */
enum {
    SYS_FUTEX = 98,
    SYS_GETAFFINITY = 123,
    SYS_YIELD = 124,
    SYS_SIGPROCMASK = 135,
    SYS_PRCTL = 167,
    SYS_GETPID = 172,
    SYS_MADVISE = 233
};
#endif

enum { PAGE = 4096 };
enum { MADV_HUGEPAGE = 14, MADV_WIPEONFORK = 18 };

/* Sleeps while `*word` is `value`; may return early. */
static COLD void futex_wait(uint32_t *word, uint32_t value) {
    enum { WAIT_PRIVATE = 128 };
    syscall(SYS_FUTEX, word, WAIT_PRIVATE, value, (void *)0);
}

/* Wakes a thread that sleeps on `word`, if there is one. */
static COLD void futex_wake(uint32_t *word) {
    enum { WAKE_PRIVATE = 129 };
    syscall(SYS_FUTEX, word, WAKE_PRIVATE, 1);
}

#if defined(__x86_64__)
/* Asks for the tile registers of AMX, for all threads of the process (arch_prctl(2),
 * Documentation/arch/x86/xstate.rst). */
static COLD int permit_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, (long)TILE_DATA) == 0;
}
#endif

static int64_t now(void) {
    enum { MONOTONIC = 1 };
    struct instant t;
    clock_gettime(MONOTONIC, &t);
    return t.seconds * 1000000000 + t.nanoseconds;
}

/* Yields the core to its other hardware thread for tens of nanoseconds. */
static void relax(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    __asm__ volatile(".4byte 0x0100000f"); /* pause: without Zihintpause an empty fence */
#endif
}

static void yield_cpu(void) { syscall(SYS_YIELD); }

/* The number of CPUs that the calling thread may run on, at least 1. */
static COLD int32_t count_cpus(void) {
    uint64_t mask[128]; /* Linux supports at most 8192 */
    int64_t filled = syscall(SYS_GETAFFINITY, 0, sizeof mask, mask);
    int32_t cpus = 0;
    for (int64_t i = 0; i < filled / (int64_t)sizeof(uint64_t); i++) {
        for (uint64_t left = mask[i]; left; left &= left - 1) cpus++;
    }
    return cpus < 1 ? 1 : cpus;
}

/* ---- threads ---- */

/* Larger than the pthread_attr_t of any C library. */
union attributes {
    uint64_t words[32];
};

#define IF_THERE extern __attribute__((weak, visibility("default")))

typedef void *thread_id;
typedef void *thread_result;
IF_THERE int pthread_attr_init(union attributes *);
IF_THERE int pthread_attr_destroy(union attributes *);
IF_THERE int pthread_attr_setstacksize(union attributes *, size_t);
IF_THERE int pthread_create(thread_id *, const union attributes *, void *(*)(void *), void *);
IF_THERE int pthread_join(thread_id, void **);

static int has_threads(void) {
    return pthread_attr_init && pthread_attr_destroy && pthread_attr_setstacksize
        && pthread_create && pthread_join;
}

/* Starts a thread with a small stack, or with the default one if the C library needs more (it
 * places thread-local storage there). False on failure. */
static COLD int start_thread(thread_id *thread, thread_result (*run)(void *), void *data) {
    enum { STACK_BYTES = 1 << 20 };
    union attributes attributes;
    if (pthread_attr_init(&attributes)) return 0;
    int failed = pthread_attr_setstacksize(&attributes, STACK_BYTES)
              || pthread_create(thread, &attributes, run, data);
    pthread_attr_destroy(&attributes);
    return !failed || pthread_create(thread, 0, run, data) == 0;
}

/* Blocks signals while threads are started, so that signals of the process go to the host's
 * threads. Faults are not blocked, because the host may handle them, nor the signals of C libraries
 * (32 to 34). Returns the previous mask for `restore_signals`. */
static COLD uint64_t block_signals(void) {
    enum { BLOCK = 0, ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, SEGV = 11, SYS = 31 };
    static const uint8_t open[] = {ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS, 32, 33, 34};
    uint64_t mask = ~(uint64_t)0, before = 0;
    for (uint32_t i = 0; i < sizeof open; i++) mask &= ~((uint64_t)1 << (open[i] - 1));
    syscall(SYS_SIGPROCMASK, BLOCK, &mask, &before, sizeof mask);
    return before;
}

static COLD void restore_signals(uint64_t mask) {
    enum { SETMASK = 2 };
    syscall(SYS_SIGPROCMASK, SETMASK, &mask, (void *)0, sizeof mask);
}

/* Gives the calling thread the name of a worker. */
static void name_worker(void) {
    enum { PR_SET_NAME = 15 };
    syscall(SYS_PRCTL, PR_SET_NAME, "tec worker");
}

/* An address that differs between threads. */
static uintptr_t thread_address(void) { return (uintptr_t)__builtin_thread_pointer(); }

/* ---- memory and the environment ---- */

enum { HUGE = 2 << 20 };

/* Maps at least `*bytes` of memory, and sets how many: large blocks in huge pages, if the system
 * has them, because packed operands in small pages miss the TLB. Null if there is none. */
static void *map_memory(uint64_t *bytes) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    if (*bytes < HUGE) {
        void *start = mmap(0, *bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        return start == (void *)-1 ? 0 : start;
    }
    *bytes = (*bytes + HUGE - 1) / HUGE * HUGE;
    char *start = mmap(0, *bytes + HUGE, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    if (start == (void *)-1) return 0;
    uint64_t before = -(uintptr_t)start % HUGE;
    if (before) munmap(start, before);
    munmap(start + before + *bytes, HUGE - before);
    syscall(SYS_MADVISE, start + before, *bytes, (long)MADV_HUGEPAGE);
    return start + before;
}

static void unmap_memory(void *memory, uint64_t bytes) { munmap(memory, bytes); }

/* The value of an environment variable; null without the variable. */
static const char *read_variable(const char *name, char room[VARIABLE_BYTES]) {
    (void)room;
    return getenv(name);
}
