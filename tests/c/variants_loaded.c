/* Loads modules for several CPUs: two into one name space, one of them into another one too, each
 * with a choice of its own. Prints the cost of a call of a module for several CPUs and of one for
 * a single CPU, in turns.
 *
 *     variants_loaded TARGET OTHER_TARGET SEVERAL.so OTHER.so SINGLE.so WRAPPER.so
 */
#include "support.h"
#include <dlfcn.h>
#include <time.h>

typedef int32_t Scale(const float *, float *, int64_t);
typedef const char *Text(void);

static void *find(void *library, const char *name) {
    void *address = library ? dlsym(library, name) : NULL;
    if (!address) {
        printf("%s: %s\n", name, dlerror());
        exit(1);
    }
    return address;
}

static void check(void *library, const char *target, const char *expected) {
    float x[3] = {1, 2, 3}, y[3] = {0};
    Scale *scale;
    Text *text;
    *(void **)&scale = find(library, "scale");
    *(void **)&text = find(library, target);
    EXPECT(scale(x, y, 3) == 0 && y[2] == 7);
    EXPECT(strcmp(text(), expected) == 0);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(Scale *volatile scale) {
    static float x[1], y[1];
    double start = now();
    for (int i = 0; i < 2000; i++) EXPECT(scale(x, y, 1) == 0);
    return (now() - start) / 2000;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    void *several = dlopen(argv[3], RTLD_NOW), *other = dlopen(argv[4], RTLD_NOW | RTLD_LOCAL);
    check(several, "k_target", argv[1]);
    check(other, "other_target", argv[2]);
    void *apart = dlmopen(LM_ID_NEWLM, argv[6], RTLD_NOW);
    check(apart, "k_target", argv[1]);
    void *single = dlopen(argv[5], RTLD_NOW | RTLD_LOCAL);
    Scale *with, *without;
    *(void **)&with = find(several, "scale");
    *(void **)&without = find(single, "scale");
    double best[2] = {1e9, 1e9};
    for (int run = 0; run < 2000; run++) {
        double costs[2] = {measure(with), measure(without)};
        for (int i = 0; i < 2; i++) {
            if (costs[i] < best[i]) best[i] = costs[i];
        }
    }
    printf("several CPUs: %.2f ns a call, one CPU: %.2f ns\n", best[0], best[1]);
    dlclose(apart);
    dlclose(other);
    return finish();
}
