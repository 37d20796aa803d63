/* The complete check of a call, driven by the kernel's signature blob, with its messages.
 *
 * Compiled entries try a fast path first and call this file if it refuses: for a wrong argument,
 * but also a valid one that the fast path refuses (an empty tensor, a dimension of extent 1 with an
 * odd stride, an int for a float). So this file decides, in the order of docs/ABI.md, "What the
 * checked entries check". Nothing is written before it accepts. */
#include "tec_runtime.h"

/* A call being checked. */
struct call {
    const struct signature *sig;
    int32_t packed;
    const struct any *cells;   /* if packed */
    const uint64_t *words;     /* else: pointers and the bits of scalars */
    uint64_t *slots;           /* results */
};

static const char *text_at(const struct signature *sig, uint32_t offset) {
    return (const char *)sig + offset;
}

static const struct param *param_of(const struct signature *sig, uint32_t index) {
    return (const struct param *)text_at(sig, sig->param_at) + index;
}

static const struct extent *extents_of(const struct signature *sig, const struct param *param) {
    return (const struct extent *)text_at(sig, param->extent_at);
}

/* ---- texts ---- */

static COLD void put_dtype(struct message *m, uint32_t dtype) {
    static const char names[][8] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    uint32_t code = dtype & 0xff, bits = dtype >> 8 & 0xff, lanes = dtype >> 16;
    if (dtype == DTYPE_E4M3 || dtype == DTYPE_E5M2) {
        put(m, dtype == DTYPE_E4M3 ? "float8_e4m3fn" : "float8_e5m2");
        return;
    }
    if (code >= sizeof names / sizeof names[0]) {
        put(m, "DLPack type code ");
        put_unsigned(m, code);
        put(m, " with bits ");
    } else {
        put(m, names[code]);
    }
    if (code != CLASS_BOOL || bits != 8) put_unsigned(m, bits);
    if (lanes != 1) {
        put(m, "x");
        put_unsigned(m, lanes);
    }
}

/* The type of a packed cell, as Python calls it. */
static COLD const char *type_name(int32_t type) {
    static const char low[][16] = {
        "None",   "int",       "bool",  "float",    "a pointer", "a dtype", "a device",
        "a tensor", "str",     "bytes", "an object", "str",      "bytes",
    };
    static const char high[][16] = {
        "str",   "bytes", "an exception", "a function", "a shape", "a tensor",     "a list",
        "a map", "a module", "an object", "a list",     "a dict",  "an interrupt", "a big int",
    };
    if (type >= 0 && type < (int32_t)(sizeof low / sizeof low[0])) return low[type];
    if (type >= 65 && type < 65 + (int32_t)(sizeof high / sizeof high[0])) return high[type - 65];
    return "an object";
}

static COLD void put_device(struct message *m, int32_t type) {
    static const char names[][16] = {
        "cpu", "cuda", "cuda_host", "opencl", "", "", "vulkan", "metal",
        "vpi", "rocm", "rocm_host", "ext_dev", "cuda_managed",
    };
    if (type >= 1 && type <= (int32_t)(sizeof names / sizeof names[0]) && names[type - 1][0]) {
        put(m, names[type - 1]);
        return;
    }
    put(m, "device type ");
    put_int(m, type);
}

/* "argument 2 `b`: ", counted from 1. */
static COLD void put_argument(struct message *m, const struct call *call, uint32_t index) {
    const struct param *param = param_of(call->sig, index);
    put(m, "argument ");
    put_int(m, param->arg + 1);
    put(m, " `");
    put(m, text_at(call->sig, param->name));
    put(m, "`");
}

static COLD struct message *begin(struct message *m, const struct call *call, uint32_t index) {
    m->length = 0;
    put_argument(m, call, index);
    put(m, ": ");
    return m;
}

static COLD int32_t refuse(struct message *m, const struct signature *sig, const char *kind,
                           int32_t packed) {
    put(m, " (in `");
    put(m, text_at(sig, sig->text));
    put(m, "`)");
    return raise(m, kind, packed);
}

static COLD int32_t refuse_call(struct message *m, const struct call *call, const char *kind) {
    return refuse(m, call->sig, kind, call->packed);
}

/* ---- the CPU and the number of arguments ---- */

