/* Parallel loops on the host's threads: bit-exact with chunks of any size and any floating-point
 * mode of the threads; failures of tasks and of the host; loops that do not call the host. */
#include "p.h"
#include "support.h"
#include <pthread.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint32_t get_mode(void) { return _mm_getcsr() & ~0x3fu; }
/* Flush to zero, denormals are zero. */
static void spoil_mode(void) { _mm_setcsr(0x9fc0); }
#else
static uint32_t get_mode(void) { return 0; }
static void spoil_mode(void) {}
#endif

enum { THREADS = 4, MAX = 200 };

typedef int32_t Task(void *, int64_t, int64_t);

/* A loop that the host runs: threads take chunks of 1, 2, … 7 iterations, the last ones first. */
typedef struct {
    pthread_mutex_t lock;
    Task *task;
    void *data;
    int64_t left;
    int64_t chunk;
    int32_t result;
    int lost_modes;
} Loop;

/* The behaviour of the host's function, and the number of its calls. */
typedef struct {
    int calls;
    int32_t answer;
    int forgets;
    int lost_modes;
} Host;

static void *work(void *argument) {
    Loop *loop = argument;
    spoil_mode();
    uint32_t mode = get_mode();
    for (;;) {
        pthread_mutex_lock(&loop->lock);
        int64_t end = loop->left;
        int64_t begin = end - 1 - loop->chunk++ % 7;
        if (begin < 0) begin = 0;
        loop->left = begin;
        pthread_mutex_unlock(&loop->lock);
        if (end <= 0) return NULL;
        int32_t result = loop->task(loop->data, begin, end);
        pthread_mutex_lock(&loop->lock);
        if (result) loop->result = result;
        loop->lost_modes += get_mode() != mode;
        pthread_mutex_unlock(&loop->lock);
    }
}

static int32_t run_on_threads(Task *task, void *data, int64_t n, void *user) {
    Host *host = user;
    host->calls++;
    if (host->answer) return host->answer;
    Loop loop = {PTHREAD_MUTEX_INITIALIZER, task, data, n, 0, 0, 0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &loop);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    host->lost_modes += loop.lost_modes;
    return host->forgets ? 0 : loop.result;
}

static float a[MAX], c[MAX], expected[MAX];

static DLTensor vector(float *data, int64_t *shape) {
    DLTensor t = {0};
    t.data = data, t.device.device_type = kDLCPU, t.ndim = 1, t.shape = shape;
    t.dtype.code = kDLFloat, t.dtype.bits = 32, t.dtype.lanes = 1;
    return t;
}

int main(void) {
    const float alpha = 1e-10f;
    int64_t shape[1] = {MAX}, huge = (int64_t)1 << 45;
    DLTensor A = vector(a, shape), C = vector(c, shape);
    for (int i = 0; i < MAX; i++) a[i] = 1e-30f * (float)(i + 1);
    EXPECT(shared_rows(a, alpha, expected, MAX, 4000) == 0);
    EXPECT(expected[0] != 0 && expected[0] < 1e-36f);

    Host host = {0};
    p_set_parallel_for(run_on_threads, &host);
    p_set_num_threads(3);
    for (int64_t n = 0; n <= MAX; n += n < 20 ? 1 : 45) {
        memset(c, 0xff, sizeof c);
        host.calls = 0;
        EXPECT(shared_rows(a, alpha, c, n, 100 + n * 40) == 0);
        EXPECT(memcmp(c, expected, (size_t)n * sizeof *c) == 0);
        /* The two outer loops call the host; inner loops and single iterations do not. */
        EXPECT(host.calls == (n < 2 ? 0 : 2));
    }
    memset(c, 0xff, sizeof c);
    EXPECT(shared_rows_dl(&A, alpha, &C, 4000) == 0);
    EXPECT(memcmp(c, expected, sizeof c) == 0);
    EXPECT(host.lost_modes == 0);

    /* Without memory in a task the call fails, whether or not the host passes the failure on. */
    for (host.forgets = 0; host.forgets < 2; host.forgets++) {
        EXPECT(shared_rows(a, alpha, c, MAX, huge) == 1);
        EXPECT_ERROR(shared_rows_dl(&A, alpha, &C, huge), p_last_error(), "out of memory");
    }
    host.forgets = 0;
    EXPECT(shared_rows_dl(&A, alpha, &C, 4000) == 0);

    /* The host's own failure. */
    for (host.answer = -1; host.answer < 4; host.answer++) {
        if (host.answer == 0) continue;
        EXPECT(shared_rows(a, alpha, c, MAX, 4000) == 2);
        EXPECT_ERROR(shared_rows_dl(&A, alpha, &C, 4000), p_last_error(),
                     "the host's parallel_for failed (in `shared_rows(");
    }

    /* Without the host's function. */
    p_set_parallel_for(NULL, NULL);
    host.calls = 0;
    memset(c, 0xff, sizeof c);
    EXPECT(shared_rows(a, alpha, c, MAX, 4000) == 0);
    EXPECT(memcmp(c, expected, sizeof c) == 0);
    EXPECT(shared_rows(a, alpha, c, MAX, huge) == 1);
    EXPECT(host.calls == 0);
    return finish();
}
