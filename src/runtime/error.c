/* Error messages. Packed entries raise them in libtvm_ffi, the others write them to a buffer of the
 * thread. Texts are UTF-8, also if they are truncated. */
#include "tec_runtime.h"

enum { MESSAGE_BYTES = 2048 };

/* A message under construction. */
struct message {
    uint32_t length;
    char text[MESSAGE_BYTES];
};

#if defined(_WIN32)
/* Each thread has a copy of the section .tls$. The compiler's own thread-local variables would need
 * its library, which a program of another compiler lacks. */
static char last_error_of_thread[MESSAGE_BYTES] __attribute__((section(".tls$"), used));
extern uint32_t _tls_index;

static char *own_last_error(void) {
    char **copies, *at;
    __asm__("movq %%gs:0x58, %0" : "=r"(copies));
    __asm__("leaq last_error_of_thread@secrel32(%1), %0" : "=r"(at) : "r"(copies[_tls_index]));
    return at;
}
#define last_error own_last_error()
#else
static _Thread_local char last_error[MESSAGE_BYTES];
#endif

INTERNAL const char *tec_rt_last_error(void) { return last_error; }

EXPORTED const char *tec_last_error(void) { return last_error; }

#ifdef TEC_STATIC
/* Linked into a program by crates/tec-rt, whose errors have types. */
static _Thread_local const char *last_kind;

INTERNAL const char *tec_rt_last_kind(void) { return last_kind; }
#endif

static COLD void put_bytes(struct message *m, const char *text, uint64_t n) {
    for (uint64_t i = 0; i < n && m->length < MESSAGE_BYTES - 1; i++) {
        m->text[m->length++] = text[i];
    }
}

static COLD void put(struct message *m, const char *text) {
    uint64_t n = 0;
    while (text[n]) n++;
    put_bytes(m, text, n);
}

static COLD void put_unsigned(struct message *m, uint64_t value) {
    char digits[20];
    uint32_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    put_bytes(m, digits + at, sizeof digits - at);
}

static COLD void put_int(struct message *m, int64_t value) {
    if (value < 0) put(m, "-");
    put_unsigned(m, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* Terminates the text. A truncated one ends with three dots after a whole character. */
static COLD void finish(struct message *m) {
    if (m->length == MESSAGE_BYTES - 1) {
        m->length -= 4;
        while (m->length && ((uint8_t)m->text[m->length] & 0xc0) == 0x80) m->length--;
        put(m, "...");
    }
    m->text[m->length] = 0;
}

/* ---- libtvm_ffi, used without linking to it ---- */

typedef void raise_fn(const char *kind, const char *message);
struct byte_array {
    const char *data;
    uint64_t size;
};
typedef int32_t make_string_fn(const struct byte_array *, struct any *);

#if !defined(_WIN32) && !defined(__APPLE__)

extern __attribute__((weak, visibility("default"))) raise_fn TVMFFIErrorSetRaisedFromCStr;
extern __attribute__((weak, visibility("default"))) make_string_fn TVMFFIStringFromByteArray;
extern __attribute__((weak, visibility("default"))) void *dlopen(const char *, int);
extern __attribute__((weak, visibility("default"))) void *dlsym(void *, const char *);
extern __attribute__((weak, visibility("default"))) int dlclose(void *);

/* Returns the address that was bound when the module was loaded, or looks it up if the library was
 * loaded later or is not in the global scope. Null in a host without libtvm_ffi. */
static COLD void *find(void *bound, const char *name) {
    enum { LAZY = 1, NOLOAD = 4 };
    if (bound) return bound;
    if (!dlopen || !dlsym) return 0;
    void *library = dlopen("libtvm_ffi.so", LAZY | NOLOAD);
    if (!library) return 0;
    void *address = dlsym(library, name);
    /* The host keeps it loaded. */
    if (dlclose) dlclose(library);
    return address;
}

#define FFI_FUNCTION(name) find((void *)name, #name)

#endif

/* Raises an error and returns -1; `kind` is the name of a Python exception. Without libtvm_ffi the
 * message of a packed call goes to the thread's buffer, as that of a typed call does. */
static COLD int32_t raise(struct message *m, const char *kind, int32_t packed) {
    finish(m);
    if (packed) {
        void *address = FFI_FUNCTION(TVMFFIErrorSetRaisedFromCStr);
        if (address) {
            raise_fn *set_raised = (raise_fn *)address;
            set_raised(kind, m->text);
            return -1;
        }
    }
    for (uint32_t i = 0; i <= m->length; i++) last_error[i] = m->text[i];
#ifdef TEC_STATIC
    last_kind = kind;
#endif
    return -1;
}

/* Only tvm-ffi calls this, so it is loaded. */
INTERNAL int32_t tec_rt_return_text(const char *text, uint64_t length, struct any *ret) {
    struct byte_array bytes = {text, length};
    void *address = FFI_FUNCTION(TVMFFIStringFromByteArray);
    if (!address) return -1;
    make_string_fn *make_string = (make_string_fn *)address;
    return make_string(&bytes, ret);
}
