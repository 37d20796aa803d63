/* A module for GPUs releases everything when it is unloaded while the process continues. */
#include "support.h"
#include <dlfcn.h>

int32_t fake_loaded_modules(void), fake_allocations(void), fake_misuses(void);
int32_t fake_retained(int32_t device);
void *fake_context(int32_t device);
void fake_set_current(void *context), fake_end(void *context);
void fake_fail(const char *function, int32_t result);
const char *fake_log(void);

typedef int32_t Raw(const float *, const float *, float *, int64_t, void *);

int main(void) {
    static float data[8];
    for (int round = 0; round < 5; round++) {
        void *module = dlopen("./m.so", RTLD_NOW | RTLD_LOCAL);
        union {
            void *object;
            Raw *raw;
        } add = {module ? dlsym(module, "add") : NULL};
        if (!add.object) return 2;
        EXPECT(fake_loaded_modules() == 0);
        if (round == 3) {
            /* Only a context was acquired. */
            fake_fail("cuModuleLoadDataEx", 218);
            EXPECT(add.raw(data, data, data, 8, NULL) == 3);
            fake_fail("cuModuleLoadDataEx", 0);
            EXPECT(fake_retained(0) == 1);
        } else {
            EXPECT(add.raw(data, data, data, 8, NULL) == 0);
            EXPECT(fake_loaded_modules() == 1);
        }
        if (round == 4) {
            /* A module whose context is destroyed is not unloaded again. */
            void *own = fake_context(0);
            fake_set_current(own);
            EXPECT(add.raw(data, data, data, 8, NULL) == 0);
            EXPECT(fake_loaded_modules() == 2);
            fake_set_current(NULL);
            fake_end(own);
        }
        EXPECT(dlclose(module) == 0);
        EXPECT(dlopen("./m.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
        EXPECT(fake_loaded_modules() == 0);
        EXPECT(fake_allocations() == 0);
        EXPECT(fake_retained(0) == 0);
        EXPECT(fake_misuses() == 0);
    }
    EXPECT(strstr(fake_log(), "free\nunload\nno pool\nrelease 0\n") != NULL);
    return finish();
}