#ifdef TEC_CUDA
static int cuda_ready(struct message *m);

static COLD int32_t check_gpu(const struct call *call) {
    struct message m = {.length = 0};
    return cuda_ready(&m) ? 0 : refuse_call(&m, call, "RuntimeError");
}
#else
static int32_t check_gpu(const struct call *call) {
    (void)call;
    return 0;
}
#endif

static COLD void put_features(struct message *m, uint32_t features) {
    const char *separator = "";
    for (uint32_t i = 0; i < FEATURES; i++) {
        if (!(features >> i & 1)) continue;
        put(m, separator);
        put(m, feature_names[i]);
        separator = ", ";
    }
}

static COLD int32_t check_cpu(const struct call *call) {
    uint32_t missing = call->sig->features & ~cpu_features();
    if (!missing) return 0;
    struct message m = {.length = 0};
    put(&m, "this CPU lacks ");
    put_features(&m, missing);
    put(&m, ": the module was compiled for target ");
    put(&m, text_at(call->sig, call->sig->target));
    return refuse_call(&m, call, "RuntimeError");
}

static COLD int32_t check_count(const struct call *call, int32_t num_args) {
    if ((uint32_t)num_args == call->sig->args) return 0;
    struct message m = {.length = 0};
    put(&m, "expected ");
    put_unsigned(&m, call->sig->args);
    put(&m, call->sig->args == 1 ? " argument, got " : " arguments, got ");
    put_int(&m, num_args);
    return refuse_call(&m, call, "TypeError");
}

/* ---- tensors ---- */

/* Returns the argument's DLTensor, or null after raising an error. */
static COLD const struct tensor *tensor_of(const struct call *call, uint32_t index) {
    struct message m;
    const struct param *param = param_of(call->sig, index);
    const char *pointer;
    if (call->packed) {
        const struct any *cell = &call->cells[param->arg];
        if (cell->type != TYPE_TENSOR && cell->type != TYPE_DLTENSOR) {
            put(begin(&m, call, index), "expected a tensor, got ");
            put(&m, type_name(cell->type));
            refuse_call(&m, call, "TypeError");
            return 0;
        }
        pointer = cell->value.pointer;
        if (pointer && cell->type == TYPE_TENSOR) pointer += TENSOR_OFFSET;
    } else {
        pointer = (const char *)(uintptr_t)call->words[param->arg];
    }
    if (!pointer) {
        put(begin(&m, call, index), "the tensor is a null pointer");
        refuse_call(&m, call, "ValueError");
    }
    return (const struct tensor *)pointer;
}

/* Like `tensor_of`, for an argument that passed. */
static const struct tensor *checked_tensor(const struct call *call, uint32_t index) {
    const struct param *param = param_of(call->sig, index);
    if (!call->packed) return (const struct tensor *)(uintptr_t)call->words[param->arg];
    const struct any *cell = &call->cells[param->arg];
    const char *pointer = cell->value.pointer;
    return (const struct tensor *)(cell->type == TYPE_TENSOR ? pointer + TENSOR_OFFSET : pointer);
}

/* The bytes of an element; 1 for elements of 4 bits, two of which share it. */
static uint64_t element_bytes(const struct param *param) {
    return ((param->dtype >> 8 & 0xff) + 7) / 8;
}

/* Whether two elements of a parameter share a byte. */
static int32_t has_nibbles(const struct param *param) {
    return param->kind == KIND_TENSOR && (param->dtype >> 8 & 0xff) == 4;
}

/* Whether a tensor of bytes is given for one of a type that NumPy lacks: floats of 8 bits, or
 * elements of 4 bits, whose last dimension counts bytes then. */
static int32_t gives_bytes(const struct param *param, const struct tensor *tensor) {
    if (tensor->dtype != DTYPE_UINT8) return 0;
    return has_nibbles(param) || param->dtype == DTYPE_E4M3 || param->dtype == DTYPE_E5M2;
}

/* The number of elements of a dimension, for the declared number `expected`. Bytes of 4-bit
 * elements hold twice as many, or one less if an odd number is expected. */
