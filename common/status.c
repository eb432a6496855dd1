/* Status names and the thread's last message. */
#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[512];

copes_status copes_fail(copes_status status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(last_error, sizeof last_error, format, values);
    va_end(values);
    return status;
}

copes_status copes_fail_in_call(copes_status status, size_t index)
{
    char message[sizeof last_error];
    memcpy(message, last_error, sizeof message);
    return copes_fail(status, "call %zu: %s", index, message);
}

const char *copes_last_error(void)
{
    return last_error;
}

const char *copes_version(void)
{
    return COPES_VERSION;
}

const char *copes_status_name(copes_status status)
{
    switch (status) {
    case COPES_OK: return "COPES_OK";
    case COPES_ERROR_NULL: return "COPES_ERROR_NULL";
    case COPES_ERROR_OP: return "COPES_ERROR_OP";
    case COPES_ERROR_ATTRIBUTE: return "COPES_ERROR_ATTRIBUTE";
    case COPES_ERROR_DEVICE: return "COPES_ERROR_DEVICE";
    case COPES_ERROR_DTYPE: return "COPES_ERROR_DTYPE";
    case COPES_ERROR_SHAPE: return "COPES_ERROR_SHAPE";
    case COPES_ERROR_STRIDE: return "COPES_ERROR_STRIDE";
    case COPES_ERROR_ALIAS: return "COPES_ERROR_ALIAS";
    case COPES_ERROR_SIZE: return "COPES_ERROR_SIZE";
    case COPES_ERROR_WORKSPACE: return "COPES_ERROR_WORKSPACE";
    case COPES_ERROR_MEMORY: return "COPES_ERROR_MEMORY";
    case COPES_ERROR_UNSUPPORTED: return "COPES_ERROR_UNSUPPORTED";
    case COPES_ERROR_BACKEND: return "COPES_ERROR_BACKEND";
    }
    return "unknown status";
}
