/* Files that appear whole or not at all: each is written beside its place under a name of its own, and takes the place
 * when it is complete and on disk. Until then what stood there still does, whatever becomes of the process. */
#ifndef COPES_TOOLS_WHOLE_FILE_H
#define COPES_TOOLS_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

enum { WHOLE_FILE_REASON = 128 /* bytes of a message */ };

/* A file being written; a process has one at a time. */
typedef struct whole_file {
    FILE *stream; /* for the caller to write to */
    char *target; /* its place: `path`, or where the links there lead */
} whole_file;

/* Begins a file; false, with one line in `reason`, where none can be made at `path`. It has the permissions of the file
 * that it replaces, and the owner and group as far as the system allows, or else those of any new file. SIGHUP, SIGINT,
 * SIGQUIT, SIGTERM, SIGXCPU and SIGXFSZ, where they would end the process, remove it first. */
bool whole_file_open(whole_file *file, const char *path, char reason[WHOLE_FILE_REASON]);

/* Ends a file by putting it in its place, or, with the reason, by removing it where that fails. */
bool whole_file_commit(whole_file *file, char reason[WHOLE_FILE_REASON]);

/* Ends a file by removing it. */
void whole_file_abandon(whole_file *file);

#endif
