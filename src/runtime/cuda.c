/* Launches the kernels of a module for NVIDIA GPUs through the CUDA driver. The driver is opened by
 * the first call, so CUDA is needed neither to build a module nor to load it. Before: the blob of
 * the kernel's launches, the words of its parameters, and the launch parameters that compiled code
 * computed. After: all launches are enqueued on the caller's stream, and none is awaited.
 *
 * The PTX is loaded (and compiled by the driver) once for each context and stays until the module
 * is unloaded. The context is the caller's current one if it belongs to the device of the tensors,
 * else the device's primary context, which is current during the call.
 *
 * When the process exits, nothing is unloaded: other threads may still call, and the driver frees
 * everything itself. */
#include "tec_runtime.h"

#include "cuda_driver.c"

/* ---- loaded modules ---- */

/* A module in a context. Destroying a context, or resetting a primary one, unloads all that was
 * loaded there, and another context may get its address. So each has an allocation in its context,
 * the mark: memory is freed with its context, and the driver gives the id of an allocation to no
 * other one in the same process. So if the id of the mark is still the one in `id`, the module is
 * still loaded.
 *
 * An entry stays in the list and is reused for another context when its own is destroyed. `id` is 0
 * while the other fields change. */
struct loaded {
    struct loaded *next;
    uint64_t bytes; /* of this struct */
    uint64_t id;    /* of the mark's allocation */
    cu_address mark;
    cu_context context;
    cu_module module;
    cu_pool pool;          /* for temporaries; null if the device has no pools */
    uint32_t shared_bytes; /* the most of a block on this GPU */
    cu_function functions[];
};

enum { MAX_DEVICES = 64 };

/* The primary contexts that this module retains, by device. */
static cu_context primary[MAX_DEVICES];

/* A shared object has one PTX text, a program may have several; each has its own list. The lists in
 * use are linked, for unloading. */
struct cuda_state {
    struct loaded *first;
    struct cuda_state *next;
};

static struct cuda_state *states;

/* Reads the current id of the mark's address; 0 if nothing is allocated there. */
static cu_result number_of_mark(const struct loaded *loaded, uint64_t *number) {
    *number = 0;
    cu_address mark = __atomic_load_n(&loaded->mark, __ATOMIC_RELAXED);
    cu_result result = driver.pointer_attribute(number, CU_BUFFER_ID, mark);
    if (result) *number = 0;
    return result == CU_INVALID_VALUE ? 0 : result;
}

static COLD void unload_all(void) {
    for (struct cuda_state *state = states; state; state = state->next) {
        for (struct loaded *one = state->first, *next; one; one = next) {
            next = one->next;
            uint64_t number = 0;
            cu_context popped;
            int there = one->id && !number_of_mark(one, &number) && number == one->id;
            if (there && !driver.context_push(one->context)) {
                driver.free(one->mark);
                driver.module_unload(one->module);
                if (one->pool) driver.pool_destroy(one->pool);
                driver.context_pop(&popped);
            }
            munmap(one, one->bytes);
        }
        state->first = 0;
    }
    for (int32_t i = 0; i < MAX_DEVICES; i++) {
        if (primary[i]) driver.primary_release(i);
        primary[i] = 0;
    }
}

/* Tells the exit of the process from the unloading of this shared object. On exit, `note_exit` runs
 * before the destructors. On unloading, the destructor removes it by `unload_key`, which identifies
 * this object. */
extern __attribute__((weak, visibility("default"))) int __cxa_atexit(void (*)(void *), void *,
                                                                     void *);
extern __attribute__((weak, visibility("default"))) void __cxa_finalize(void *);
static char unload_key;
static uint32_t exit_watched, exiting;

static COLD void note_exit(void *unused) {
    (void)unused;
    exiting = 1;
}

/* Runs before anything is loaded. The lock is held. */
static COLD void watch_exit(void) {
    if (exit_watched || !__cxa_atexit || !__cxa_finalize) return;
    exit_watched = __cxa_atexit(note_exit, 0, &unload_key) == 0;
}

static __attribute__((destructor)) void finalize_cuda(void) {
    if (!exit_watched || exiting) return;
    __cxa_finalize(&unload_key); /* else `exit` would call the unloaded `note_exit` */
    unload_all();
}

/* ---- a call ---- */

/* The kind of the argument for a parameter of an entry. */
enum { CUDA_PARAM = 0, CUDA_WORKSPACE = 1, CUDA_NUMBER = 2 };