static COLD int64_t extent_of(const struct param *param, const struct tensor *tensor, uint32_t dim,
                              int64_t expected) {
    int64_t extent = tensor->shape[dim];
    if (!has_nibbles(param) || dim + 1 != param->ndim || !gives_bytes(param, tensor)
        || extent < 0 || extent > INT64_MAX / 2) {
        return extent;
    }
    return extent * 2 - (expected == extent * 2 - 1);
}

/* The checks of the strides of a tensor; null if it must be contiguous. */
static const struct extent *strides_of(const struct signature *sig, const struct param *param) {
    if (param->stride_at == 0) return 0;
    return (const struct extent *)text_at(sig, param->stride_at);
}

static COLD int32_t lacks_elements(const struct param *param, const struct tensor *tensor) {
    for (uint32_t k = 0; k < param->ndim; k++) {
        if (tensor->shape[k] == 0) return 1;
    }
    return 0;
}

/* The stride of a dimension in elements. An absent one is that of a contiguous tensor; it does not
 * overflow if the tensor is not empty and its size was checked. */
static COLD int64_t stride_of(const struct tensor *tensor, uint32_t dim) {
    if (tensor->strides) return tensor->strides[dim];
    uint64_t stride = 1;
    for (uint32_t k = (uint32_t)tensor->ndim; --k > dim;) stride *= (uint64_t)tensor->shape[k];
    return (int64_t)stride;
}

/* The memory of a tensor relative to the address of its first element, in bytes: from `low` to
 * before `high`. Returns whether 63 bits count it. */
static COLD int32_t range_of(const struct param *param, const struct tensor *tensor, int64_t *low,
                        int64_t *high) {
    int64_t bytes = (int64_t)element_bytes(param);
    *low = 0;
    *high = bytes;
    for (uint32_t k = 0; k < param->ndim; k++) {
        int64_t offset, stride = stride_of(tensor, k);
        if (tensor->shape[k] <= 1) continue;
        if (__builtin_mul_overflow(tensor->shape[k] - 1, stride, &offset)
            || __builtin_mul_overflow(offset, bytes, &offset)
            || __builtin_add_overflow(offset < 0 ? *low : *high, offset,
                                      offset < 0 ? low : high)) {
            return 0;
        }
    }
    /* They are contiguous. */
    if (has_nibbles(param) && !gives_bytes(param, tensor)) *high = *high / 2 + *high % 2;
    return 1;
}

/* Requires that all tensors of a call are on the GPU of the first one. */
static COLD int32_t check_device_number(const struct call *call, uint32_t index,
                                        const struct tensor *tensor) {
    if (call->sig->device != DEVICE_CUDA) return 0;
    uint64_t *slot = &call->slots[call->sig->device_slot];
    uint32_t first = 0;
    while (param_of(call->sig, first)->kind != KIND_TENSOR) first++;
    if (index == first) *slot = (uint64_t)(int64_t)tensor->device_id;
    if ((int64_t)*slot == tensor->device_id && tensor->device_id >= 0) return 0;
    struct message m;
    if (tensor->device_id < 0) {
        put(begin(&m, call, index), "there is no device cuda:");
        put_int(&m, tensor->device_id);
        return refuse_call(&m, call, "ValueError");
    }
    put(begin(&m, call, index), "expected a tensor on cuda:");
    put_int(&m, (int64_t)*slot);
    put(&m, ", the device of ");
    put_argument(&m, call, first);
    put(&m, ", got one on cuda:");
    put_int(&m, tensor->device_id);
    return refuse_call(&m, call, "ValueError");
}

static COLD int32_t check_kind(const struct call *call, uint32_t index,
                               const struct tensor *tensor) {
    struct message m;
    const struct param *param = param_of(call->sig, index);
    if (tensor->ndim != (int32_t)param->ndim) {
        put(begin(&m, call, index), "expected ");
        put_unsigned(&m, param->ndim);
        put(&m, param->ndim == 1 ? " dimension, got " : " dimensions, got ");
        put_int(&m, tensor->ndim);
        return refuse_call(&m, call, "ValueError");
    }
    if (tensor->dtype != param->dtype && !gives_bytes(param, tensor)) {
        put(begin(&m, call, index), "expected dtype ");
        put_dtype(&m, param->dtype);
        if (has_nibbles(param) || param->dtype == DTYPE_E4M3 || param->dtype == DTYPE_E5M2) {
            put(&m, " or uint8");
        }
        put(&m, ", got ");
        put_dtype(&m, tensor->dtype);
        return refuse_call(&m, call, "TypeError");
    }
    if (tensor->device_type != (int32_t)call->sig->device) {
        int cpu = call->sig->device == DEVICE_CPU;
        put(begin(&m, call, index), "expected a tensor on ");
        put(&m, cpu ? "the CPU, got one on " : "a CUDA device, got one on ");
        put_device(&m, tensor->device_type);
        return refuse_call(&m, call, "ValueError");
    }
    if (check_device_number(call, index, tensor)) return -1;
    if (!tensor->shape && param->ndim != 0) {
        put(begin(&m, call, index), "the shape is a null pointer");
        return refuse_call(&m, call, "ValueError");
    }
    return 0;
}

