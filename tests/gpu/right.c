/* Cases of the check's tables on a GPU. */
#include "tests/gpu/right.h"

#include "tests/gpu/lane.h"

#include <check.h>

void expect_right(const check_family *family, copes_context *context, int turn, const char *where)
{
    enum { OF_ALL = 60, OF_LARGE = 29 };
    case_list list = {.cases = NULL};
    int seen[2] = {0, 0};
    family->table(&list);
    for (size_t i = 0; i < list.count; i++) {
        const check_case *c = &list.cases[i];
        if (c->type == CHECK_F64 || seen[c->large]++ % (c->large ? OF_LARGE : OF_ALL) != turn)
            continue;
        char text[CHECK_CASE_TEXT];
        const check_result result = check_run(c, context, gpu);
        ck_assert_msg(!result.failed, "%s, %s: %s", where, check_case_text(c, text), result.message);
    }
    case_list_free(&list);
}
