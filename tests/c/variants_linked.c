/* Links two modules for several CPUs and one runtime into one program:
 *
 *     variants_linked TARGET_OF_FIRST TARGET_OF_SECOND
 */
#include "first.h"
#include "second.h"
#include "support.h"

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    float a[100], c[100];
    for (int i = 0; i < 100; i++) a[i] = (float)i;
    EXPECT(add(a, a, c) == 0 && c[99] == 198);
    EXPECT(temporary(a, c, 100) == 0 && c[99] == 99);
    EXPECT(strcmp(first_target(), argv[1]) == 0);
    EXPECT(strcmp(second_target(), argv[2]) == 0);
    EXPECT_ERROR(add_dl(NULL, NULL, NULL), first_last_error(), "1 `a`: the tensor is a null");
    return finish();
}