/* Names the dimension that a run-time integer was read from, for the message about another one that
 * differs. */
static COLD void put_source(struct message *m, const struct call *call, int64_t slot) {
    const struct signature *sig = call->sig;
    for (uint32_t i = 0; i < sig->params; i++) {
        const struct param *param = param_of(sig, i);
        for (uint32_t k = 0; param->kind == KIND_TENSOR && k < param->ndim; k++) {
            const struct extent *extent = extents_of(sig, param) + k;
            if (extent->kind != EXTENT_BINDS || extent->value != slot) continue;
            put(m, " (`");
            put(m, text_at(sig, param_of(sig, (uint32_t)slot)->name));
            put(m, "`, from dimension ");
            put_unsigned(m, k);
            put(m, " of ");
            put_argument(m, call, i);
            put(m, ")");
            return;
        }
    }
}

static COLD int32_t check_shape(const struct call *call, uint32_t index,
                                const struct tensor *tensor) {
    struct message m;
    const struct param *param = param_of(call->sig, index);
    const struct extent *extents = extents_of(call->sig, param);
    for (uint32_t k = 0; k < param->ndim; k++) {
        int64_t expected = 0, extent = tensor->shape[k];
        if (extents[k].kind == EXTENT_CONST) expected = extents[k].value;
        if (extents[k].kind == EXTENT_EQUALS) expected = (int64_t)call->slots[extents[k].value];
        extent = extent_of(param, tensor, k, expected);
        if (extents[k].kind == EXTENT_BINDS || extents[k].kind == EXTENT_ACTUAL) expected = extent;
        if (extent == expected && extent >= 0) {
            if (extents[k].kind == EXTENT_BINDS || extents[k].kind == EXTENT_ACTUAL) {
                call->slots[extents[k].value] = (uint64_t)extent;
            }
            continue;
        }
        begin(&m, call, index);
        if (extent < 0 && extents[k].kind != EXTENT_CONST) {
            put(&m, "the extent of dimension ");
            put_unsigned(&m, k);
            put(&m, " is negative: ");
        } else {
            put(&m, "expected extent ");
            put_int(&m, expected);
            put(&m, " in dimension ");
            put_unsigned(&m, k);
            if (extents[k].kind == EXTENT_EQUALS) put_source(&m, call, extents[k].value);
            put(&m, ", got ");
        }
        put_int(&m, extent);
        if (extent != tensor->shape[k]) {
            put(&m, " in ");
            put_int(&m, tensor->shape[k]);
            put(&m, " bytes");
        }
        return refuse_call(&m, call, "ValueError");
    }
    return 0;
}

