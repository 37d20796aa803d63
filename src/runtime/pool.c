/* The module's own threads, for parallel loops in a host without a function for them. Before:
 * `threads.c` says how many to use. After: `parallel.c` runs loops on them.
 *
 * The iterations of a loop are split into one range for each participant (the workers and the
 * calling thread), the same ones in each call, so that the next call finds the data in the cores'
 * caches. A participant takes a quarter of the rest of its range at a time, then helps with the
 * ranges of the others, so a slow or busy core does not delay the loop. For the same reason a loop
 * does not wait for workers that have not begun.
 *
 * Fetching data from the caches of another core costs microseconds, and again when that core needs
 * it in the next call. So shorter pieces of work are not divided further, and a participant that
 * has finished its range gives the others time for such a piece before it helps. The iterations
 * that it has done show how long others take.
 *
 * One loop at a time uses the workers. Others, nested ones included, run on their own thread, and
 * use the workers for the remaining iterations when they become free.
 *
 * A child of fork() has none of these threads; its first parallel loop starts new ones. */
#include "tec_runtime.h"

/* How long a worker spins before it sleeps, and a caller before it sleeps until workers end. */
enum { SPIN_NANOSECONDS = 50000 };
/* After this time it also yields the CPU, possibly to the thread that it waits for. */
enum { ALONE_NANOSECONDS = 4000 };

/* Work shorter than this is not taken over by other participants. */
enum { GRAIN_NANOSECONDS = 2000 };
/* A loop gets one participant for this many steps, about a microsecond, because calling a worker
 * and waiting for it takes as long. With steps for one only, it is not shared. */
enum { PARTICIPANT_STEPS = 4000 };

enum { MAX_PARTICIPANTS = 512, CACHE_LINES = 128 };

enum worker_state {
    IDLE = 0,     /* the worker spins, or is about to */
    SLEEPING,     /* the worker sleeps */
    CALLED,       /* a loop has called it */
    CALLED_ASLEEP, /* the same, but no thread has woken it yet */
    WOKEN,         /* the same, and a thread is waking it */
    RUNNING,      /* it works for the loop, which ends only after it is IDLE again */
    AWAITED,      /* the same, and the loop's caller sleeps */
    STOPPED       /* it ends */
};

/* A participant of a loop; the caller is number 0. The fields that a worker waits for and then
 * reads are in one cache line. The one that its caller waits for is in another, because the worker
 * takes iterations from the first one meanwhile. */
struct participant {
    uint32_t state;
    uint32_t called; /* number of loops that have called it */
    int64_t next;    /* the first iteration of its range that is not taken */
    int64_t end;
    tec_task task;
    void *closure;
    int32_t participants;
    /* The value of `called` for which it has finished its work. */
    uint32_t finished __attribute__((aligned(CACHE_LINES)));
    thread_id thread;
} __attribute__((aligned(CACHE_LINES)));

static struct participant participants[MAX_PARTICIPANTS];

/* A nonzero result of a task of the loop that uses the workers. */
static int32_t failure __attribute__((aligned(CACHE_LINES)));

