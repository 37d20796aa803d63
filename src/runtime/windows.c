/* What the runtime needs of Windows: the clock, threads, memory and the environment, in place of
 * `system.c`. Everything comes from kernel32, which every program links. */
#include "tec_runtime.h"

#define IMPORTED __declspec(dllimport)

IMPORTED int32_t QueryPerformanceCounter(int64_t *);
IMPORTED int32_t QueryPerformanceFrequency(int64_t *);
IMPORTED int32_t SwitchToThread(void);
IMPORTED void *GetCurrentProcess(void);
IMPORTED int32_t GetProcessAffinityMask(void *, uint64_t *, uint64_t *);
IMPORTED void *CreateThread(void *, size_t, uint32_t (*)(void *), void *, uint32_t, uint32_t *);
IMPORTED int32_t CloseHandle(void *);
IMPORTED void *VirtualAlloc(void *, size_t, uint32_t, uint32_t);
IMPORTED int32_t VirtualFree(void *, size_t, uint32_t);
IMPORTED uint32_t GetEnvironmentVariableA(const char *, char *, uint32_t);
IMPORTED void *GetModuleHandleA(const char *);
IMPORTED int32_t GetModuleHandleExA(uint32_t, const char *, void **);
IMPORTED void *GetProcAddress(void *, const char *);

enum { PAGE = 4096 };

/* ---- waiting ---- */

/* Windows 8 and later have these functions, but no import library that every program links. */
static int32_t (*wait_on_address)(void *, const void *, size_t, uint32_t);
static void (*wake_by_address)(void *);

/* Sleeps while `*word` is `value`; may return early. */
static COLD void futex_wait(uint32_t *word, uint32_t value) {
    enum { FOREVER = -1 };
    wait_on_address(word, &value, sizeof value, (uint32_t)FOREVER);
}

/* Wakes a thread that sleeps on `word`, if there is one. */
static COLD void futex_wake(uint32_t *word) { wake_by_address(word); }

#if defined(__x86_64__)
/* Modules for this system have no instructions on tile registers. */
static int permit_tiles(void) { return 0; }
#endif

static int64_t now(void) {
    enum { NANOSECONDS = 1000000000 };
    static int64_t frequency;
    int64_t ticks, per_second = __atomic_load_n(&frequency, __ATOMIC_RELAXED);
    if (per_second == 0) {
        QueryPerformanceFrequency(&per_second);
        __atomic_store_n(&frequency, per_second, __ATOMIC_RELAXED);
    }
    QueryPerformanceCounter(&ticks);
    int64_t seconds = ticks / per_second;
    return seconds * NANOSECONDS + ticks % per_second * NANOSECONDS / per_second;
}

/* Yields the core to its other hardware thread for tens of nanoseconds. */
static void relax(void) { __asm__ volatile("pause"); }

static void yield_cpu(void) { SwitchToThread(); }

/* The number of CPUs that the process may run on, at least 1. */
static COLD int32_t count_cpus(void) {
    uint64_t mask = 0, of_system;
    GetProcessAffinityMask(GetCurrentProcess(), &mask, &of_system);
    int32_t cpus = 0;
    for (; mask; mask &= mask - 1) cpus++;
    return cpus < 1 ? 1 : cpus;
}

/* ---- threads ---- */

typedef void *thread_id;
typedef uint32_t thread_result;

static COLD int has_threads(void) {
    void *library = GetModuleHandleA("kernelbase.dll");
    if (!library) return 0;
    void *wait = GetProcAddress(library, "WaitOnAddress");
    void *wake = GetProcAddress(library, "WakeByAddressSingle");
    wait_on_address = (int32_t (*)(void *, const void *, size_t, uint32_t))wait;
    wake_by_address = (void (*)(void *))wake;
    return wait && wake;
}

/* Starts a thread with a small stack. False on failure. A DLL whose code it runs stays loaded: it
 * could not wait for the end of its threads while it is unloaded. */
static COLD int start_thread(thread_id *thread, thread_result (*run)(void *), void *data) {
    enum { STACK_BYTES = 1 << 20, STACK_IS_RESERVED = 0x10000, PIN = 1, FROM_ADDRESS = 4 };
    void *module;
    if (!GetModuleHandleExA(PIN | FROM_ADDRESS, (const char *)run, &module)) return 0;
    *thread = CreateThread(0, STACK_BYTES, run, data, STACK_IS_RESERVED, 0);
    if (!*thread) return 0;
    CloseHandle(*thread);
    return 1;
}

/* Gives the calling thread the name of a worker, where Windows has names. */
static COLD void name_worker(void) {
    void *library = GetModuleHandleA("kernelbase.dll");
    void *found = library ? GetProcAddress(library, "SetThreadDescription") : 0;
    int32_t (*describe)(void *, const wchar_t *) = (int32_t (*)(void *, const wchar_t *))found;
    enum { CURRENT_THREAD = -2 };
    if (describe) describe((void *)(intptr_t)CURRENT_THREAD, L"tec worker");
}

/* There are no signals. */
static uint64_t block_signals(void) { return 0; }
static void restore_signals(uint64_t mask) { (void)mask; }

/* An address that differs between threads. */
static uintptr_t thread_address(void) {
    uintptr_t block;
    __asm__("movq %%gs:0x30, %0" : "=r"(block));
    return block;
}

/* ---- memory, the environment, libraries ---- */

/* Maps at least `*bytes` of memory, and sets how many. Null if there is none. */
static COLD void *map_memory(uint64_t *bytes) {
    enum { COMMIT = 0x1000, RESERVE = 0x2000, READ_WRITE = 4 };
    return VirtualAlloc(0, *bytes, RESERVE | COMMIT, READ_WRITE);
}

static void unmap_memory(void *memory, uint64_t bytes) {
    enum { RELEASE = 0x8000 };
    (void)bytes;
    VirtualFree(memory, 0, RELEASE);
}

/* The value of an environment variable, in `room` if it fits; null without the variable. */
static COLD const char *read_variable(const char *name, char room[VARIABLE_BYTES]) {
    uint32_t length = GetEnvironmentVariableA(name, room, VARIABLE_BYTES);
    if (length == 0) return 0;
    return length < VARIABLE_BYTES ? room : "...";
}

/* The address of a function of libtvm_ffi. Null in a host without it. */
static COLD void *find(const char *name) {
    void *library = GetModuleHandleA("tvm_ffi.dll");
    return library ? GetProcAddress(library, name) : 0;
}

#define FFI_FUNCTION(name) find(#name)