/* Checks strides, data and alignment. */
static COLD int32_t check_memory(const struct call *call, uint32_t index,
                                 const struct tensor *tensor) {
    struct message m;
    const struct param *param = param_of(call->sig, index);
    int32_t empty = lacks_elements(param, tensor), view = strides_of(call->sig, param) != 0;
    int64_t expected = 1, bytes = (int64_t)element_bytes(param);
    for (uint32_t k = param->ndim; k-- > 0 && !empty;) {
        int64_t extent = tensor->shape[k];
        if (!view && extent != 1 && tensor->strides && tensor->strides[k] != expected) {
            put(begin(&m, call, index), "expected a contiguous row-major tensor, but the stride of"
                                        " dimension ");
            put_unsigned(&m, k);
            put(&m, " is ");
            put_int(&m, tensor->strides[k]);
            put(&m, " instead of ");
            put_int(&m, expected);
            put(&m, expected == 1 ? " element" : " elements");
            return refuse_call(&m, call, "ValueError");
        }
        if (__builtin_mul_overflow(bytes, extent, &bytes)) {
            put(begin(&m, call, index), "the tensor has more bytes than 63 bits count");
            return refuse_call(&m, call, "ValueError");
        }
        expected *= extent;
    }
    if (!tensor->data && !empty) {
        put(begin(&m, call, index), "the data is a null pointer");
        return refuse_call(&m, call, "ValueError");
    }
    uint64_t address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
    if (!empty && (address & (param->alignment - 1u))) {
        put(begin(&m, call, index), "the data is not aligned to ");
        put_unsigned(&m, param->alignment);
        put(&m, " bytes, the size of ");
        if (param->alignment > element_bytes(param)) {
            put(&m, "vectors of ");
            put_unsigned(&m, param->alignment / element_bytes(param));
            put(&m, " ");
        }
        put_dtype(&m, param->dtype);
        return refuse_call(&m, call, "ValueError");
    }
    call->slots[index] = address;
    return 0;
}

static COLD int32_t check_tensor(const struct call *call, uint32_t index) {
    const struct tensor *tensor = tensor_of(call, index);
    if (!tensor || check_kind(call, index, tensor) || check_shape(call, index, tensor)) return -1;
    return check_memory(call, index, tensor);
}

