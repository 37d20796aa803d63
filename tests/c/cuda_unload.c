/* A module for GPUs that is unloaded while the process goes on gives back what it had loaded. */
#include "support.h"
#include <dlfcn.h>

int32_t fake_loaded_modules(void);
const char *fake_log(void);

typedef int32_t Raw(const float *, const float *, float *, int64_t, void *);

int main(void) {
    static float data[8];
    for (int round = 0; round < 3; round++) {
        void *module = dlopen("./m.so", RTLD_NOW | RTLD_LOCAL);
        union {
            void *object;
            Raw *raw;
        } add = {module ? dlsym(module, "add") : NULL};
        if (!add.object) return 2;
        EXPECT(fake_loaded_modules() == 0);
        EXPECT(add.raw(data, data, data, 8, NULL) == 0);
        EXPECT(fake_loaded_modules() == 1);
        EXPECT(dlclose(module) == 0);
        EXPECT(dlopen("./m.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
        EXPECT(fake_loaded_modules() == 0);
        EXPECT(strstr(fake_log(), "unload\nno pool\nrelease 0\n") != NULL);
    }
    return finish();
}