/* Only the holder of the lock accesses the other fields, and `called` of each participant. */
static struct {
    uint32_t locked;
    int32_t workers; /* started ones: participants 1 .. workers */
    int32_t wanted;  /* participants of the last attempt to start workers; 0: none yet */
    int32_t setting; /* the number of threads that was set then */
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

/* The speed of a participant. */
struct pace {
    int64_t start;
    int64_t done; /* iterations since */
};

/* The iterations that take GRAIN_NANOSECONDS at this speed, at least 1. */
static int64_t count_grain(const struct pace *pace) {
    int64_t time = now() - pace->start;
    if (pace->done > INT64_MAX / GRAIN_NANOSECONDS) return pace->done;
    int64_t iterations = time > 0 ? pace->done * GRAIN_NANOSECONDS / time : pace->done;
    return iterations > 0 ? iterations : 1;
}

/* Takes a quarter of the rest of a range, but at least `least` iterations. False if all are
 * taken. */
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

/* Whether a participant needs help: it sleeps, has much left, or does not begin or finish its rest
 * in the time for it. `grain` iterations take GRAIN_NANOSECONDS. */
static int falls_behind(struct participant *of, int64_t grain) {
    int64_t left = left_of(of), start = now();
    if (left >= 2 * grain) return 1;
    while (left_of(of) > 0) {
        int64_t due = GRAIN_NANOSECONDS / 2;
        uint32_t state = __atomic_load_n(&of->state, __ATOMIC_RELAXED);
        if (state == CALLED_ASLEEP || state == WOKEN) return 1;
        if (state != CALLED) due += GRAIN_NANOSECONDS * left / grain;
        if (now() - start >= due) return 1;
        /* Rarely, because each read takes the cache line from its owner. */
        for (int32_t i = 0; i < 8; i++) relax();
    }
    return 0;
}

/* Runs iterations of a range until all are taken. False if a task has failed. */
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

/* Runs iterations until all are taken or one has failed. */
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

/* Waits while the word is `same`, at first without yielding the CPU, for a limited time. Returns
 * its value. */
static uint32_t spin(const uint32_t *word, uint32_t same) {
    int64_t start = 0, most = __atomic_load_n(&pool.spin, __ATOMIC_RELAXED);
    for (uint32_t turn = 0;; turn++) {
        uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (value != same) return value;
        if (turn % 16 == 0) {
            int64_t time = now();
            if (turn == 0) start = time;
            if (time - start >= most) return value;
            if (time - start >= ALONE_NANOSECONDS) yield_cpu();
        }
        relax();
    }
}

static int change(struct participant *worker, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&worker->state, &from, to, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* Wakes the sleeping ones of the participants that participant `number` is responsible for, so that
 * the caller need not make a system call for each worker. */
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

static thread_result run_worker(void *data) {
    struct participant *self = data;
    int32_t number = (int32_t)(self - participants);
    name_worker();
    tec_rt_fp_enter();
    for (;;) {
        uint32_t state = spin(&self->state, IDLE);
        if (state == STOPPED) return 0;
        /* The state is SLEEPING if it was woken for a loop that has ended meanwhile. */
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
        /* Between loops a worker is IDLE or SLEEPING, and only the worker changes IDLE to
         * SLEEPING. */
        if (!change(worker, IDLE, CALLED)) change(worker, SLEEPING, CALLED_ASLEEP);
    }
    wake_next(0);
}

/* Cancels the call of a worker that has not begun. Another thread may be waking it. */
static int call_off(struct participant *worker) {
    uint32_t state = __atomic_load_n(&worker->state, __ATOMIC_RELAXED);
    if (state == CALLED) return change(worker, CALLED, IDLE);
    return (state == CALLED_ASLEEP && change(worker, CALLED_ASLEEP, SLEEPING))
        || ((state == CALLED_ASLEEP || state == WOKEN) && change(worker, WOKEN, IDLE));
}

/* Waits for a worker, unless its call can be cancelled. */
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
    /* It is about to store this. */
    while (__atomic_load_n(&worker->finished, __ATOMIC_ACQUIRE) != called) yield_cpu();
}

/* ---- the pool ---- */

/* Starts the missing workers. If the system starts no more threads, the existing ones do the work
 * until another number is set. */
static COLD void start_workers(int32_t setting) {
    int32_t cpus = count_cpus(), wanted = setting > 0 ? setting : cpus;
    if (wanted > MAX_PARTICIPANTS) wanted = MAX_PARTICIPANTS;
    /* More threads than CPUs must not spin, because they would keep others from running. */
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

/* Runs iterations begin .. end on a limited number of threads; the pool is locked. */
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

#if defined(_WIN32)

/* Windows has no fork(). */
static uint32_t *begun(void) {
    static uint32_t word;
    return &word;
}

static int is_ours(void) { return 1; }
static void own_process(void) {}
static int may_have_forked(void) { return 0; }

#elif defined(__APPLE__)

/* The process that the pool belongs to. The system does not clear pages in the child of fork(), but
 * libSystem knows the process id. */
static int32_t process;

static uint32_t *begun(void) {
    static uint32_t word;
    return &word;
}

static int is_ours(void) { return __atomic_load_n(&process, __ATOMIC_RELAXED) == getpid(); }

/* Notes that the pool belongs to this process. */
static COLD void own_process(void) {
    reset_queues();
    __atomic_store_n(&process, getpid(), __ATOMIC_RELAXED);
}

static int may_have_forked(void) { return 1; }

#else

#if defined(__aarch64__)
enum { LARGEST_PAGE = 65536 };
#else
enum { LARGEST_PAGE = PAGE };
#endif

/* Contains a whole page of any page size, which the system clears in the child of fork(). Static,
 * because threads may outlive the module's destructor. */
static char cleared_by_fork[2 * LARGEST_PAGE];
/* The process that the pool belongs to, and whether each loop must query the process id because the
 * system cannot clear the page. */
static int64_t process;
static int32_t asks;

static uint32_t *begun(void) {
    uintptr_t room = (uintptr_t)cleared_by_fork;
    return (uint32_t *)((room + LARGEST_PAGE - 1) / LARGEST_PAGE * LARGEST_PAGE);
}

static COLD int is_ours(void) {
    return __atomic_load_n(&process, __ATOMIC_RELAXED) == syscall(SYS_GETPID);
}

/* Notes that the pool belongs to this process. */
static void own_process(void) {
    int kept = syscall(SYS_MADVISE, begun(), (long)LARGEST_PAGE, (long)MADV_WIPEONFORK) != 0;
    __atomic_store_n(&asks, kept, __ATOMIC_RELAXED);
    __atomic_store_n(&process, syscall(SYS_GETPID), __ATOMIC_RELAXED);
}

static int may_have_forked(void) { return __atomic_load_n(&asks, __ATOMIC_RELAXED); }

#endif

/* Initialises the pool at the first parallel loop of a process. False while another thread does
 * so. */
static COLD int begin_pool(void) {
    uint32_t *word = begun(), was = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (was == BEGINNING
        || !__atomic_compare_exchange_n(word, &was, BEGINNING, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
        return 0;
    }
    if (was == NOT_BEGUN || !is_ours()) {
        own_process();
        pool.workers = 0;
        pool.wanted = 0;
        unlock();
    }
    __atomic_store_n(word, BEGUN, __ATOMIC_RELEASE);
    return 1;
}

static int is_begun(void) {
    return __atomic_load_n(begun(), __ATOMIC_ACQUIRE) == BEGUN
        && (!may_have_forked() || is_ours());
}

/* ---- loops ---- */

/* The number of threads for n iterations of `steps` steps. */
static int64_t worth(int64_t n, int64_t steps) {
    if (steps == 0 || n / PARTICIPANT_STEPS >= MAX_PARTICIPANTS) return MAX_PARTICIPANTS;
    return steps >= PARTICIPANT_STEPS ? n : n * steps / PARTICIPANT_STEPS;
}

/* Runs iterations 0 .. n of `steps` steps each (0: not known). Returns 0, or the result of a failed
 * task. */
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

#if !defined(_WIN32)

/* Ends the workers before their code is unloaded. If the lock is held, the process exits while a
 * kernel runs; the workers then end with it. */
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

#endif