/* The magnitude of a stride. */
static uint64_t magnitude(int64_t stride) {
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

/* Whether all elements of a tensor have places of their own, because each dimension, ordered by
 * their strides, steps over all elements of those before it. Other strides may give distinct
 * elements, too: {0, 3, 6, 9, 12} + {0, 7, 14} has none twice. */
static COLD int32_t has_distinct_elements(const struct param *param, const struct tensor *tensor) {
    uint64_t done = 0, reach = 1; /* reach: elements that the dimensions in `done` span */
    for (uint32_t n = 0; n < param->ndim; n++) {
        uint32_t next = param->ndim;
        for (uint32_t k = 0; k < param->ndim; k++) {
            if (done >> k & 1 || tensor->shape[k] <= 1) continue;
            if (next == param->ndim
                || magnitude(stride_of(tensor, k)) < magnitude(stride_of(tensor, next))) {
                next = k;
            }
        }
        if (next == param->ndim) return 1;
        uint64_t step = magnitude(stride_of(tensor, next));
        if (step < reach) return 0;
        /* The sizes were checked to fit. */
        reach += step * (uint64_t)(tensor->shape[next] - 1);
        done |= 1ull << next;
    }
    return 1;
}

/* Checks the strides of a tensor that need not be contiguous. */
static COLD int32_t check_view(const struct call *call, uint32_t index,
                               const struct tensor *tensor) {
    struct message m;
    const struct param *param = param_of(call->sig, index);
    const struct extent *strides = strides_of(call->sig, param);
    int32_t empty = lacks_elements(param, tensor);
    for (uint32_t k = 0; k < param->ndim; k++) {
        int64_t stride = empty ? 0 : stride_of(tensor, k), expected = stride;
        if (strides[k].kind == EXTENT_CONST) expected = strides[k].value;
        if (strides[k].kind == EXTENT_EQUALS) expected = (int64_t)call->slots[strides[k].value];
        if (strides[k].kind == EXTENT_BINDS) call->slots[strides[k].value] = (uint64_t)stride;
        /* No element depends on the stride of a dimension of extent 1. */
        if (stride == expected || empty || tensor->shape[k] == 1) continue;
        put(begin(&m, call, index), "expected stride ");
        put_int(&m, expected);
        put(&m, " in dimension ");
        put_unsigned(&m, k);
        if (strides[k].kind == EXTENT_EQUALS) {
            put(&m, " (`");
            put(&m, text_at(call->sig, param_of(call->sig, (uint32_t)strides[k].value)->name));
            put(&m, "`)");
        }
        put(&m, ", got ");
        put_int(&m, stride);
        return refuse_call(&m, call, "ValueError");
    }
    if (empty) return 0;
    int64_t low, high;
    if (param->ndim > 64 || !range_of(param, tensor, &low, &high)) {
        put(begin(&m, call, index), "the tensor spans more bytes than 63 bits count");
        return refuse_call(&m, call, "ValueError");
    }
    if (param->output && !has_distinct_elements(param, tensor)) {
        put(begin(&m, call, index), "by the strides, elements may share memory: each stride must "
                                    "exceed the span of the dimensions with smaller strides");
        return refuse_call(&m, call, "ValueError");
    }
    return 0;
}

/* The dimension with the largest stride; ndim if all extents are 1. */
static COLD uint32_t outermost(const struct param *param, const struct tensor *tensor) {
    uint32_t outer = param->ndim;
    for (uint32_t k = 0; k < param->ndim; k++) {
        if (tensor->shape[k] <= 1) continue;
        if (outer == param->ndim
            || magnitude(stride_of(tensor, k)) > magnitude(stride_of(tensor, outer))) {
            outer = k;
        }
    }
    return outer;
}

/* Whether two tensors lie beside each other in the rows of a larger one, as two slices of its
 * columns do: both step by the same distance in their outermost dimensions, and the rest of both
 * fits into such a step. The ranges of both are in bytes. */
static COLD int32_t are_interleaved(const struct call *call, uint32_t a, uint32_t b,
                                    const uint64_t begin[2], const uint64_t end[2]) {
    uint32_t index[2] = {a, b};
    uint64_t step[2], width[2];
    if (has_nibbles(param_of(call->sig, a)) || has_nibbles(param_of(call->sig, b))) return 0;
    for (uint32_t i = 0; i < 2; i++) {
        const struct param *param = param_of(call->sig, index[i]);
        const struct tensor *tensor = checked_tensor(call, index[i]);
        uint32_t outer = outermost(param, tensor);
        if (outer == param->ndim) return 0;
        step[i] = magnitude(stride_of(tensor, outer)) * element_bytes(param);
        width[i] = end[i] - begin[i] - step[i] * (uint64_t)(tensor->shape[outer] - 1);
    }
    if (step[0] != step[1] || step[0] == 0) return 0;
    uint64_t first = begin[0] <= begin[1] ? 0 : 1, second = 1 - first;
    uint64_t distance = (begin[second] - begin[first]) % step[0];
    return width[first] <= distance && width[second] <= step[0] - distance;
}

/* Requires that no output shares memory with another argument. */
static COLD int32_t check_overlap(const struct call *call) {
    const struct signature *sig = call->sig;
    for (uint32_t i = 0; i < sig->params; i++) {
        const struct param *out = param_of(sig, i);
        if (out->kind != KIND_TENSOR || !out->output) continue;
        for (uint32_t j = 0; j < sig->params; j++) {
            const struct param *other = param_of(sig, j);
            if (other->kind != KIND_TENSOR || (other->output && j >= i)) continue;
            uint32_t index[2] = {i, j};
            uint64_t begin_at[2], end_at[2];
            int32_t empty = 0;
            for (uint32_t one = 0; one < 2; one++) {
                const struct param *param = param_of(sig, index[one]);
                const struct tensor *tensor = checked_tensor(call, index[one]);
                int64_t low, high;
                empty |= lacks_elements(param, tensor);
                if (empty) break;
                /* Checked before. */
                range_of(param, tensor, &low, &high);
                begin_at[one] = call->slots[index[one]] + (uint64_t)low;
                end_at[one] = call->slots[index[one]] + (uint64_t)high;
            }
            if (empty || begin_at[0] >= end_at[1] || begin_at[1] >= end_at[0]
                || are_interleaved(call, i, j, begin_at, end_at)) {
                continue;
            }
            struct message m;
            int32_t in_place = out->output == OUTPUT_IN_PLACE;
            put(begin(&m, call, i), in_place ? "the `inout` tensor" : "the output");
            put(&m, " shares memory with ");
            put_argument(&m, call, j);
            return refuse_call(&m, call, "ValueError");
        }
    }
    return 0;
}

/* ---- scalars of packed calls ---- */

/* Rounds a double to a 16-bit float format, to nearest even. */
static uint16_t round_to_half(double value, uint32_t exponent_bits) {
    union {
        double d;
        uint64_t u;
    } bits = {value};
    uint32_t mantissa_bits = 15 - exponent_bits;
    int32_t bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t infinity = (uint16_t)(((1u << exponent_bits) - 1) << mantissa_bits);
    uint16_t sign = (uint16_t)(bits.u >> 48 & 0x8000);
    int32_t exponent = (int32_t)(bits.u >> 52 & 0x7ff);
    uint64_t mantissa = bits.u & 0xfffffffffffffull;
    if (exponent == 0x7ff) {
        return sign | infinity | (mantissa ? (uint16_t)(1u << (mantissa_bits - 1)) : 0);
    }
    /* Denormal doubles are far below half of the smallest number. */
    if (exponent == 0) return sign;
    mantissa |= 1ull << 52;
    int32_t biased = exponent - 1023 + bias;
    int32_t drop = 52 - (int32_t)mantissa_bits;
    if (biased <= 0) {
        drop += 1 - biased;
        biased = 0;
    }
    if (drop > 54) return sign;
    uint64_t kept = mantissa >> drop, rest = mantissa & ((1ull << drop) - 1);
    uint64_t half = 1ull << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    /* The leading one of a normal number adds to the exponent, as a carry does. */
    uint64_t result = biased == 0 ? kept : ((uint64_t)(biased - 1) << mantissa_bits) + kept;
    return sign | (uint16_t)(result > infinity ? infinity : result);
}

static COLD int32_t refuse_scalar(const struct call *call, uint32_t index, const char *expected,
                                  int32_t type) {
    struct message m;
    put(begin(&m, call, index), "expected ");
    put(&m, expected);
    put(&m, ", got ");
    put(&m, type_name(type));
    return refuse_call(&m, call, "TypeError");
}

static COLD int32_t check_float(const struct call *call, uint32_t index) {
    const struct param *param = param_of(call->sig, index);
    const struct any *cell = &call->cells[param->arg];
    if (cell->type != TYPE_FLOAT && cell->type != TYPE_INT && cell->type != TYPE_BOOL) {
        return refuse_scalar(call, index, "float", cell->type);
    }
    int32_t is_float = cell->type == TYPE_FLOAT;
    double real = is_float ? cell->value.real : (double)cell->value.integer;
    uint32_t bits = param->dtype >> 8 & 0xff;
    union {
        double d;
        float f;
        uint64_t u;
    } slot = {.u = 0};
    if (bits == 64) {
        slot.d = real;
    } else if (bits == 32) {
        slot.f = is_float ? (float)real : (float)cell->value.integer;
    } else {
        slot.u = round_to_half(real, (param->dtype & 0xff) == CLASS_BFLOAT ? 8 : 5);
    }
    call->slots[index] = slot.u;
    return 0;
}

/* Checks an integer or run-time integer. An unsigned one of 64 bits may come as a pointer too,
 * because an integer cell is signed. */
static COLD int32_t check_int(const struct call *call, uint32_t index) {
    const struct param *param = param_of(call->sig, index);
    const struct any *cell = &call->cells[param->arg];
    uint32_t class = param->dtype & 0xff, bits = param->dtype >> 8 & 0xff;
    int64_t value = cell->value.integer;
    call->slots[index] = (uint64_t)value;
    if (class == CLASS_UNSIGNED && bits == 64 && cell->type == TYPE_POINTER) return 0;
    if (cell->type != TYPE_INT && cell->type != TYPE_BOOL) {
        return refuse_scalar(call, index, "int", cell->type);
    }
    int64_t low = 0, high = INT64_MAX;
    if (class == CLASS_SIGNED) {
        low = bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1));
        high = -(low + 1);
    } else if (bits < 64) {
        high = ((int64_t)1 << bits) - 1;
    }
    if (value >= low && value <= high) return 0;
    struct message m;
    put(begin(&m, call, index), "");
    put_int(&m, value);
    put(&m, " does not fit ");
    put_dtype(&m, param->dtype);
    return refuse_call(&m, call, "ValueError");
}

