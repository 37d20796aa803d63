/* Runs a program for macOS on Linux, under qemu if its processor is another one: maps the segments
 * of the linked Mach-O file, applies its fixups, binds what it imports to the functions below, and
 * calls `main`. It supports what `tests/macos.rs` links: no other library, no Objective-C, and
 * thread-local variables that begin as zero. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "loader: %s %s\n", what, which);
    exit(3);
}

/* ---- what libSystem has ---- */

/* A lock in a mutex of macOS, behind its signature. */
struct mutex {
    int64_t signature;
    uint32_t locked;
};
struct condition {
    int64_t signature;
    uint32_t changes;
};

static long futex(uint32_t *word, int operation, uint32_t value) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static int mutex_lock(struct mutex *mutex) {
    if (mutex->signature != 0x32aaaba7) fail("the lock", "is no mutex");
    while (__atomic_exchange_n(&mutex->locked, 1, __ATOMIC_ACQUIRE)) {
        futex(&mutex->locked, FUTEX_WAIT, 1);
    }
    return 0;
}

static int mutex_unlock(struct mutex *mutex) {
    __atomic_store_n(&mutex->locked, 0, __ATOMIC_RELEASE);
    futex(&mutex->locked, FUTEX_WAKE, INT32_MAX);
    return 0;
}

static int cond_wait(struct condition *condition, struct mutex *mutex) {
    if (condition->signature != 0x3cb0b1bb) fail("the condition", "is none");
    uint32_t changes = __atomic_load_n(&condition->changes, __ATOMIC_ACQUIRE);
    mutex_unlock(mutex);
    futex(&condition->changes, FUTEX_WAIT, changes);
    return mutex_lock(mutex);
}

static int cond_broadcast(struct condition *condition) {
    __atomic_fetch_add(&condition->changes, 1, __ATOMIC_RELEASE);
    futex(&condition->changes, FUTEX_WAKE, INT32_MAX);
    return 0;
}

