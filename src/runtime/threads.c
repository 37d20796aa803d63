/* The number of threads of parallel loops, and the host's function for them, if it sets one;
 * without it they run on the module's own threads (`pool.c`). */
#include "tec_runtime.h"

/* Larger numbers are clamped; the pool has a lower limit. */
enum { UNSET = -1, MAX_THREADS = 65536 };

static int32_t threads IN_DATA = UNSET;
static tec_parallel_for host_parallel_for;
static void *host_user;

/* Parses a decimal number from 1 to MAX_THREADS; returns 0, the default, for anything else. */
static int32_t parse_threads(const char *text) {
    int32_t value = 0;
    for (; text && *text; text++) {
        if (*text < '0' || *text > '9') return 0;
        value = value * 10 + (*text - '0');
        if (value > MAX_THREADS) return 0;
    }
    return value;
}

/* Returns the number that was set, else that of TEC_NUM_THREADS, else 0: one thread for each
 * CPU. */
INTERNAL int32_t tec_rt_num_threads(void) {
    int32_t now = __atomic_load_n(&threads, __ATOMIC_RELAXED);
    if (now == UNSET) {
        char room[VARIABLE_BYTES];
        int32_t read = parse_threads(read_variable("TEC_NUM_THREADS", room));
        /* A number that another thread sets meanwhile takes precedence. */
        if (__atomic_compare_exchange_n(&threads, &now, read, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            now = read;
        }
    }
    return now;
}

/* Numbers below 1 mean the default. */
INTERNAL void tec_rt_set_num_threads(int32_t n) {
    __atomic_store_n(&threads, n < 1 ? 0 : n, __ATOMIC_RELAXED);
}

/* Must not be called while a kernel runs. Null selects the module's own threads. */
INTERNAL void tec_rt_set_parallel_for(tec_parallel_for run, void *user) {
    host_parallel_for = run;
    host_user = user;
}

EXPORTED void tec_set_num_threads(int32_t n) { tec_rt_set_num_threads(n); }

EXPORTED void tec_set_parallel_for(tec_parallel_for run, void *user) {
    tec_rt_set_parallel_for(run, user);
}
