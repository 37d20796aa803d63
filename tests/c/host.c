/* Loads a module as hosts do: without libtvm_ffi, before it, after it, or after loading it with
 * local symbols. argv[1] selects the order, argv[2] the binding of the module. */
#include "support.h"
#include <dlfcn.h>

static void *must(void *pointer) {
    if (!pointer) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return pointer;
}

typedef union {
    void *object;
    PackedFn *packed;
    const char *(*text)(void);
} Symbol;

static Symbol symbol(void *library, const char *name) {
    Symbol s;
    s.object = must(dlsym(library, name));
    return s;
}

static int starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *order = argv[1];
    int bind = strcmp(argv[2], "lazy") == 0 ? RTLD_LAZY : RTLD_NOW;
    void *ffi = NULL;
    if (strcmp(order, "after") == 0) ffi = must(dlopen("./libtvm_ffi.so", RTLD_NOW | RTLD_GLOBAL));
    if (strcmp(order, "hidden") == 0) ffi = must(dlopen("./libtvm_ffi.so", RTLD_NOW | RTLD_LOCAL));
    void *module = must(dlopen("./m.so", bind | RTLD_LOCAL));
    if (strcmp(order, "before") == 0) ffi = must(dlopen("./libtvm_ffi.so", RTLD_NOW | RTLD_GLOBAL));

    Cell cells[3], ret = {0, 0, {0}};
    memset(cells, 0, sizeof cells);
    Symbol add = symbol(module, "__tvm_ffi_add"), error = symbol(module, "m_last_error");
    EXPECT(add.packed(NULL, cells, 3, &ret) == -1);
    if (ffi) {
        const char *raised = symbol(ffi, "fake_take_raised").text();
        EXPECT(starts(raised, "TypeError: argument 1 `a`: expected a tensor, got None (in"));
        EXPECT(error.text()[0] == 0);
        EXPECT(add.packed(NULL, cells, 1, &ret) == -1);
        raised = symbol(ffi, "fake_take_raised").text();
        EXPECT(starts(raised, "TypeError: expected 3 arguments, got 1"));
        Symbol doc = symbol(module, "__tvm_ffi__doc_add");
        EXPECT(doc.packed(NULL, NULL, 0, &ret) == 0 && ret.type == 65);
        EXPECT(starts(ret.value.pointer, "add(a: float32[100], b: float32[100], c: floa"));
        Symbol metadata = symbol(module, "__tvm_ffi__metadata_scalars");
        EXPECT(metadata.packed(NULL, NULL, 0, &ret) == 0);
        EXPECT(starts(ret.value.pointer, "{\"type_schema\":\"{\\\"type\\\":\\\"ffi.Function"));
    } else {
        EXPECT(starts(error.text(), "argument 1 `a`: expected a tensor, got None"));
    }
    EXPECT(dlclose(module) == 0);
    return finish();
}