static uint64_t clock_nanoseconds(int clock) {
    if (clock != 8) fail("the clock", "is not CLOCK_UPTIME_RAW");
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int32_t has_avx512(void) {
#if defined(__x86_64__)
    uint32_t a = 7, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return b >> 16 & 1;
#else
    return 0;
#endif
}

static int number_of_system(const char *name, int32_t *value, size_t *size, void *set, size_t n) {
    (void)set, (void)n;
    if (*size != sizeof *value) fail("the size of", name);
    if (strcmp(name, "hw.activecpu") == 0) return *value = 4, 0;
    if (strcmp(name, "hw.optional.avx512f") == 0) return *value = has_avx512(), 0;
    return -1;
}

/* Pages have 16 KiB on AArch64. What lies in front of the first whole one is not unmapped. */
static void *map(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    enum { PAGE = 16384 };
    if (flags != 0x1002 || protection != 3) fail("mmap", "of something else");
    at = mmap(at, bytes + PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, file, offset);
    return at == MAP_FAILED ? at : (void *)(((uintptr_t)at + PAGE - 1) / PAGE * PAGE);
}

static int mask_signals(int how, const uint32_t *mask, uint32_t *before) {
    static _Thread_local uint32_t current;
    if (before) *before = current;
    current = how == 1 ? current | *mask : *mask;
    return 0;
}

static int name_thread(const char *name) { return strcmp(name, "tec worker") != 0; }

static void *open_library(const char *name, int flags) {
    (void)name, (void)flags;
    return NULL;
}

static void *find_symbol(void *library, const char *name) {
    (void)library, (void)name;
    return NULL;
}

static void zero(void *start, size_t bytes) { memset(start, 0, bytes); }

static struct {
    void (*run)(void *);
    void *data;
} at_exit[64];
static int exits;

static int register_exit(void (*run)(void *), void *data, void *image) {
    (void)image;
    if (exits == 64) fail("functions", "at exit");
    at_exit[exits].run = run;
    at_exit[exits++].data = data;
    return 0;
}

static void stub_binder(void) { fail("a symbol", "is not bound"); }

/* Thread-local variables of the image. Their access keeps all registers but the result, on AArch64
 * also x16 and x17. A variable is {function, key, offset}. */
static _Thread_local char variables[8192] __attribute__((aligned(64), used));
void variable_address(void);

#if defined(__x86_64__)
__asm__("variable_address:\n"
        "movq %fs:0, %rax\n"
        "leaq variables@tpoff(%rax), %rax\n"
        "addq 16(%rdi), %rax\n"
        "ret");
#define PRINTF printf
#define FPRINTF fprintf
#else
__asm__("variable_address:\n"
        "mrs x16, tpidr_el0\n"
        "add x16, x16, :tprel_hi12:variables\n"
        "add x16, x16, :tprel_lo12_nc:variables\n"
        "ldr x17, [x0, #16]\n"
        "add x0, x16, x17\n"
        "ret");

/* Callers of macOS pass all variable arguments on the stack. */
static va_list *list_of(va_list *list, void *arguments) {
    memset(list, 0, sizeof *list);
    memcpy(list, &arguments, sizeof arguments);
    return list;
}

__attribute__((used)) static int print_stack(const char *format, void *arguments) {
    va_list list;
    return vprintf(format, *list_of(&list, arguments));
}

__attribute__((used)) static int print_stack_to(FILE *file, const char *format, void *arguments) {
    va_list list;
    return vfprintf(file, format, *list_of(&list, arguments));
}

void print_variadic(void);
void print_variadic_to(void);
__asm__("print_variadic:\n"
        "mov x1, sp\n"
        "b print_stack\n"
        "print_variadic_to:\n"
        "mov x2, sp\n"
        "b print_stack_to");
#define PRINTF print_variadic
#define FPRINTF print_variadic_to
#endif

static FILE *standard_error;
struct context;
typedef int trace_function(struct context *, void *);
static int backtrace(trace_function *visit, void *data);
static uintptr_t address_of(struct context *context);
static void *function_of(uintptr_t address);

static const struct {
    const char *name;
    void *address;
} imports[] = {
    {"__Unwind_Backtrace", backtrace},
    {"__Unwind_FindEnclosingFunction", function_of},
    {"__Unwind_GetIP", address_of},
    {"___bzero", zero},
    {"___cxa_atexit", register_exit},
    {"___stderrp", &standard_error},
    {"__tlv_bootstrap", variable_address},
    {"_bzero", zero},
    {"_clock_gettime_nsec_np", clock_nanoseconds},
    {"_dlclose", find_symbol},
    {"_dlopen", open_library},
    {"_dlsym", find_symbol},
    {"__exit", _exit},
    {"_exp", exp},
    {"_fork", fork},
    {"_fprintf", FPRINTF},
    {"_getenv", getenv},
    {"_getpid", getpid},
    {"_memcmp", memcmp},
    {"_memcpy", memcpy},
    {"_memset", memset},
    {"_mmap", map},
    {"_munmap", munmap},
    {"_pow", pow},
    {"_printf", PRINTF},
    {"_pthread_attr_destroy", pthread_attr_destroy},
    {"_pthread_attr_init", pthread_attr_init},
    {"_pthread_attr_setstacksize", pthread_attr_setstacksize},
    {"_pthread_cond_broadcast", cond_broadcast},
    {"_pthread_cond_wait", cond_wait},
    {"_pthread_create", pthread_create},
    {"_pthread_join", pthread_join},
    {"_pthread_mutex_lock", mutex_lock},
    {"_pthread_mutex_unlock", mutex_unlock},
    {"_pthread_self", pthread_self},
    {"_pthread_setname_np", name_thread},
    {"_pthread_sigmask", mask_signals},
    {"_puts", puts},
    {"_sched_yield", sched_yield},
    {"_strstr", strstr},
    {"_sysctlbyname", number_of_system},
    {"_waitpid", waitpid},
    {"dyld_stub_binder", stub_binder},
};

static void *import(const char *name) {
    for (size_t i = 0; i < sizeof imports / sizeof *imports; i++) {
        if (strcmp(imports[i].name, name) == 0) return imports[i].address;
    }
    fail("no function", name);
}

/* ---- the file ---- */

struct section {
    char name[16], segment[16];
    uint64_t address, size;
    uint32_t offset, align, relocations, count, flags, reserved[3];
};

struct segment {
    uint32_t command, bytes;
    char name[16];
    uint64_t address, size, offset, file_bytes;
    uint32_t most, initial, sections, flags;
};

enum { SEGMENT_64 = 0x19, SYMTAB = 2, DYLD_INFO_ONLY = 0x80000022, MAIN = 0x80000028 };
enum { ZEROFILL = 1, INITIALIZERS = 9, THREAD_VALUES = 0x11 };

static char *file, *image;
static const uint32_t *symtab;
static const struct segment *segments[16];
static int count;
/* The frames of __TEXT,__eh_frame. */
static const uint8_t *frames;
static uint64_t frame_bytes;

static uint64_t number(const uint8_t **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static uint64_t slide(void) { return (uintptr_t)image - segments[1]->address; }

static void *place(uint64_t segment, uint64_t offset) {
    return (void *)(segments[segment]->address + offset + slide());
}

/* Adds the slide to the pointers that REBASE_OPCODE_… list. */
static void rebase(const uint8_t *at, const uint8_t *end) {
    uint64_t segment = 0, offset = 0;
    while (at < end) {
        uint8_t low = *at & 15, operation = *at++ >> 4;
        uint64_t times = 0, skip = 0;
        switch (operation) {
        case 0: return;
        case 1: continue;
        case 2: segment = low, offset = number(&at); continue;
        case 3: offset += number(&at); continue;
        case 4: offset += low * 8; continue;
        case 5: times = low; break;
        case 6: times = number(&at); break;
        case 7: times = 1, skip = number(&at); break;
        case 8: times = number(&at), skip = number(&at); break;
        default: fail("a rebase", "of another kind");
        }
        for (; times; times--, offset += 8 + skip) *(uint64_t *)place(segment, offset) += slide();
    }
}

/* Stores the addresses that BIND_OPCODE_… list. */
static void bind(const uint8_t *at, const uint8_t *end, int lazy) {
    uint64_t segment = 0, offset = 0;
    void *value = NULL;
    while (at < end) {
        uint8_t low = *at & 15, operation = *at++ >> 4;
        uint64_t times = 0, skip = 0;
        switch (operation) {
        case 0:
            if (lazy) continue;
            return;
        case 1: case 3: case 5: continue;
        case 2: number(&at); continue;
        case 4:
            value = import((const char *)at);
            at += strlen((const char *)at) + 1;
            continue;
        case 6: if (number(&at)) fail("a bind", "with an addend"); continue;
        case 7: segment = low, offset = number(&at); continue;
        case 8: offset += number(&at); continue;
        case 9: times = 1; break;
        case 10: times = 1, skip = number(&at); break;
        case 11: times = 1, skip = low * 8; break;
        case 12: times = number(&at), skip = number(&at); break;
        default: fail("a bind", "of another kind");
        }
        for (; times; times--, offset += 8 + skip) *(void **)place(segment, offset) = value;
    }
}

typedef int main_function(int, char **);

static main_function *load(const char *path) {
    int descriptor = open(path, O_RDONLY);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status)) fail("cannot open", path);
    file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    uint32_t commands = *(uint32_t *)(file + 16);
    const char *at = file + 32;
    uint64_t start = 0;
    const uint32_t *fixups = NULL;
    for (uint32_t i = 0; i < commands; i++, at += *(uint32_t *)(at + 4)) {
        uint32_t command = *(uint32_t *)at;
        if (command == SEGMENT_64) segments[count++] = (const struct segment *)at;
        if (command == DYLD_INFO_ONLY) fixups = (const uint32_t *)at;
        if (command == SYMTAB) symtab = (const uint32_t *)at;
        if (command == MAIN) start = *(uint64_t *)(at + 8);
    }
    if (!fixups || !symtab || !start) fail("no fixups or entry in", path);
    /* The first segment is the unmapped page of null pointers. */
    const struct segment *last = segments[count - 1];
    uint64_t size = last->address + last->size - segments[1]->address;
    image = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0);
    if (image == MAP_FAILED) fail("cannot map", path);
    for (int i = 1; i < count; i++) {
        memcpy(place((uint64_t)i, 0), file + segments[i]->offset, segments[i]->file_bytes);
    }
    const uint8_t *bytes = (const uint8_t *)file;
    rebase(bytes + fixups[2], bytes + fixups[2] + fixups[3]);
    bind(bytes + fixups[4], bytes + fixups[4] + fixups[5], 0);
    bind(bytes + fixups[6], bytes + fixups[6] + fixups[7], 0);
    bind(bytes + fixups[8], bytes + fixups[8] + fixups[9], 1);
    __builtin___clear_cache(image, image + size);
    for (int i = 1; i < count; i++) {
        const struct section *sections = (const struct section *)(segments[i] + 1);
        for (uint32_t j = 0; j < segments[i]->sections; j++) {
            void *address = (void *)(sections[j].address + slide());
            uint32_t kind = sections[j].flags & 0xff;
            if (kind == THREAD_VALUES) fail("a thread-local variable", "with a value");
            if (strcmp(sections[j].name, "__eh_frame") == 0) {
                frames = address, frame_bytes = sections[j].size;
            }
            if (kind != INITIALIZERS) continue;
            for (uint64_t k = 0; k < sections[j].size / 8; k++) ((void (**)(void))address)[k]();
        }
    }
    return (main_function *)(image + start);
}

