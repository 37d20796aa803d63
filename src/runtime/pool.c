/* The module's own threads, for parallel loops of a host that gave none. Before: `threads.c` says
 * how many are wanted. After: `parallel.c` runs loops on them.
 *
 * The iterations of a loop are split into one range for each participant, the calling thread
 * among them, always the same ones, so that what a core has in its caches is of use to it in the
 * next call. A participant takes a quarter of what is left of its range at a time, then helps
 * with the ranges of the others: a core that is slow, or busy with other work, holds up nobody.
 * For the same reason a loop does not wait for a worker that has not begun.
 *
 * One loop at a time has the workers. Others, nested ones included, run on their own thread, and
 * get the workers for what is left when these come free.
 *
 * A child of fork() has none of these threads: its first parallel loop starts others. */
#include "tec_runtime.h"

/* A worker spins so long before it sleeps, and a caller before it sleeps until workers end. */
enum { SPIN_NANOSECONDS = 50000 };
/* After this time it lets others have the CPU in between: they may be who it waits for. */
enum { ALONE_NANOSECONDS = 4000 };

enum { MAX_PARTICIPANTS = 512, CACHE_LINES = 128 };

enum worker_state {
    IDLE = 0,     /* the worker spins, or is about to */
    SLEEPING,     /* the worker sleeps */
    CALLED,       /* a loop wants it */
    CALLED_ASLEEP, /* the same, and nobody has woken it yet */
    RUNNING,      /* it works for the loop, which does not end before it is IDLE again */
    AWAITED,      /* the same, and the loop's caller sleeps */
    STOPPED       /* it ends */
};

/* A participant of a loop: the caller is number 0. */
struct participant {
    uint32_t state;
    int64_t next; /* of its range, the first iteration that nobody took */
    int64_t end;
    thread_id thread;
} __attribute__((aligned(CACHE_LINES)));

static struct participant participants[MAX_PARTICIPANTS];

/* The loop that has the workers. Written by who has locked the pool, before it calls them. */
static struct {
    tec_task task;
    void *closure;
    int32_t failure;
    int32_t participants;
} loop;

/* All but `locked` belong to who has locked the pool. */
static struct {
    uint32_t locked;
    int32_t workers; /* that are started: participants 1 .. workers */
    int32_t wanted;  /* participants that the last attempt to start workers was for; 0: none yet */
    int32_t setting; /* and the number of threads that was set then */
    int64_t spin;
} pool;