static COLD int32_t check_bool(const struct call *call, uint32_t index) {
    const struct any *cell = &call->cells[param_of(call->sig, index)->arg];
    if (cell->type != TYPE_BOOL && cell->type != TYPE_INT) {
        return refuse_scalar(call, index, "bool", cell->type);
    }
    call->slots[index] = cell->value.integer != 0;
    return 0;
}

static COLD int32_t check_scalar(const struct call *call, uint32_t index) {
    uint32_t class = param_of(call->sig, index)->dtype & 0xff;
    if (!call->packed) {
        uint64_t word = call->words[param_of(call->sig, index)->arg];
        call->slots[index] = class == CLASS_BOOL ? (word & 0xff) != 0 : word;
        return 0;
    }
    if (class == CLASS_FLOAT || class == CLASS_BFLOAT) return check_float(call, index);
    return class == CLASS_BOOL ? check_bool(call, index) : check_int(call, index);
}

/* ---- all checks ---- */

static COLD int32_t check_arguments(const struct call *call) {
    /* A call without tensors runs on the device of the current context. */
    if (call->sig->device == DEVICE_CUDA) call->slots[call->sig->device_slot] = (uint64_t)-1;
    for (uint32_t i = 0; i < call->sig->params; i++) {
        const struct param *param = param_of(call->sig, i);
        if (param->arg < 0) continue;
        if (param->kind == KIND_TENSOR ? check_tensor(call, i) : check_scalar(call, i)) return -1;
    }
    /* A stride may equal an extent of any tensor. */
    for (uint32_t i = 0; i < call->sig->params; i++) {
        const struct param *param = param_of(call->sig, i);
        if (param->kind != KIND_TENSOR || !strides_of(call->sig, param)) continue;
        if (check_view(call, i, checked_tensor(call, i))) return -1;
    }
    return check_overlap(call);
}

