/* Declarations of the runtime: the layouts of tvm-ffi and DLPack, the signature blob that the
 * compiler writes for every kernel, and the functions that compiled code calls.
 *
 * The runtime is compiled for the baseline instruction set. It calls mmap, munmap, getenv, syscall
 * and clock_gettime of the C library, and refers weakly to threads, dlopen, dlsym and libtvm_ffi;
 * on Windows it calls kernel32, on macOS libSystem. It uses no floating-point library. */
#ifndef TEC_RUNTIME_H
#define TEC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* INTERNAL: called by compiled code of the same module; not exported. EXPORTED: exported to the
 * host; weak, because several modules may be linked into one program. Objects for Windows have no
 * such symbols: a DLL exports what its author lists, and nothing is weak. */
#if defined(_WIN32)
#define INTERNAL
#define EXPORTED static __attribute__((unused))
#else
#define INTERNAL __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default"), weak))
#endif
/* For one variable at least, so that a module in ELF always has a .data section. */
#if defined(__ELF__)
#define IN_DATA __attribute__((section(".data")))
#else
#define IN_DATA
#endif
/* Not on the path of a call that succeeds. */
#define COLD __attribute__((cold, noinline))

/* ---- layouts of tvm-ffi and DLPack ---- */

enum {
    TYPE_NONE = 0,
    TYPE_INT = 1,
    TYPE_BOOL = 2,
    TYPE_FLOAT = 3,
    TYPE_POINTER = 4,
    TYPE_DLTENSOR = 7,
    TYPE_TENSOR = 70,
    TENSOR_OFFSET = 24 /* of the DLTensor in a Tensor object */
};

enum { DEVICE_CPU = 1, DEVICE_CUDA = 2 };

struct any {
    int32_t type;
    uint32_t small_length;
    union {
        int64_t integer;
        double real;
        const void *pointer;
    } value;
};

struct tensor {
    char *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint32_t dtype; /* code | bits << 8 | lanes << 16 */
    const int64_t *shape;
    const int64_t *strides; /* in elements; may be null */
    uint64_t byte_offset;
};

/* ---- the signature blob; offsets are relative to its start, so it needs no relocations ---- */

struct signature {
    uint32_t features;  /* CPU features that the kernel requires, as bits of tec_rt_cpu */
    uint32_t params;    /* number of raw parameters */
    uint32_t args;      /* number of arguments of the checked entries */
    uint32_t messages;  /* number of messages of the kernel's own checks */
    uint32_t target;    /* offset: name of the target */
    uint32_t text;      /* offset: `add(a: float32[100], ...)` */
    uint32_t param_at;  /* offset: struct param [params] */
    uint32_t message_at; /* offset: uint32_t [messages], offsets of texts */
    uint32_t device;     /* device type of the tensors: DEVICE_CPU, DEVICE_CUDA */
    uint32_t device_slot; /* on CUDA: the slot of the device number */
};

enum { KIND_TENSOR = 0, KIND_SCALAR = 1, KIND_RUNTIME = 2 };

enum { CLASS_SIGNED = 0, CLASS_UNSIGNED = 1, CLASS_FLOAT = 2, CLASS_BFLOAT = 4, CLASS_BOOL = 6 };
/* DLPack types as words. */
enum { DTYPE_UINT8 = 0x10801, DTYPE_E4M3 = 0x1080a, DTYPE_E5M2 = 0x1080c };

enum { OUTPUT_IN_PLACE = 2 /* an `inout` tensor; 1: an output */ };

struct param {
    uint32_t name;    /* offset */
    uint32_t dtype;   /* as in struct tensor; a scalar's class and width too */
    int32_t arg;      /* index of the checked entries' argument, -1 if read from a shape */
    uint8_t kind;
    uint8_t output; /* whether it is written */
    uint16_t alignment; /* of a tensor, in bytes */
    uint32_t ndim;
    uint32_t extent_at; /* offset: struct extent [ndim] */
    uint32_t stride_at; /* offset: struct extent [ndim], of strides; 0: it must be contiguous */
};

/* The check of an extent. */
enum {
    EXTENT_CONST = 0,  /* value */
    EXTENT_BINDS = 1,  /* any number; stored in slot `value`, a run-time integer */
    EXTENT_EQUALS = 2, /* the number in slot `value`, which an earlier dimension has set */
    EXTENT_ACTUAL = 3  /* any number; stored in slot `value`, the kernel's own check compares it */
};

struct extent {
    int64_t value;
    uint32_t kind;
    uint32_t unused;
};

/* The variants of a module for several CPUs; offsets are relative to its start. */
struct variants {
    uint32_t variants; /* number of variants, the most capable one first */
    uint32_t targets;  /* number of targets that TEC_MAX_TARGET can name, after the variants */
};