struct cuda_param {
    uint32_t kind;
    uint32_t index; /* of the word, temporary or number */
};

struct cuda_launch {
    uint32_t name; /* offset */
    uint32_t function; /* in `loaded` */
    uint32_t block[3];
    uint32_t dynamic_shared;
    uint32_t grid; /* the first of three numbers */
    uint32_t params;
    uint32_t param_at; /* offset: struct cuda_param [params] */
};

/* The blob of a kernel; offsets count from its start. */
struct cuda_kernel {
    uint32_t capability; /* 80: the least compute capability, times 10 */
    uint32_t exact;      /* whether the GPU must have exactly this capability */
    uint32_t functions;  /* of the whole module */
    uint32_t name_at;    /* offset: uint32_t [functions], offsets of names */
    uint32_t workspaces; /* the first numbers are their bytes */
    uint32_t launches;
    uint32_t launch_at; /* offset: struct cuda_launch [launches] */
    uint32_t dynamic_at; /* offset: uint32_t [functions], bytes of dynamic shared memory */
};

/* Written by compiled code. `fetch` needs only the signature, stream, device and `packed`. */
struct cuda_call {
    struct cuda_state *state;
    const struct cuda_kernel *kernel;
    const struct signature *sig;
    const char *ptx;
    const uint64_t *words;   /* the raw parameters */
    const int64_t *numbers;  /* the launch parameters */
    cu_address *temporaries; /* buffer for their addresses */
    const void **values;     /* buffer for the parameters of a launch */
    cu_stream stream;
    int32_t device; /* -1: the device of the current context */
    int32_t packed;
};

/* The layouts that `src/codegen/entry/launch.rs` writes. */
_Static_assert(sizeof(struct cuda_param) == 8, "PARAM");
_Static_assert(sizeof(struct cuda_launch) == 36, "LAUNCH");
_Static_assert(sizeof(struct cuda_kernel) == 32, "HEADER");
_Static_assert(__builtin_offsetof(struct cuda_call, device) == 72, "call::DEVICE");
_Static_assert(sizeof(struct cuda_call) == 80, "call::SIZE");
_Static_assert(sizeof(struct cuda_state) == 16, "the state of a text");

static const void *blob_at(const struct cuda_call *call, uint32_t offset) {
    return (const char *)call->kernel + offset;
}

static COLD int32_t refuse_cuda(struct message *m, const struct cuda_call *call,
                                const char *kind, int32_t code) {
    refuse(m, call->sig, kind, call->packed);
    return code;
}

/* Raises Raises "`what` `name`: the driver's reason"; `name` may be null. */
static COLD int32_t fail_cuda(const struct cuda_call *call, const char *what, const char *name,
                              cu_result result) {
    struct message m = {.length = 0};
    put(&m, what);
    if (name) {
        put(&m, " `");
        put(&m, name);
        put(&m, "`");
    }
    put(&m, ": ");
    put_result(&m, result);
    int memory = result == CU_OUT_OF_MEMORY;
    return refuse_cuda(&m, call, memory ? "MemoryError" : "RuntimeError", FAILED_CUDA);
}

/* ---- contexts ---- */

static COLD int32_t retain_primary(const struct cuda_call *call, int32_t device,
                                   cu_context *context) {
    cu_device handle;
    cu_result result = 0;
    lock_cuda();
    *context = primary[device];
    if (!*context) {
        watch_exit();
        result = driver.device_get(&handle, device);
        if (!result) result = driver.primary_retain(context, handle);
        if (!result) __atomic_store_n(&primary[device], *context, __ATOMIC_RELEASE);
    }
    unlock_cuda();
    return result ? fail_cuda(call, "no context on the device", 0, result) : 0;
}

/* Makes a context of the call's device current. `*pushed` is null if it was current already. */
static int32_t enter_context(const struct cuda_call *call, cu_context *context,
                             cu_context *pushed) {
    cu_device device = -1;
    *pushed = 0;
    cu_result result = driver.context_current(context);
    if (!result && *context) result = driver.context_device(&device);
    if (result) return fail_cuda(call, "the current context", 0, result);
    if (*context && (call->device < 0 || call->device == device)) return 0;
    int32_t wanted = call->device < 0 ? 0 : call->device;
    if (wanted >= MAX_DEVICES) {
        struct message m = {.length = 0};
        put(&m, "a module serves the devices cuda:0 to cuda:63, not cuda:");
        put_int(&m, wanted);
        return refuse_cuda(&m, call, "ValueError", FAILED_CUDA);
    }
    *context = __atomic_load_n(&primary[wanted], __ATOMIC_ACQUIRE);
    if (!*context) {
        int32_t failed = retain_primary(call, wanted, context);
        if (failed) return failed;
    }
    result = driver.context_push(*context);
    if (result) return fail_cuda(call, "the context of the device", 0, result);
    *pushed = *context;
    return 0;
}

