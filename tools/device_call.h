/* A call of the library on a device, with tensors that lie in the host's memory. */
#ifndef COPES_TOOLS_DEVICE_CALL_H
#define COPES_TOOLS_DEVICE_CALL_H

#include <copes/copes.h>

/* Sends compact inputs, and outputs that exist before the call, to the device, runs, and brings outputs back; on the CPU
 * nothing is copied. An output may have the data of the input that it replaces. `info` is op's. Returns 0; -1 where memory ran
 * out or the device failed in copying; else the library has refused, and copes_last_error says why. */
int device_call(DLDevice device, const copes_op_info *info, const copes_op *op, const copes_args *args);

#endif
