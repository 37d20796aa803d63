/* Shared by the C tests of modules. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value cell of the packed call. */
typedef struct {
    int32_t type;
    uint32_t zero;
    union {
        int64_t integer;
        double real;
        void *pointer;
    } value;
} Cell;

enum { NONE = 0, INT = 1, BOOL = 2, FLOAT = 3, POINTER = 4, DLTENSOR = 7, OBJECT = 70 };

typedef int32_t PackedFn(void *self, const Cell *args, int32_t num_args, Cell *ret);

static int failures;

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: failed: %s\n", __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

/* Requires that a call fails with -1 and a message that contains `part`. */
#define EXPECT_ERROR(call, message, part) \
    do { \
        int32_t status = (call); \
        if (status != -1 || !strstr((message), (part))) { \
            printf("line %d: %s gave %d: %s\n", __LINE__, #call, (int)status, (message)); \
            failures++; \
        } \
    } while (0)

static inline int finish(void) {
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}

#endif