static void leave_context(cu_context pushed) {
    cu_context popped;
    if (pushed) driver.context_pop(&popped);
}

/* ---- loading the PTX ---- */

/* Requires that the device has the compute capability of the module's target. */
static COLD int32_t check_capability(const struct cuda_call *call, cu_device device) {
    int32_t major = 0, minor = 0;
    cu_result result = driver.device_attribute(&major, CU_CAPABILITY_MAJOR, device);
    if (!result) result = driver.device_attribute(&minor, CU_CAPABILITY_MINOR, device);
    if (result) return fail_cuda(call, "the device's compute capability", 0, result);
    uint32_t has = (uint32_t)(10 * major + minor), wants = call->kernel->capability;
    if (call->kernel->exact ? has == wants : has >= wants) return 0;
    struct message m = {.length = 0};
    put(&m, "this GPU has compute capability ");
    put_int(&m, major);
    put(&m, ".");
    put_int(&m, minor);
    put(&m, ": the module was compiled for target ");
    put(&m, text_at(call->sig, call->sig->target));
    return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
}

static COLD int32_t load_ptx(const struct cuda_call *call, cu_module *module) {
    char log[1024];
    int32_t options[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)sizeof log};
    log[0] = 0;
    cu_result result = driver.module_load(module, call->ptx, 2, options, values);
    if (!result) return 0;
    if (result == CU_OUT_OF_MEMORY) return fail_cuda(call, "loading the PTX", 0, result);
    struct message m = {.length = 0};
    put(&m, "the CUDA driver refuses the PTX of the module: ");
    put_result(&m, result);
    log[sizeof log - 1] = 0;
    if (log[0]) put(&m, ": ");
    uint32_t length = 0;
    while (log[length]) length++;
    while (length && (log[length - 1] == '\n' || log[length - 1] == ' ')) log[--length] = 0;
    put(&m, log);
    return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
}

/* A function that needs more shared memory than this GPU has is refused only when it is launched;
 * the others work. */
static COLD int32_t find_functions(const struct cuda_call *call, struct loaded *loaded) {
    const uint32_t *names = blob_at(call, call->kernel->name_at);
    const uint32_t *dynamic = blob_at(call, call->kernel->dynamic_at);
    for (uint32_t i = 0; i < call->kernel->functions; i++) {
        const char *name = blob_at(call, names[i]);
        cu_function *function = &loaded->functions[i];
        cu_result result = driver.module_function(function, loaded->module, name);
        if (result) return fail_cuda(call, "no kernel", name, result);
        if (!dynamic[i] || dynamic[i] > loaded->shared_bytes) continue;
        result = driver.function_attribute(*function, CU_MAX_DYNAMIC_SHARED, (int32_t)dynamic[i]);
        if (result) return fail_cuda(call, "shared memory of kernel", name, result);
    }
    return 0;
}

/* Makes a memory pool for the module, which keeps memory between calls. Without one, each call
 * allocates and frees its temporaries and waits for its kernels. */
static COLD cu_pool make_pool(cu_device device) {
    int32_t has = 0;
    if (!driver.pool_create || !driver.pool_destroy || !driver.pool_set || !driver.pool_alloc
        || !driver.pool_free || driver.device_attribute(&has, CU_HAS_MEMORY_POOLS, device)
        || !has) {
        return 0;
    }
    struct pool_properties properties = {
        .allocation = CU_ALLOCATION_PINNED, .location = CU_LOCATION_DEVICE, .device = device};
    cu_pool pool = 0;
    uint64_t keep = UINT64_MAX;
    if (driver.pool_create(&pool, &properties)) return 0;
    driver.pool_set(pool, CU_RELEASE_THRESHOLD, &keep);
    return pool;
}

/* Allocates the mark in the current context and reads its id. */
static COLD int32_t make_mark(const struct cuda_call *call, cu_address *mark, uint64_t *id) {
    cu_result result = driver.alloc(mark, 1);
    if (!result) {
        result = driver.pointer_attribute(id, CU_BUFFER_ID, *mark);
        if (result) driver.free(*mark);
    }
    return result ? fail_cuda(call, "memory in the context", 0, result) : 0;
}