static int try_lock(void) {
    uint32_t unlocked = 0;
    return __atomic_load_n(&pool.locked, __ATOMIC_RELAXED) == 0
        && __atomic_compare_exchange_n(&pool.locked, &unlocked, 1, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void unlock(void) { __atomic_store_n(&pool.locked, 0, __ATOMIC_RELEASE); }

/* ---- the iterations ---- */

/* Takes iterations of a range; false if all are taken. */
static int claim(struct participant *of, int64_t *begin, int64_t *end) {
    int64_t next = __atomic_load_n(&of->next, __ATOMIC_RELAXED), after;
    do {
        int64_t left = of->end - next;
        if (left <= 0) return 0;
        after = next + (left < 4 ? 1 : left / 4);
    } while (!__atomic_compare_exchange_n(&of->next, &next, after, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    *begin = next;
    *end = after;
    return 1;
}

/* Works until every iteration is taken, or one has failed. */
static void participate(int32_t number) {
    int32_t of = number;
    for (int32_t seen = 0; seen < loop.participants; seen++) {
        int64_t begin, end;
        while (claim(&participants[of], &begin, &end)) {
            int32_t result = loop.task(loop.closure, begin, end);
            if (result) __atomic_store_n(&loop.failure, result, __ATOMIC_RELAXED);
            if (__atomic_load_n(&loop.failure, __ATOMIC_RELAXED)) return;
        }
        if (++of == loop.participants) of = 0;
    }
}

/* ---- workers ---- */

/* Waits while the state is `same`, for a while without giving up the CPU. */
static uint32_t spin(struct participant *worker, uint32_t same) {
    int64_t start = 0, most = __atomic_load_n(&pool.spin, __ATOMIC_RELAXED);
    for (uint32_t turn = 0;; turn++) {
        uint32_t state = __atomic_load_n(&worker->state, __ATOMIC_ACQUIRE);
        if (state != same) return state;
        if (turn % 16 == 0) {
            int64_t time = now();
            if (turn == 0) start = time;
            if (time - start >= most) return state;
            if (time - start >= ALONE_NANOSECONDS) syscall(SYS_YIELD);
        }
        relax();
    }
}

static int change(struct participant *worker, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&worker->state, &from, to, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* Wakes the participants that participant `number` answers for, those that sleep: so a caller
 * need not make as many system calls as there are workers. */
static void wake_next(int32_t number) {
    for (int32_t i = 2 * number + 1; i <= 2 * number + 2 && i < loop.participants; i++) {
        struct participant *worker = &participants[i];
        if (__atomic_load_n(&worker->state, __ATOMIC_RELAXED) == CALLED_ASLEEP
            && change(worker, CALLED_ASLEEP, CALLED)) {
            futex_wake(&worker->state);
        }
    }
}

static void *run_worker(void *data) {
    enum { PR_SET_NAME = 15 };
    struct participant *self = data;
    int32_t number = (int32_t)(self - participants);
    syscall(SYS_PRCTL, PR_SET_NAME, "tec worker");
    tec_rt_fp_enter();
    for (;;) {
        uint32_t state = spin(self, IDLE);
        if (state == STOPPED) return 0;
        /* SLEEPING it finds where it woke for a loop that ended before it came. */
        if (state == SLEEPING || (state == IDLE && change(self, IDLE, SLEEPING))) {
            do {
                futex_wait(&self->state, SLEEPING);
            } while (__atomic_load_n(&self->state, __ATOMIC_RELAXED) == SLEEPING);
        }
        if (change(self, CALLED, RUNNING) || change(self, CALLED_ASLEEP, RUNNING)) {
            wake_next(number);
            participate(number);
            if (__atomic_exchange_n(&self->state, IDLE, __ATOMIC_ACQ_REL) == AWAITED) {
                futex_wake(&self->state);
            }
        }
    }
}

/* Calls the workers of the loop. */
static void call_workers(void) {
    for (int32_t i = 1; i < loop.participants; i++) {
        struct participant *worker = &participants[i];
        /* Between loops a worker is IDLE or SLEEPING, and only it makes the one the other. */
        if (!change(worker, IDLE, CALLED)) change(worker, SLEEPING, CALLED_ASLEEP);
    }
    wake_next(0);
}

/* Calls off a worker that has not begun, else waits for it. */
static void dismiss(struct participant *worker) {
    if (change(worker, CALLED, IDLE) || change(worker, CALLED_ASLEEP, SLEEPING)
        || change(worker, CALLED, IDLE)) {
        return;
    }
    if (spin(worker, RUNNING) == RUNNING && change(worker, RUNNING, AWAITED)) {
        do {
            futex_wait(&worker->state, AWAITED);
        } while (__atomic_load_n(&worker->state, __ATOMIC_ACQUIRE) == AWAITED);
    }
}

/* ---- the pool ---- */

/* Starts the workers that are missing. Where the system gives no more threads those that there
 * are do the work, until another number is set. */
static COLD void start_workers(int32_t setting) {
    int32_t cpus = count_cpus(), wanted = setting > 0 ? setting : cpus;
    if (wanted > MAX_PARTICIPANTS) wanted = MAX_PARTICIPANTS;
    /* More threads than CPUs do not spin: they would keep others from working. */
    __atomic_store_n(&pool.spin, wanted > cpus ? 0 : SPIN_NANOSECONDS, __ATOMIC_RELAXED);
    pool.setting = setting;
    pool.wanted = wanted;
    if (pool.workers >= wanted - 1 || !has_threads()) return;
    uint64_t mask = block_signals();
    while (pool.workers < wanted - 1) {
        struct participant *worker = &participants[pool.workers + 1];
        __atomic_store_n(&worker->state, IDLE, __ATOMIC_RELAXED);
        if (!start_thread(&worker->thread, run_worker, worker)) break;
        pool.workers++;
    }
    restore_signals(mask);
}

/* Runs iterations begin .. end on the workers; the pool is locked. */
static int32_t run_shared(tec_task task, void *closure, int64_t begin, int64_t end) {
    int32_t setting = tec_rt_num_threads();
    if (pool.wanted == 0 || pool.setting != setting) start_workers(setting);
    int64_t n = end - begin, most = pool.workers + 1;
    if (most > pool.wanted) most = pool.wanted;
    if (most > n) most = n;
    if (most < 2) return task(closure, begin, end);
    loop.task = task;
    loop.closure = closure;
    loop.failure = 0;
    loop.participants = (int32_t)most;
    int64_t each = n / most, more = n % most;
    for (int64_t i = 0; i < most; i++) {
        __atomic_store_n(&participants[i].next, begin, __ATOMIC_RELAXED);
        begin += each + (i < more);
        participants[i].end = begin;
    }
    call_workers();
    participate(0);
    for (int64_t i = 1; i < most; i++) dismiss(&participants[i]);
    return loop.failure;
}

/* ---- fork ---- */

enum { NOT_BEGUN = 0, BEGINNING, BEGUN };

#if defined(__aarch64__)
enum { LARGEST_PAGE = 65536 };
#else
enum { LARGEST_PAGE = PAGE };
#endif

/* Room for a page that the system clears in the child of fork(), of whatever size its pages are;
 * one is in here wherever it begins. Static, so that threads which outlive the module's destructor
 * find it. */
static char cleared_by_fork[2 * LARGEST_PAGE];
/* The process that the pool belongs to, and whether each loop has to ask which one this is: where
 * the system cannot clear the page. */
static int64_t process;
static int32_t asks;

static uint32_t *begun(void) {
    uintptr_t room = (uintptr_t)cleared_by_fork;
    return (uint32_t *)((room + LARGEST_PAGE - 1) / LARGEST_PAGE * LARGEST_PAGE);
}

static COLD int is_ours(void) {
    return __atomic_load_n(&process, __ATOMIC_RELAXED) == syscall(SYS_GETPID);
}

/* Makes the pool new, at the first parallel loop of a process. False while another thread is
 * about it. */
static COLD int begin_pool(void) {
    uint32_t *word = begun(), was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (was == BEGINNING
        || !__atomic_compare_exchange_n(word, &was, BEGINNING, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        return 0;
    }
    if (was == NOT_BEGUN || !is_ours()) {
        int kept = syscall(SYS_MADVISE, word, (long)LARGEST_PAGE, (long)MADV_WIPEONFORK) != 0;
        __atomic_store_n(&asks, kept, __ATOMIC_RELAXED);
        __atomic_store_n(&process, syscall(SYS_GETPID), __ATOMIC_RELAXED);
        pool.workers = 0;
        pool.wanted = 0;
        unlock();
    }
    __atomic_store_n(word, BEGUN, __ATOMIC_RELEASE);
    return 1;
}

static int is_begun(void) {
    return __atomic_load_n(begun(), __ATOMIC_ACQUIRE) == BEGUN
        && (!__atomic_load_n(&asks, __ATOMIC_RELAXED) || is_ours());
}

/* ---- loops ---- */

/* Runs iterations 0 .. n; 0, or what a task returned. */
static int32_t run_on_pool(tec_task task, void *closure, int64_t n) {
    if (tec_rt_num_threads() == 1) return task(closure, 0, n);
    int there = is_begun() || begin_pool();
    int64_t begin = 0;
    while (begin < n) {
        if (there && try_lock()) {
            int32_t result = run_shared(task, closure, begin, n);
            unlock();
            return result;
        }
        int64_t left = n - begin, end = begin + (left < 8 ? 1 : left / 8);
        int32_t result = task(closure, begin, end);
        if (result) return result;
        begin = end;
    }
    return 0;
}

/* Ends the workers before their code goes. The lock is not free only where the process ends while
 * a kernel runs; then they end with it. */
static __attribute__((destructor)) void end_pool(void) {
    if (!is_begun() || !is_ours() || !try_lock()) return;
    for (int32_t i = 1; i <= pool.workers; i++) {
        struct participant *worker = &participants[i];
        if (__atomic_exchange_n(&worker->state, STOPPED, __ATOMIC_ACQ_REL) == SLEEPING) {
            futex_wake(&worker->state);
        }
    }
    for (int32_t i = 1; i <= pool.workers; i++) pthread_join(participants[i].thread, 0);
}
