/* What `copes doctor` finds out about the machine. */
#ifndef COPES_TOOLS_DOCTOR_H
#define COPES_TOOLS_DOCTOR_H

#include <copes/copes.h>
#include <stdbool.h>
#include <stddef.h>

enum { DOCTOR_TEXT = 256 };

/* The processor's name, as the system has it. */
void doctor_processor(char text[DOCTOR_TEXT]);

/* How many processors this process may run on. */
int doctor_processors(void);

/* The file names of the OpenMP runtimes in this process, with ", " between; "" where none was found. */
void doctor_openmp(char text[DOCTOR_TEXT]);

/* The version of a backend's driver or, where no device was `found`, what of it lacks; "" where there is nothing to say. */
void doctor_driver(const char *backend, bool found, char text[DOCTOR_TEXT]);

/* Computes relu of a few numbers on the device. NULL where the result is right, else what went wrong. */
const char *doctor_try(DLDevice device);

#endif