/* Loads the module into the current context; the lock is held. */
static COLD int32_t load_into(const struct cuda_call *call, cu_context context,
                              struct loaded *loaded) {
    cu_device device;
    int32_t shared = 0;
    cu_result result = driver.context_device(&device);
    if (result) return fail_cuda(call, "the current context", 0, result);
    int32_t failed = check_capability(call, device);
    if (failed) return failed;
    result = driver.device_attribute(&shared, CU_MAX_SHARED_OF_BLOCK, device);
    if (result) return fail_cuda(call, "the device's shared memory", 0, result);
    watch_exit();
    loaded->shared_bytes = (uint32_t)shared;
    failed = load_ptx(call, &loaded->module);
    if (failed) return failed;
    cu_address mark;
    uint64_t id;
    failed = find_functions(call, loaded);
    if (!failed) failed = make_mark(call, &mark, &id);
    if (failed) {
        driver.module_unload(loaded->module);
        return failed;
    }
    loaded->pool = make_pool(device);
    __atomic_store_n(&loaded->context, context, __ATOMIC_RELAXED);
    __atomic_store_n(&loaded->mark, mark, __ATOMIC_RELAXED);
    __atomic_store_n(&loaded->id, id, __ATOMIC_RELEASE);
    return 0;
}

/* Finds the module loaded in a context; null if there is none. */
static int32_t find_loaded(const struct cuda_call *call, cu_context context,
                           struct loaded **found) {
    struct loaded *one = __atomic_load_n(&call->state->first, __ATOMIC_ACQUIRE);
    *found = 0;
    for (; one; one = one->next) {
        /* `id` is read first: a thread that sees a new id also sees its context. */
        uint64_t id = __atomic_load_n(&one->id, __ATOMIC_ACQUIRE), number;
        if (!id || __atomic_load_n(&one->context, __ATOMIC_RELAXED) != context) continue;
        cu_result result = number_of_mark(one, &number);
        if (result) return fail_cuda(call, "the CUDA context", 0, result);
        if (number != id) continue;
        *found = one;
        return 0;
    }
    return 0;
}

/* Returns an entry for a loaded module: that of a destroyed context, or a new one. The lock is
 * held. The state of a destroyed context's pool is unknown, so the pool is not destroyed. */