/* ---- unwinding ---- */

/* The registers of a frame that its caller expects, and how many frames `__eh_frame` described. */
struct context {
    uintptr_t address, stack, frame;
};
static int described;

static uintptr_t address_of(struct context *context) { return context->address; }

struct symbol {
    uint32_t name;
    uint8_t type, section;
    uint16_t description;
    uint64_t value;
};

/* The function of the image with this address, by the table of symbols. */
static void *function_of(uintptr_t address) {
    const struct symbol *symbols = (const struct symbol *)(file + symtab[2]);
    uint64_t at = address - slide(), found = 0;
    if (address - (uintptr_t)image >= segments[1]->size) return NULL;
    for (uint32_t i = 0; i < symtab[3]; i++) {
        int is_code = (symbols[i].type & 0xee) == 0x0e && symbols[i].section == 1;
        if (is_code && symbols[i].value <= at && symbols[i].value > found) found = symbols[i].value;
    }
    return found ? (void *)(found + slide()) : NULL;
}

/* The description of the frame of a function; null if its frame is the usual one. */
static const uint8_t *description_of(uintptr_t address) {
    uint32_t size;
    for (const uint8_t *at = frames; at && at < frames + frame_bytes; at += 4 + size) {
        memcpy(&size, at, sizeof size);
        int64_t words[2];
        memcpy(words, at + 8, sizeof words);
        uint32_t to_common;
        memcpy(&to_common, at + 4, sizeof to_common);
        uintptr_t start = (uintptr_t)(at + 8) + (uintptr_t)words[0];
        if (to_common && address >= start && address < start + (uint64_t)words[1]) return at;
    }
    return NULL;
}

