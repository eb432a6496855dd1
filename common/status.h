/* Failing with a status and one line of explanation, kept per thread for copes_last_error(). */
#ifndef COPES_COMMON_STATUS_H
#define COPES_COMMON_STATUS_H

#include <copes/copes.h>

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
copes_status
copes_fail(copes_status status, const char *format, ...);

/* Says of the failure just noted which of several calls it is in, and returns `status`. */
copes_status copes_fail_in_call(copes_status status, size_t index);

#define COPES_TRY(call)                                                                                                \
    do {                                                                                                               \
        const copes_status try_status = (call);                                                                        \
        if (try_status != COPES_OK)                                                                                    \
            return try_status;                                                                                         \
    } while (0)

#endif
