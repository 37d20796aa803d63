/* The module's own threads, for parallel loops of a host that gave none. Before: `threads.c` says
 * how many are wanted. After: `parallel.c` runs loops on them.
 *
 * The iterations of a loop are split into one range for each participant, the calling thread
 * among them, always the same ones, so that what a core has in its caches is of use to it in the
 * next call. A participant takes a quarter of what is left of its range at a time, then helps
 * with the ranges of the others: a core that is slow, or busy with other work, holds up nobody.
 * For the same reason a loop does not wait for a worker that has not begun.
 *
 * What another core has in its caches costs some microseconds to fetch, and as much again when
 * that core needs it for the next call. So what takes less is not divided further, and who has
 * done his own range first gives the others the time for such a rest before he helps. The
 * iterations that he has done tell him how long others take.
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

/* Work of less than this is its participant's own. */
enum { GRAIN_NANOSECONDS = 2000 };
/* A loop has a participant for so many steps, about a microsecond, and is not shared if it has not
 * work for two: to call one and to wait for it takes as long. */
enum { PARTICIPANT_STEPS = 4000 };

enum { MAX_PARTICIPANTS = 512, CACHE_LINES = 128 };

enum worker_state {
    IDLE = 0,     /* the worker spins, or is about to */
    SLEEPING,     /* the worker sleeps */
    CALLED,       /* a loop wants it */
    CALLED_ASLEEP, /* the same, and nobody has woken it yet */
    WOKEN,         /* the same, and somebody does so */
    RUNNING,      /* it works for the loop, which does not end before it is IDLE again */
    AWAITED,      /* the same, and the loop's caller sleeps */
    STOPPED       /* it ends */
};

/* A participant of a loop: the caller is number 0. All that a worker waits for and then needs is in
 * one cache line, and what its caller waits for in another, for the worker takes iterations from
 * the first one meanwhile. */
struct participant {
    uint32_t state;
    uint32_t called; /* how many loops have called it */
    int64_t next;    /* of its range, the first iteration that nobody took */
    int64_t end;
    tec_task task;
    void *closure;
    int32_t participants;
    /* `called`, when it has done its work. */
    uint32_t finished __attribute__((aligned(CACHE_LINES)));
    thread_id thread;
} __attribute__((aligned(CACHE_LINES)));

static struct participant participants[MAX_PARTICIPANTS];

/* Of the loop that has the workers: what a task returned other than 0. */
static int32_t failure __attribute__((aligned(CACHE_LINES)));

/* All but `locked` belong to who has locked the pool, and so does `called` of each participant. */
static struct {
    uint32_t locked;
    int32_t workers; /* that are started: participants 1 .. workers */
    int32_t wanted;  /* participants that the last attempt to start workers was for; 0: none yet */
    int32_t setting; /* and the number of threads that was set then */
    int64_t spin;
} pool __attribute__((aligned(CACHE_LINES)));

