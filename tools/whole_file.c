/* A file beside its place, what a signal does to it, and its way to the place. */
#include "tools/whole_file.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *volatile part; /* the path of the unfinished file: set before a handler that reads it is, freed after */

static bool fail(char reason[WHOLE_FILE_REASON], const char *text)
{
    snprintf(reason, WHOLE_FILE_REASON, "%s", text);
    return false;
}

/* Once called, it is no longer the handler (SA_RESETHAND): the signal then ends the process. */
static void remove_part(int number)
{
    unlink(part);
    raise(number);
}

/* Only of signals whose handler is `from`: nohup, for one, has SIGHUP ignored, and so it stays. */
static void change_handlers(void (*from)(int), void (*to)(int))
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) != 0 || action.sa_handler != from)
            continue;
        action = (struct sigaction){.sa_handler = to, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], &action, NULL);
    }
}

/* The path of `name` as seen from the folder that `path` is in. */
static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0, size = strlen(name) + 1;
    char *joined = malloc(folder + size);
    if (joined != NULL) {
        memcpy(joined, path, folder);
        memcpy(joined + folder, name, size);
    }
    return joined;
}

/* Where the links at `path` lead, be a file there or not. */
static char *follow_links(const char *path)
{
    enum { MOST_LINKS = 40 }; /* Linux follows no more */
    char link[PATH_MAX];
    char *target = strdup(path);
    for (int i = 0; i < MOST_LINKS && target != NULL; i++) {
        const ssize_t length = readlink(target, link, sizeof link - 1);
        if (length < 0)
            break;
        link[length] = '\0';
        char *next = link[0] == '/' ? strdup(link) : beside(target, link);
        free(target);
        target = next;
    }
    return target;
}

/* Who may do what with a new file: as with `old`, the one it replaces, or as the process' mask has it. A system without
 * permissions may refuse; the file is then its owner's alone, as mkstemp made it. */
static void set_permissions(int descriptor, const struct stat *old)
{
    const mode_t mask = umask(0);
    umask(mask);
    mode_t mode = old != NULL ? old->st_mode & 0777 : 0666 & ~mask;
    if (old != NULL && fchown(descriptor, old->st_uid, old->st_gid) != 0 &&
        fchown(descriptor, (uid_t)-1, old->st_gid) != 0)
        mode &= 0707 | (mode & 07) << 3; /* another group may do no more than anyone */
    (void)fchmod(descriptor, mode);
}

bool whole_file_open(whole_file *file, const char *path, char reason[WHOLE_FILE_REASON])
{
    struct stat old;
    const bool exists = stat(path, &old) == 0;
    if (!exists && (errno != ENOENT || path[0] == '\0'))
        return fail(reason, strerror(errno));
    if (exists && !S_ISREG(old.st_mode))
        return fail(reason, S_ISDIR(old.st_mode) ? "a folder is there" : "what is there is not a regular file");
    *file = (whole_file){.target = follow_links(path)};
    part = file->target != NULL ? beside(file->target, ".copes-XXXXXX") : NULL;
    if (part == NULL) {
        free(file->target);
        return fail(reason, "out of memory");
    }
    change_handlers(SIG_DFL, remove_part);
    const int descriptor = mkstemp(part);
    if (descriptor >= 0) {
        set_permissions(descriptor, exists ? &old : NULL);
        file->stream = fdopen(descriptor, "wb");
    }
    if (file->stream != NULL)
        return true;
    fail(reason, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    whole_file_abandon(file);
    return false;
}

static void forget(whole_file *file)
{
    change_handlers(remove_part, SIG_DFL);
    free(part);
    free(file->target);
    *file = (whole_file){0};
}

bool whole_file_commit(whole_file *file, char reason[WHOLE_FILE_REASON])
{
    const bool stored = fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
    if (stored && rename(part, file->target) == 0) {
        fclose(file->stream);
        forget(file);
        return true;
    }
    fail(reason, strerror(errno));
    whole_file_abandon(file);
    return false;
}

void whole_file_abandon(whole_file *file)
{
    if (file->stream != NULL)
        fclose(file->stream);
    unlink(part);
    forget(file);
}