INTERNAL COLD int32_t tec_rt_check_packed(const struct signature *sig, const struct any *args,
                                          int32_t num_args, uint64_t *slots) {
    struct call call = {.sig = sig, .packed = 1, .cells = args, .words = 0, .slots = slots};
    if (check_cpu(&call) || check_gpu(&call) || check_count(&call, num_args)) return -1;
    return check_arguments(&call);
}

INTERNAL COLD int32_t tec_rt_check_dl(const struct signature *sig, const uint64_t *args,
                                      uint64_t *slots) {
    struct call call = {.sig = sig, .packed = 0, .cells = 0, .words = args, .slots = slots};
    if (check_cpu(&call) || check_gpu(&call)) return -1;
    return check_arguments(&call);
}

/* The place from which on a text is another one, or null. */
static COLD const char *end_of(const char *text, const char *end) {
    for (; *text; text++) {
        uint32_t same = 0;
        while (text[same] && text[same] == end[same]) same++;
        if (!text[same] && !end[same]) return text;
    }
    return 0;
}

/* Replaces `{0}` to `{3}` in the user's text by the values; after an overflow by `?`. */
INTERNAL COLD int32_t tec_rt_fail_check(const struct signature *sig, int32_t code,
                                        const int64_t *values, int32_t packed) {
    const int32_t overflow = 1 << 30;
    uint32_t index = (uint32_t)(code & ~overflow) - 1;
    const uint32_t *messages = (const uint32_t *)text_at(sig, sig->message_at);
    struct message m = {.length = 0};
    const char *text = index < sig->messages ? text_at(sig, messages[index]) : "";
    const char *const fits = "does not fit 64 bits";
    const char *end = 0;
    if (code & overflow && !end_of(text, fits)) {
        /* An extent that overflows has no sign to report. */
        end = end_of(text, "is negative: {0}");
        if (!end) put(&m, "64-bit overflow in the condition of: ");
    }
    while (*text && text != end) {
        if (text[0] == '{' && text[1] >= '0' && text[1] <= '3' && text[2] == '}') {
            if (code & overflow) {
                put(&m, "?");
            } else {
                put_int(&m, values[text[1] - '0']);
            }
            text += 3;
        } else {
            put_bytes(&m, text++, 1);
        }
    }
    if (end) put(&m, fits);
    return refuse(&m, sig, "ValueError", packed);
}

INTERNAL COLD int32_t tec_rt_fail_body(const struct signature *sig, int32_t code,
                                       int32_t packed) {
    struct message m = {.length = 0};
    if (code == FAILED_HOST) {
        put(&m, "the host's parallel_for failed");
        return refuse(&m, sig, "RuntimeError", packed);
    }
    put(&m, "out of memory for the temporary tensors");
    return refuse(&m, sig, "MemoryError", packed);
}
