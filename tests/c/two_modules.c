/* Links two modules and one runtime into one program. */
#include "first.h"
#include "second.h"
#include "support.h"

const char *tec_last_error(void);
const char *tec_manifest(void);

int main(void) {
    float a[100], c[100];
    for (int i = 0; i < 100; i++) a[i] = (float)i;
    EXPECT(add(a, a, c) == 0 && c[99] == 198);
    EXPECT(temporary(a, c, 5000) == 0 && c[99] == 99);
    EXPECT_ERROR(add_dl(NULL, NULL, NULL), first_last_error(), "1 `a`: the tensor is a null");
    EXPECT_ERROR(temporary_dl(NULL, NULL, 1), second_last_error(), "(in `temporary(a: float");
    EXPECT(strcmp(tec_last_error(), second_last_error()) == 0);
    EXPECT(strstr(first_manifest(), "\"module\": \"first\"") != NULL);
    EXPECT(strstr(second_manifest(), "\"module\": \"second\"") != NULL);
    EXPECT(strstr(tec_manifest(), "\"compiler\": \"tec ") != NULL);
    return finish();
}
