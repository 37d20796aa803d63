/* What the runtime needs of macOS: the clock, threads, memory and the environment, in place of
 * `system.c`. Everything comes from libSystem, which every program links. */
#include "tec_runtime.h"

uint64_t clock_gettime_nsec_np(int);
int sched_yield(void);
int getpid(void);
int sysctlbyname(const char *, void *, size_t *, void *, size_t);
char *getenv(const char *);
void *mmap(void *, size_t, int, int, int, int64_t);
int munmap(void *, size_t);
void *dlopen(const char *, int);
void *dlsym(void *, const char *);
int dlclose(void *);

#if defined(__aarch64__)
enum { PAGE = 16384 };
#else
enum { PAGE = 4096 };
#endif

/* The value of a number of the system; 0 if it has none of this name. */
static COLD int32_t system_number(const char *name) {
    int32_t value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, 0, 0) == 0 ? value : 0;
}

/* ---- waiting ---- */

/* The layouts of pthread.h with their initial values. */
struct mutex {
    int64_t signature;
    char opaque[56];
};
struct condition {
    int64_t signature;
    char opaque[40];
};
enum { MUTEX_SIGNATURE = 0x32aaaba7, CONDITION_SIGNATURE = 0x3cb0b1bb };

int pthread_mutex_lock(struct mutex *);
int pthread_mutex_unlock(struct mutex *);
int pthread_cond_wait(struct condition *, struct mutex *);
int pthread_cond_broadcast(struct condition *);

/* The threads that sleep on the words of one hash. Public functions that wait for a word exist only
 * since macOS 14.4. */
struct queue {
    struct mutex mutex;
    struct condition changed;
} __attribute__((aligned(128)));

/* Participants of loops are this many bytes apart. */
enum { QUEUES = 32, BYTES_BETWEEN_WORDS = 256 };
static struct queue queues[QUEUES];

/* Makes queues without threads: at the first parallel loop, and in the child of fork(), where other
 * threads may have held locks. */
static COLD void reset_queues(void) {
    for (uint32_t i = 0; i < QUEUES; i++) {
        queues[i] = (struct queue){.mutex = {.signature = MUTEX_SIGNATURE},
                                   .changed = {.signature = CONDITION_SIGNATURE}};
    }
}

static struct queue *queue_of(const uint32_t *word) {
    return &queues[(uintptr_t)word / BYTES_BETWEEN_WORDS % QUEUES];
}

/* Sleeps while `*word` is `value`; may return early. */
static COLD void futex_wait(uint32_t *word, uint32_t value) {
    struct queue *queue = queue_of(word);
    pthread_mutex_lock(&queue->mutex);
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == value) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
}

/* Wakes the threads that sleep on `word`. Its new value is stored already: a thread that has not
 * seen it holds the lock, and sleeps when this thread gets it. */
static COLD void futex_wake(uint32_t *word) {
    struct queue *queue = queue_of(word);
    pthread_mutex_lock(&queue->mutex);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

#if defined(__x86_64__)
/* Modules for this system have no instructions on tile registers. */
static int permit_tiles(void) { return 0; }
#endif

static int64_t now(void) {
    enum { UPTIME_RAW = 8 };
    return (int64_t)clock_gettime_nsec_np(UPTIME_RAW);
}

/* Yields the core to its other hardware thread for tens of nanoseconds. */
static void relax(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause");
#else
    __asm__ volatile("isb");
#endif
}

static void yield_cpu(void) { sched_yield(); }

/* The number of CPUs of the machine that are in use, at least 1. */
static COLD int32_t count_cpus(void) {
    int32_t cpus = system_number("hw.activecpu");
    return cpus < 1 ? 1 : cpus;
}

/* ---- threads ---- */

/* Larger than pthread_attr_t. */
union attributes {
    uint64_t words[32];
};

typedef void *thread_id;
typedef void *thread_result;
int pthread_attr_init(union attributes *);
int pthread_attr_destroy(union attributes *);
int pthread_attr_setstacksize(union attributes *, size_t);
int pthread_create(thread_id *, const union attributes *, void *(*)(void *), void *);
int pthread_join(thread_id, void **);
int pthread_setname_np(const char *);
int pthread_sigmask(int, const uint32_t *, uint32_t *);
thread_id pthread_self(void);

static int has_threads(void) { return 1; }

/* Starts a thread with a small stack. False on failure. */
static COLD int start_thread(thread_id *thread, thread_result (*run)(void *), void *data) {
    enum { STACK_BYTES = 1 << 20 };
    union attributes attributes;
    if (pthread_attr_init(&attributes)) return 0;
    int failed = pthread_attr_setstacksize(&attributes, STACK_BYTES)
              || pthread_create(thread, &attributes, run, data);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* Blocks signals while threads are started, so that signals of the process go to the host's
 * threads. Faults are not blocked, because the host may handle them. Returns the previous mask for
 * `restore_signals`. */
static COLD uint64_t block_signals(void) {
    enum { BLOCK = 1, ILL = 4, TRAP = 5, ABRT = 6, FPE = 8, BUS = 10, SEGV = 11, SYS = 12 };
    static const uint8_t open[] = {ILL, TRAP, ABRT, FPE, BUS, SEGV, SYS};
    uint32_t mask = ~(uint32_t)0, before = 0;
    for (uint32_t i = 0; i < sizeof open; i++) mask &= ~((uint32_t)1 << (open[i] - 1));
    pthread_sigmask(BLOCK, &mask, &before);
    return before;
}

static COLD void restore_signals(uint64_t mask) {
    enum { SETMASK = 3 };
    uint32_t before = (uint32_t)mask;
    pthread_sigmask(SETMASK, &before, 0);
}

/* Gives the calling thread the name of a worker. */
static void name_worker(void) { pthread_setname_np("tec worker"); }

/* An address that differs between threads. */
static uintptr_t thread_address(void) { return (uintptr_t)pthread_self(); }

/* ---- memory, the environment, libraries ---- */

/* Maps at least `*bytes` of memory, and sets how many. Null if there is none. */
static COLD void *map_memory(uint64_t *bytes) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x1002 };
    void *start = mmap(0, *bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    return start == (void *)-1 ? 0 : start;
}

static void unmap_memory(void *memory, uint64_t bytes) { munmap(memory, bytes); }

/* The value of an environment variable; null without the variable. */
static const char *read_variable(const char *name, char room[VARIABLE_BYTES]) {
    (void)room;
    return getenv(name);
}

/* The address of a function of libtvm_ffi, which need not be in the global scope. Null in a host
 * without it. */
static COLD void *find(const char *name) {
    enum { LAZY = 1, NOLOAD = 0x10, DEFAULT = -2 };
    void *address = dlsym((void *)(intptr_t)DEFAULT, name);
    if (address) return address;
    void *library = dlopen("@rpath/libtvm_ffi.dylib", LAZY | NOLOAD);
    if (!library) return 0;
    address = dlsym(library, name);
    /* The host keeps it loaded. */
    dlclose(library);
    return address;
}

#define FFI_FUNCTION(name) find(#name)