#if defined(__x86_64__)
enum { FRAME_POINTER = 6, RETURN_ADDRESS = 16, PUSHED_BY_CALL = 8 };
#else
enum { FRAME_POINTER = 29, RETURN_ADDRESS = 30, PUSHED_BY_CALL = 0 };
#endif

/* Where the caller's stack pointer and registers are. */
struct rules {
    int by_frame;
    uint64_t offset;
    /* Bytes below the caller's stack pointer, 0 if the register still has its value. */
    uint64_t saved_frame, saved_address;
};

static void note_saved(struct rules *rules, uint64_t number, uint64_t distance) {
    if (number == FRAME_POINTER) rules->saved_frame = distance;
    if (number == RETURN_ADDRESS) rules->saved_address = distance;
}

/* Goes to the caller by the description: the operations that tec and Clang write. */
static void step_out(struct context *context, const uint8_t *description) {
    uint32_t size;
    memcpy(&size, description, sizeof size);
    int64_t relative;
    memcpy(&relative, description + 8, sizeof relative);
    uintptr_t at = (uintptr_t)(description + 8) + (uintptr_t)relative;
    struct rules now = {0, PUSHED_BY_CALL, 0, PUSHED_BY_CALL}, remembered = now;
    const uint8_t *byte = description + 25, *end = description + 4 + size;
    while (byte < end && at <= context->address) {
        uint8_t operation = *byte++, low = operation & 0x3f;
        switch (operation >> 6) {
        case 1: at += low; continue;
        case 2: note_saved(&now, low, 8 * number(&byte)); continue;
        case 3: note_saved(&now, low, low == RETURN_ADDRESS ? PUSHED_BY_CALL : 0); continue;
        }
        switch (operation) {
        case 0x00: break;
        case 0x02: at += *byte++; break;
        case 0x03: at += byte[0] + ((uintptr_t)byte[1] << 8), byte += 2; break;
        case 0x05: low = *byte++, note_saved(&now, low, 8 * number(&byte)); break;
        case 0x0a: remembered = now; break;
        case 0x0b: now = remembered; break;
        case 0x0c: now.by_frame = *byte++ == FRAME_POINTER, now.offset = number(&byte); break;
        case 0x0d: now.by_frame = *byte++ == FRAME_POINTER; break;
        case 0x0e: now.offset = number(&byte); break;
        default: fail("an operation of __eh_frame", "of another kind");
        }
    }
    uintptr_t caller = (now.by_frame ? context->frame : context->stack) + now.offset;
    if (!now.saved_address) fail("a call", "without a return address");
    context->address = *(uintptr_t *)(caller - now.saved_address);
    if (now.saved_frame) context->frame = *(uintptr_t *)(caller - now.saved_frame);
    context->stack = caller;
    described++;
}

static int backtrace(trace_function *visit, void *data) {
    uintptr_t *frame = __builtin_frame_address(0);
    struct context context = {frame[1], (uintptr_t)(frame + 2), frame[0]};
    /* The loader itself has no symbols in the image. */
    while (function_of(context.address) && !visit(&context, data)) {
        const uint8_t *description = description_of(context.address - 1);
        if (description) {
            step_out(&context, description);
            continue;
        }
        frame = (uintptr_t *)context.frame;
        context = (struct context){frame[1], (uintptr_t)(frame + 2), frame[0]};
    }
    return 5;
}

int main(int argc, char **argv) {
    if (argc != 2) fail("usage:", "macho_loader PROGRAM");
    standard_error = stderr;
    main_function *program = load(argv[1]);
    int result = program(argc - 1, argv + 1);
    while (exits) exits--, at_exit[exits].run(at_exit[exits].data);
    fflush(stdout);
    fprintf(stderr, "%d frames of __eh_frame\n", described);
    return result;
}