static COLD struct loaded *find_room(const struct cuda_call *call) {
    enum { READ_WRITE = 3, PRIVATE_ANONYMOUS = 0x22 };
    struct cuda_state *state = call->state;
    for (struct loaded *one = state->first; one; one = one->next) {
        uint64_t number;
        if (one->id && (number_of_mark(one, &number) || number == one->id)) continue;
        __atomic_store_n(&one->id, 0, __ATOMIC_RELEASE);
        return one;
    }
    uint64_t bytes = sizeof(struct loaded) + call->kernel->functions * sizeof(cu_function);
    struct loaded *room = mmap(0, bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
    if (room == (void *)-1) return 0;
    if (!state->first) {
        state->next = states;
        states = state;
    }
    room->next = state->first;
    room->bytes = bytes;
    __atomic_store_n(&state->first, room, __ATOMIC_RELEASE);
    return room;
}

static COLD int32_t load_module(const struct cuda_call *call, cu_context context,
                                struct loaded **found) {
    lock_cuda();
    int32_t failed = find_loaded(call, context, found);
    if (!failed && !*found) {
        struct loaded *room = find_room(call);
        failed = room ? load_into(call, context, room)
                      : fail_cuda(call, "loading the PTX", 0, CU_OUT_OF_MEMORY);
        if (!failed) *found = room;
    }
    unlock_cuda();
    return failed;
}

/* ---- temporaries ---- */

enum { TEMPORARY_ALIGNMENT = 256 };

/* Bytes of all temporaries; -1 on overflow. */
static int64_t temporary_bytes(const struct cuda_call *call) {
    int64_t total = 0;
    for (uint32_t i = 0; i < call->kernel->workspaces; i++) {
        int64_t bytes = call->numbers[i];
        if (bytes < 0 || bytes > INT64_MAX - TEMPORARY_ALIGNMENT - total) return -1;
        total += (bytes + TEMPORARY_ALIGNMENT - 1) / TEMPORARY_ALIGNMENT * TEMPORARY_ALIGNMENT;
    }
    return total;
}

static COLD int32_t fail_temporaries(const struct cuda_call *call, int64_t bytes,
                                     cu_result result) {
    struct message m = {.length = 0};
    put(&m, "out of memory for the temporary tensors");
    if (bytes > 0) {
        put(&m, ", ");
        put_int(&m, bytes);
        put(&m, " bytes");
    }
    put(&m, ": ");
    put_result(&m, result);
    return refuse_cuda(&m, call, "MemoryError", FAILED_MEMORY);
}

static int32_t allocate_temporaries(const struct cuda_call *call, const struct loaded *loaded,
                                    int64_t bytes, cu_address *address) {
    *address = 0;
    if (bytes == 0) return 0;
    if (bytes < 0) return fail_temporaries(call, bytes, CU_OUT_OF_MEMORY);
    cu_result result = loaded->pool
        ? driver.pool_alloc(address, (size_t)bytes, loaded->pool, call->stream)
        : driver.alloc(address, (size_t)bytes);
    if (result == CU_OUT_OF_MEMORY) return fail_temporaries(call, bytes, result);
    return result ? fail_cuda(call, "memory for the temporary tensors", 0, result) : 0;
}

static cu_result free_temporaries(const struct cuda_call *call, const struct loaded *loaded,
                                  cu_address address) {
    cu_result result;
    if (!address) return 0;
    if (loaded->pool) {
        result = driver.pool_free(address, call->stream);
    } else {
        /* The kernels that use the memory must have ended. */
        result = driver.stream_wait(call->stream);
        cu_result freed = driver.free(address);
        if (!result) result = freed;
    }
    return result;
}

/* ---- launches ---- */

/* A grid without blocks is skipped, even if another extent of it is too large. */
static int is_empty(const int64_t grid[3]) { return grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0; }

/* Refuses, before the first launch, grids that no GPU allows. */
static int32_t check_grids(const struct cuda_call *call) {
    static const int64_t most[3] = {INT32_MAX, 65535, 65535};
    const struct cuda_launch *launches = blob_at(call, call->kernel->launch_at);
    for (uint32_t i = 0; i < call->kernel->launches; i++) {
        const int64_t *grid = call->numbers + launches[i].grid;
        if (is_empty(grid)) continue;
        for (uint32_t k = 0; k < 3; k++) {
            if (grid[k] <= most[k]) continue;
            struct message m = {.length = 0};
            put(&m, "kernel `");
            put(&m, blob_at(call, launches[i].name));
            put(&m, "` would be ");
            put_int(&m, grid[k]);
            put(&m, " blocks along blockIdx.");
            put_bytes(&m, &"xyz"[k], 1);
            put(&m, ", more than the ");
            put_int(&m, most[k]);
            put(&m, " of a GPU");
            return refuse_cuda(&m, call, "ValueError", FAILED_CUDA);
        }
    }
    return 0;
}

/* Refuses, before the first launch, launches that need more shared memory than this GPU has. */
static int32_t check_shared(const struct cuda_call *call, const struct loaded *loaded) {
    const struct cuda_launch *launches = blob_at(call, call->kernel->launch_at);
    for (uint32_t i = 0; i < call->kernel->launches; i++) {
        uint32_t needed = launches[i].dynamic_shared;
        if (needed <= loaded->shared_bytes) continue;
        char name[256];
        cu_device device;
        struct message m = {.length = 0};
        put(&m, "kernel `");
        put(&m, blob_at(call, launches[i].name));
        put(&m, "` needs ");
        put_int(&m, needed);
        put(&m, " bytes of shared memory for a block, this GPU");
        if (!driver.context_device(&device)
            && !driver.device_name(name, (int32_t)sizeof name, device)) {
            put(&m, " (");
            put(&m, name);
            put(&m, ")");
        }
        put(&m, " has ");
        put_int(&m, loaded->shared_bytes);
        put(&m, ": the key `gpus` of the manifest says which targets have as much");
        return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
    }
    return 0;
}

static int32_t launch_one(const struct cuda_call *call, const struct loaded *loaded,
                          const struct cuda_launch *launch) {
    const int64_t *grid = call->numbers + launch->grid;
    if (is_empty(grid)) return 0;
    const struct cuda_param *params = blob_at(call, launch->param_at);
    const void **values = call->values;
    for (uint32_t i = 0; i < launch->params; i++) {
        uint32_t index = params[i].index;
        switch (params[i].kind) {
        case CUDA_PARAM: values[i] = call->words + index; break;
        case CUDA_WORKSPACE: values[i] = call->temporaries + index; break;
        default: values[i] = call->numbers + index;
        }
    }
    const uint32_t *block = launch->block;
    cu_result result = driver.launch(
        loaded->functions[launch->function], (uint32_t)grid[0], (uint32_t)grid[1],
        (uint32_t)grid[2], block[0], block[1], block[2], launch->dynamic_shared, call->stream,
        (void **)values, 0);
    return result ? fail_cuda(call, "launching kernel", blob_at(call, launch->name), result) : 0;
}

/* Runs all launches in the current context. */
static int32_t run_launches(const struct cuda_call *call, cu_context context) {
    struct loaded *loaded;
    cu_address block;
    int32_t failed = find_loaded(call, context, &loaded);
    if (!failed && !loaded) failed = load_module(call, context, &loaded);
    if (!failed) failed = check_shared(call, loaded);
    if (!failed) {
        failed = allocate_temporaries(call, loaded, temporary_bytes(call), &block);
    }
    if (failed) return failed;
    cu_address next = block;
    for (uint32_t i = 0; i < call->kernel->workspaces; i++) {
        call->temporaries[i] = next;
        uint64_t bytes = (uint64_t)call->numbers[i];
        next += (bytes + TEMPORARY_ALIGNMENT - 1) / TEMPORARY_ALIGNMENT * TEMPORARY_ALIGNMENT;
    }
    const struct cuda_launch *launches = blob_at(call, call->kernel->launch_at);
    for (uint32_t i = 0; i < call->kernel->launches && !failed; i++) {
        failed = launch_one(call, loaded, &launches[i]);
    }
    /* Of two failures the first is reported. */
    cu_result freed = free_temporaries(call, loaded, block);
    if (failed || !freed) return failed;
    return fail_cuda(call, "freeing the temporary tensors", 0, freed);
}

/* Launches a kernel. Returns 0, or the code of a failure, which it has raised. */
INTERNAL int32_t tec_rt_cuda_launch(const struct cuda_call *call) {
    struct message m = {.length = 0};
    if (!cuda_ready(&m)) return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
    cu_context context, pushed;
    int32_t failed = check_grids(call);
    if (!failed) failed = enter_context(call, &context, &pushed);
    if (failed) return failed;
    failed = run_launches(call, context);
    leave_context(pushed);
    return failed;
}

/* ---- the stream of packed calls ---- */

typedef void *get_stream_fn(int32_t device_type, int32_t device);
extern __attribute__((weak, visibility("default"))) get_stream_fn TVMFFIEnvGetStream;

/* Returns tvm-ffi's current stream of this thread, or null, the default stream, if there is
 * none. */
INTERNAL void *tec_rt_cuda_stream(int32_t device) {
    static get_stream_fn *found;
    get_stream_fn *get_stream = TVMFFIEnvGetStream;
    if (!get_stream) get_stream = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!get_stream) {
        /* The library may be loaded later, so each call looks for it again. */
        get_stream = (get_stream_fn *)find(0, "TVMFFIEnvGetStream");
        __atomic_store_n(&found, get_stream, __ATOMIC_RELAXED);
    }
    return get_stream ? get_stream(DEVICE_CUDA, device) : 0;
}

/* ---- inputs that the kernel's own checks read ---- */

/* Copies `bytes` from the device's `address` to host memory, after all work on the stream. Returns
 * 0, or the code of a failure, which it has raised. */
INTERNAL COLD int32_t tec_rt_cuda_fetch(const struct cuda_call *call, uint64_t address,
                                        uint64_t bytes, void **copy) {
    struct message m = {.length = 0};
    *copy = 0;
    if (!cuda_ready(&m)) return refuse_cuda(&m, call, "RuntimeError", FAILED_CUDA);
    void *memory = tec_rt_workspace_acquire(bytes);
    if (!memory) return fail_cuda(call, "a copy of an input", 0, CU_OUT_OF_MEMORY);
    cu_context context, pushed;
    int32_t failed = enter_context(call, &context, &pushed);
    if (!failed) {
        cu_result result = 0;
        if (bytes) result = driver.copy_to_host(memory, address, bytes, call->stream);
        if (!result) result = driver.stream_wait(call->stream);
        if (result) failed = fail_cuda(call, "a copy of an input", 0, result);
        leave_context(pushed);
    }
    if (failed) {
        tec_rt_workspace_release(memory);
        return failed;
    }
    *copy = memory;
    return 0;
}