static int try_lock(void) {
    uint32_t unlocked = 0;
    return __atomic_load_n(&pool.locked, __ATOMIC_RELAXED) == 0
        && __atomic_compare_exchange_n(&pool.locked, &unlocked, 1, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void unlock(void) { __atomic_store_n(&pool.locked, 0, __ATOMIC_RELEASE); }

/* ---- the iterations ---- */

/* How fast a participant is. */
struct pace {
    int64_t start;
    int64_t done; /* iterations since */
};

/* The iterations that take GRAIN_NANOSECONDS at this pace, at least 1. */
static int64_t count_grain(const struct pace *pace) {
    int64_t time = now() - pace->start;
    if (pace->done > INT64_MAX / GRAIN_NANOSECONDS) return pace->done;
    int64_t iterations = time > 0 ? pace->done * GRAIN_NANOSECONDS / time : pace->done;
    return iterations > 0 ? iterations : 1;
}

/* Takes a quarter of what is left of a range, but no less than `least`; false if all is taken. */
static int claim(struct participant *of, int64_t least, int64_t *begin, int64_t *end) {
    int64_t next = __atomic_load_n(&of->next, __ATOMIC_RELAXED), after;
    do {
        int64_t left = of->end - next, take = left / 4;
        if (left <= 0) return 0;
        if (take < least) take = least < left ? least : left;
        after = next + take;
    } while (!__atomic_compare_exchange_n(&of->next, &next, after, 1, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    *begin = next;
    *end = after;
    return 1;
}

static int64_t left_of(struct participant *of) {
    return of->end - __atomic_load_n(&of->next, __ATOMIC_RELAXED);
}

/* Whether a participant needs help: it sleeps, or has much to do, or does not do the rest, or does
 * not begin, in the time that is its due. GRAIN_NANOSECONDS of work are `grain` iterations. */
static int falls_behind(struct participant *of, int64_t grain) {
    int64_t left = left_of(of), start = now();
    if (left >= 2 * grain) return 1;
    while (left_of(of) > 0) {
        int64_t due = GRAIN_NANOSECONDS / 2;
        uint32_t state = __atomic_load_n(&of->state, __ATOMIC_RELAXED);
        if (state == CALLED_ASLEEP || state == WOKEN) return 1;
        if (state != CALLED) due += GRAIN_NANOSECONDS * left / grain;
        if (now() - start >= due) return 1;
        /* Seldom, for each look takes the cache line from its owner. */
        for (int32_t i = 0; i < 8; i++) relax();
    }
    return 0;
}

/* Works for a range until all of it is taken. False if a task has failed. */
static int work_for(struct participant *range, int64_t least, struct pace *pace,
                    const struct participant *self) {
    int64_t begin, end;
    while (claim(range, least, &begin, &end)) {
        int32_t result = self->task(self->closure, begin, end);
        if (result) __atomic_store_n(&failure, result, __ATOMIC_RELAXED);
        if (__atomic_load_n(&failure, __ATOMIC_RELAXED)) return 0;
        pace->done += end - begin;
        if (end == range->end) break;
        least = count_grain(pace);
    }
    return 1;
}

/* Works until every iteration is taken, or one has failed. */
static void participate(int32_t number) {
    struct participant *self = &participants[number];
    int32_t all = self->participants;
    struct pace pace = {now(), 0};
    int64_t grain = 0;
    if (!work_for(self, 1, &pace, self)) return;
    for (int32_t of = number + 1; of < number + all; of++) {
        struct participant *other = &participants[of < all ? of : of - all];
        if (left_of(other) <= 0) continue;
        if (grain == 0) grain = count_grain(&pace);
        if (!falls_behind(other, grain)) continue;
        if (!work_for(other, grain, &pace, self)) return;
    }
}

/* ---- workers ---- */

/* Waits while the word is `same`, for a while without giving up the CPU; what it is then. */
static uint32_t spin(const uint32_t *word, uint32_t same) {
    int64_t start = 0, most = __atomic_load_n(&pool.spin, __ATOMIC_RELAXED);
    for (uint32_t turn = 0;; turn++) {
        uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (value != same) return value;
        if (turn % 16 == 0) {
            int64_t time = now();
            if (turn == 0) start = time;
            if (time - start >= most) return value;
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
    int32_t all = participants[number].participants;
    for (int32_t i = 2 * number + 1; i <= 2 * number + 2 && i < all; i++) {
        struct participant *worker = &participants[i];
        if (__atomic_load_n(&worker->state, __ATOMIC_RELAXED) == CALLED_ASLEEP
            && change(worker, CALLED_ASLEEP, WOKEN)) {
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
        uint32_t state = spin(&self->state, IDLE);
        if (state == STOPPED) return 0;
        /* SLEEPING it finds where it woke for a loop that ended before it came. */
        if (state == SLEEPING || (state == IDLE && change(self, IDLE, SLEEPING))) {
            do {
                futex_wait(&self->state, SLEEPING);
            } while (__atomic_load_n(&self->state, __ATOMIC_RELAXED) == SLEEPING);
        }
        if (change(self, CALLED, RUNNING) || change(self, WOKEN, RUNNING)
            || change(self, CALLED_ASLEEP, RUNNING) || change(self, WOKEN, RUNNING)) {
            uint32_t called = self->called;
            wake_next(number);
            participate(number);
            if (__atomic_exchange_n(&self->state, IDLE, __ATOMIC_ACQ_REL) == AWAITED) {
                futex_wake(&self->state);
            }
            __atomic_store_n(&self->finished, called, __ATOMIC_RELEASE);
        }
    }
}

/* Calls the workers of the loop. */
static void call_workers(int32_t all) {
    for (int32_t i = 1; i < all; i++) {
        struct participant *worker = &participants[i];
        worker->called++;
        /* Between loops a worker is IDLE or SLEEPING, and only it makes the one the other. */
        if (!change(worker, IDLE, CALLED)) change(worker, SLEEPING, CALLED_ASLEEP);
    }
    wake_next(0);
}

/* Calls off a worker if it has not begun. It may be woken meanwhile. */
static int call_off(struct participant *worker) {
    uint32_t state = __atomic_load_n(&worker->state, __ATOMIC_RELAXED);
    if (state == CALLED) return change(worker, CALLED, IDLE);
    return (state == CALLED_ASLEEP && change(worker, CALLED_ASLEEP, SLEEPING))
        || ((state == CALLED_ASLEEP || state == WOKEN) && change(worker, WOKEN, IDLE));
}

/* Waits for a worker, unless it can be called off. */
static void dismiss(struct participant *worker) {
    uint32_t called = worker->called;
    if (call_off(worker)) {
        __atomic_store_n(&worker->finished, called, __ATOMIC_RELAXED);
        return;
    }
    if (spin(&worker->finished, called - 1) != called && change(worker, RUNNING, AWAITED)) {
        do {
            futex_wait(&worker->state, AWAITED);
        } while (__atomic_load_n(&worker->state, __ATOMIC_ACQUIRE) == AWAITED);
    }
    /* It is about to say so. */
    while (__atomic_load_n(&worker->finished, __ATOMIC_ACQUIRE) != called) syscall(SYS_YIELD);
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

/* Runs iterations begin .. end on at most so many threads; the pool is locked. */
static int32_t run_shared(tec_task task, void *closure, int64_t begin, int64_t end,
                          int64_t limit) {
    int32_t setting = tec_rt_num_threads();
    if (pool.wanted == 0 || pool.setting != setting) start_workers(setting);
    int64_t n = end - begin, most = pool.workers + 1;
    if (most > pool.wanted) most = pool.wanted;
    if (most > n) most = n;
    if (most > limit) most = limit;
    if (most < 2) return task(closure, begin, end);
    __atomic_store_n(&failure, 0, __ATOMIC_RELAXED);
    int64_t each = n / most, more = n % most;
    for (int64_t i = 0; i < most; i++) {
        struct participant *participant = &participants[i];
        __atomic_store_n(&participant->next, begin, __ATOMIC_RELAXED);
        begin += each + (i < more);
        participant->end = begin;
        participant->task = task;
        participant->closure = closure;
        participant->participants = (int32_t)most;
    }
    call_workers((int32_t)most);
    participate(0);
    for (int64_t i = 1; i < most; i++) dismiss(&participants[i]);
    return __atomic_load_n(&failure, __ATOMIC_RELAXED);
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

/* The threads that n iterations of so many steps are worth. */
static int64_t worth(int64_t n, int64_t steps) {
    if (steps == 0 || n / PARTICIPANT_STEPS >= MAX_PARTICIPANTS) return MAX_PARTICIPANTS;
    return steps >= PARTICIPANT_STEPS ? n : n * steps / PARTICIPANT_STEPS;
}

/* Runs iterations 0 .. n of so many steps (0: not known); 0, or what a task returned. */
static int32_t run_on_pool(tec_task task, void *closure, int64_t n, int64_t steps) {
    int64_t limit = worth(n, steps);
    if (limit < 2 || tec_rt_num_threads() == 1) return task(closure, 0, n);
    int there = is_begun() || begin_pool();
    int64_t begin = 0;
    while (begin < n) {
        if (there && try_lock()) {
            int32_t result = run_shared(task, closure, begin, n, limit);
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
