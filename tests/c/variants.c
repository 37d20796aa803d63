/* Calls a module for several CPUs from many threads at once and in a child process.
 *
 *     variants TARGET            the module runs the code for TARGET
 *     variants - MESSAGE         no variant can run: every call fails with this message
 *     variants CPU TARGET        the same as TARGET, on an emulated CPU (see below)
 *     variants CPU - MESSAGE
 *
 * The instruction `cpuid` can be made to fault (ARCH_CPUID); the handler then answers as an older
 * CPU would. Exits with 77 if this system cannot do that. */
#include "k.h"
#include "support.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_CPUID = 0x1012, THREADS = 8, N = 1000 };

static const char *cpu;

/* The bits that a CPU lacks, by leaf: ecx of 1, ebx of 7. */
static uint32_t lacks_1_ecx(void) {
    enum { SSE41 = 1 << 19, FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };
    if (!strcmp(cpu, "ancient")) return SSE41 | FMA | OSXSAVE | AVX | F16C;
    if (!strcmp(cpu, "Nehalem")) return FMA | OSXSAVE | AVX | F16C;
    /* The CPU has everything, the operating system does not save the registers. */
    if (!strcmp(cpu, "old-system")) return OSXSAVE;
    return 0;
}

static uint32_t lacks_7_ebx(void) {
    enum { AVX2 = 1 << 5 };
    if (!strcmp(cpu, "Haswell")) return ~(uint32_t)AVX2;
    return strcmp(cpu, "old-system") ? ~0u : 0;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)(uintptr_t)r[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) _exit(1);
    uint32_t leaf = (uint32_t)r[REG_RAX], a = leaf, b, c = (uint32_t)r[REG_RCX], d;
    syscall(SYS_arch_prctl, ARCH_CPUID, 1);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    syscall(SYS_arch_prctl, ARCH_CPUID, 0);
    if (leaf == 1) c &= ~lacks_1_ecx();
    if (leaf == 7) b &= ~lacks_7_ebx(), c = 0;
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

static bool emulate(const char *name) {
    cpu = name;
    struct sigaction action = {0};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGSEGV, &action, NULL) == 0
        && syscall(SYS_arch_prctl, ARCH_CPUID, 0) == 0;
}

static const char *expected, *message;

static void call(void) {
    static const int64_t shape[1] = {N};
    float x[N], y[N];
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = -1;
    DLTensor X = {.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}};
    X.shape = (int64_t *)shape;
    DLTensor Y = X;
    Y.data = y;
    if (*expected == '-') {
        EXPECT(k_target() == NULL && strstr(k_last_error(), message));
        EXPECT(scale(x, y, N) == 3 && strstr(k_last_error(), message));
        EXPECT_ERROR(scale_dl(&X, &Y), k_last_error(), message);
        EXPECT(strstr(k_last_error(), "(in `scale(") != NULL);
        EXPECT(y[0] == -1);
        return;
    }
    EXPECT(scale_dl(&X, &Y) == 0 && y[N - 1] == 2.0f * (N - 1) + 1);
    y[5] = 0;
    EXPECT(scale(x, y, N) == 0 && y[5] == 11);
    EXPECT(k_target() && !strcmp(k_target(), expected));
    X.data = NULL;
    EXPECT_ERROR(scale_dl(&X, &Y), k_last_error(), "argument 1 `x`: the data is a null pointer");
}

static pthread_barrier_t barrier;

static void *run(void *unused) {
    pthread_barrier_wait(&barrier);
    call();
    return unused;
}

int main(int argc, char **argv) {
    bool is_target = argc == 2 || argv[1][0] == '-';
    if (!is_target && !emulate(argv[1])) return 77;
    expected = argv[is_target ? 1 : 2];
    message = argv[argc - 1];
    /* A child before the first call of the parent. */
    pid_t child = fork();
    if (child == 0) {
        call();
        _exit(failures != 0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) EXPECT(pthread_create(&threads[i], NULL, run, NULL) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    call();
    child = fork();
    if (child == 0) {
        call();
        _exit(failures != 0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return finish();
}