struct variant {
    uint32_t name;     /* offset: name of the target */
    uint32_t features; /* CPU features that it requires, as bits of tec_rt_cpu */
    uint32_t more;     /* features that its name may be extended by, `+vnni` */
};

/* The layouts that `src/codegen/entry` writes byte by byte or reads at constant offsets. */
_Static_assert(sizeof(struct any) == 16, "an argument of tvm-ffi");
_Static_assert(sizeof(struct tensor) == 48, "a DLTensor");
_Static_assert(__builtin_offsetof(struct tensor, byte_offset) == 40, "a DLTensor");
_Static_assert(sizeof(struct signature) == 40, "HEADER of plan.rs");
_Static_assert(sizeof(struct param) == 28, "PARAM of plan.rs");
_Static_assert(sizeof(struct extent) == 16, "EXTENT of plan.rs");
_Static_assert(sizeof(struct variants) == 8, "HEADER of dispatch.rs");
_Static_assert(sizeof(struct variant) == 12, "ENTRY of dispatch.rs");

/* Room for the value of an environment variable. */
enum { VARIABLE_BYTES = 128 };

/* ---- called by compiled code ---- */

/* Features of this CPU; CPU_KNOWN is set once they are detected. */
extern INTERNAL uint32_t tec_rt_cpu;
#define CPU_KNOWN 0x80000000u

/* The complete check of a call (docs/ABI.md, "What the checked entries check"). On success writes
 * the slots and returns 0: one for each raw parameter, one for each ACTUAL extent, on CUDA one for
 * the device number. Else raises an error and returns -1. */
INTERNAL int32_t tec_rt_check_packed(const struct signature *, const struct any *args,
                                     int32_t num_args, uint64_t *slots);
INTERNAL int32_t tec_rt_check_dl(const struct signature *, const uint64_t *args, uint64_t *slots);
/* Chooses the first variant that this CPU can run and TEC_MAX_TARGET permits, and stores 1 + its
 * position in `selected`. Returns 0, or -1 after raising an error; `sig` may be null. */
INTERNAL int32_t tec_rt_select_variant(const struct variants *, uint32_t *selected,
                                       const struct signature *, int32_t packed);
/* Failure codes of the body of a kernel or of a task. */
enum { FAILED_MEMORY = 1, FAILED_HOST = 2, FAILED_CUDA = 3 };
/* Raise the error for a result of a kernel's own check (1 + number of the message, bit 30 set on
 * overflow) or of its body, and return -1. */
INTERNAL int32_t tec_rt_fail_check(const struct signature *, int32_t code, const int64_t *values,
                                   int32_t packed);
INTERNAL int32_t tec_rt_fail_body(const struct signature *, int32_t code, int32_t packed);
/* Returns a text from a packed function. */
INTERNAL int32_t tec_rt_return_text(const char *text, uint64_t length, struct any *ret);
INTERNAL const char *tec_rt_last_error(void);

/* Sets the default floating-point mode. Returns 0 if it was set already, else the mode for
 * _leave. */
INTERNAL uint32_t tec_rt_fp_enter(void);
INTERNAL void tec_rt_fp_leave(uint32_t saved);

/* Returns 1 if all elements, at least 16 integers of 8 to 64 bits, are from 0 to extent - 1.
 * Returns 0 if one is not, or if the test does not tell. */
INTERNAL int32_t tec_rt_all_below(const void *data, int64_t count, int32_t bits, int32_t is_signed,
                                  int64_t extent);

INTERNAL void *tec_rt_workspace_acquire(uint64_t bytes);
INTERNAL void tec_rt_workspace_release(void *memory);

INTERNAL void tec_rt_set_num_threads(int32_t threads);
INTERNAL int32_t tec_rt_num_threads(void);
typedef int32_t (*tec_task)(void *data, int64_t begin, int64_t end);
typedef int32_t (*tec_parallel_for)(tec_task task, void *data, int64_t n, void *user);
INTERNAL void tec_rt_set_parallel_for(tec_parallel_for run, void *user);
/* Runs the iterations 0 .. n of a parallel loop. Returns 0 or the code of a failure. `steps` is
 * about the number of instructions of an iteration, 0 if it is not known. */
INTERNAL int32_t tec_rt_parallel_for(tec_task task, void *closure, int64_t n, int64_t steps);

/* ---- modules for NVIDIA GPUs (cuda.c) ---- */

struct cuda_call;
/* Launch a kernel; return the stream of a packed call; copy an input that the kernel's own checks
 * read, to be released like temporaries. Failures are raised before their code is returned. */
INTERNAL int32_t tec_rt_cuda_launch(const struct cuda_call *);
INTERNAL void *tec_rt_cuda_stream(int32_t device);
INTERNAL int32_t tec_rt_cuda_fetch(const struct cuda_call *, uint64_t address, uint64_t bytes,
                                   void **copy);

#endif
