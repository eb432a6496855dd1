/* A file that is written appears whole or not at all: in its place, with its permissions, whatever happens meanwhile. */
#include "tests/suite.h"
#include "tools/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 1 << 16, ROOM = 512 };

static char folder[] = "/tmp/copes-whole-file-XXXXXX";

/* The process works in the test's folder, so that paths are short names. */
static void enter_folder(void)
{
    memcpy(folder + sizeof folder - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    umask(022);
}

/* Entries of a folder; with `remove`, they are removed. */
static int count_entries(const char *path, bool remove)
{
    int count = 0;
    char name[ROOM];
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (remove && unlink(name) != 0) {
            count_entries(name, true);
            rmdir(name);
        }
    }
    closedir(directory);
    return count;
}

static void leave_folder(void)
{
    count_entries(folder, true);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_text(whole_file *file, const char *text)
{
    ck_assert_int_ge(fputs(text, file->stream), 0);
}

static void save(const char *path, const char *text)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    ck_assert_msg(whole_file_open(&file, path, reason), "%s: %s", path, reason);
    write_text(&file, text);
    ck_assert_msg(whole_file_commit(&file, reason), "%s: %s", path, reason);
}

static void expect_text(const char *path, const char *wanted)
{
    char text[ROOM] = "";
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
    fclose(file);
    ck_assert_str_eq(text, wanted);
}

static void expect_refusal(const char *path, const char *wanted)
{
    char reason[WHOLE_FILE_REASON] = "";
    whole_file file;
    ck_assert(!whole_file_open(&file, path, reason));
    ck_assert_str_eq(reason, wanted);
}

START_TEST(follows_links)
{
    struct stat status;
    char absolute[ROOM];
    snprintf(absolute, sizeof absolute, "%s/there/b", folder);
    ck_assert_int_eq(mkdir("here", 0777), 0);
    ck_assert_int_eq(mkdir("there", 0777), 0);
    ck_assert_int_eq(symlink("here/second", "first"), 0);
    ck_assert_int_eq(symlink("../there/a", "here/second"), 0);
    ck_assert_int_eq(symlink(absolute, "third"), 0);
    for (int i = 0; i < 2; i++) { /* the links lead nowhere at first, to a file then */
        save("first", i == 0 ? "one" : "two");
        save("third", i == 0 ? "three" : "four");
        expect_text("there/a", i == 0 ? "one" : "two");
        expect_text("there/b", i == 0 ? "three" : "four");
    }
    ck_assert(lstat("first", &status) == 0 && S_ISLNK(status.st_mode));
    ck_assert(lstat("here/second", &status) == 0 && S_ISLNK(status.st_mode));
    ck_assert(lstat("third", &status) == 0 && S_ISLNK(status.st_mode));
    ck_assert_int_eq(count_entries("there", false), 2);
}
END_TEST

START_TEST(refuses_places_that_are_none)
{
    ck_assert_int_eq(symlink("round", "around"), 0);
    ck_assert_int_eq(symlink("around", "round"), 0);
    ck_assert_int_eq(symlink("none/file", "nowhere"), 0);
    ck_assert_int_eq(mkfifo("pipe", 0600), 0);
    ck_assert_int_eq(symlink("pipe", "to-pipe"), 0);
    expect_refusal("round", strerror(ELOOP));
    expect_refusal("nowhere", strerror(ENOENT));
    expect_refusal("none/file", strerror(ENOENT));
    expect_refusal("", strerror(ENOENT));
    expect_refusal("pipe/file", strerror(ENOTDIR));
    expect_refusal("to-pipe", "what is there is not a regular file");
    expect_refusal(".", "a folder is there");
    ck_assert_int_eq(count_entries(".", false), 5);
}
END_TEST

static int permissions_of(const char *path)
{
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    return (int)(status.st_mode & 07777);
}

START_TEST(keeps_permissions)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0664, 0400, 0755};
    save("new", "text");
    ck_assert_int_eq(permissions_of("new"), 0644);
    umask(077);
    save("own", "text");
    ck_assert_int_eq(permissions_of("own"), 0600);
    ck_assert_int_eq(symlink("new", "link"), 0);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        ck_assert_int_eq(chmod("new", modes[i]), 0);
        save(i % 2 == 0 ? "new" : "link", "text");
        ck_assert_int_eq(permissions_of("new"), (int)modes[i]);
    }
}
END_TEST

/* Runs `work` on a signal's number, in a process of its own that the signal ends; returns how it ended, as waitpid does. */
static int run_apart(void (*work)(int number), int number)
{
    int status = 0;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(number, SIG_DFL); /* Check has handlers of its own, which end the test */
        work(number);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

/* Not root any more, and in a group that the file is not in. */
static void save_as_a_user(int number)
{
    (void)number;
    if (setgid(2222) != 0 || setuid(1234) != 0)
        _exit(1);
    save("file", "third text");
}

/* Root may keep the owner, who must not lose a file that only owners read. Where the group cannot be kept, another one
 * must not come by its rights. */
START_TEST(keeps_the_owner)
{
    struct stat status;
    if (geteuid() != 0)
        return;
    save("file", "text");
    ck_assert_int_eq(chmod("file", 0660), 0);
    ck_assert_int_eq(chown("file", 1234, 5678), 0);
    save("file", "other text");
    ck_assert_int_eq(stat("file", &status), 0);
    ck_assert(status.st_uid == 1234 && status.st_gid == 5678 && (status.st_mode & 0777) == 0660);
    ck_assert_int_eq(chmod(".", 0777), 0);
    ck_assert_int_eq(run_apart(save_as_a_user, SIGTERM), 0);
    ck_assert_int_eq(stat("file", &status), 0);
    ck_assert(status.st_uid == 1234 && status.st_gid == 2222 && (status.st_mode & 0777) == 0600);
}
END_TEST

START_TEST(takes_long_names)
{
    char name[NAME_MAX + 2];
    for (int length = NAME_MAX - 20; length <= NAME_MAX; length++) {
        memset(name, 'n', sizeof name);
        name[length] = '\0';
        save(name, "text");
        expect_text(name, "text");
        ck_assert_int_eq(unlink(name), 0);
    }
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    expect_refusal(name, strerror(ENAMETOOLONG));
    ck_assert_int_eq(count_entries(".", false), 0);
}
END_TEST

START_TEST(leaves_nothing_of_what_is_given_up)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    save("file", "old");
    ck_assert(whole_file_open(&file, "file", reason));
    write_text(&file, "new");
    whole_file_abandon(&file);
    ck_assert(whole_file_open(&file, "file", reason));
    write_text(&file, "new");
    ck_assert(unlink("file") == 0 && mkdir("file", 0777) == 0); /* what no file can take the place of */
    ck_assert(!whole_file_commit(&file, reason));
    ck_assert_str_eq(reason, strerror(EISDIR));
    ck_assert_int_eq(count_entries(".", false), 1);
}
END_TEST

static void stop_in_the_middle(int number)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    if (!whole_file_open(&file, "file", reason) || fputs("new", file.stream) < 0 || fflush(file.stream) != 0)
        _exit(1);
    raise(number);
    _exit(whole_file_commit(&file, reason) ? 0 : 2);
}

static void stop_though_ignored(int number)
{
    signal(number, SIG_IGN);
    stop_in_the_middle(number);
}

static void stop_after(int number)
{
    save("file", "newer");
    raise(number);
}

START_TEST(signals_remove_it)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        save("file", "old");
        int status = run_apart(stop_in_the_middle, signals[i]);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "signal %d: %d", signals[i], status);
        expect_text("file", "old");
        ck_assert_int_eq(count_entries(".", false), 1);
        ck_assert_int_eq(run_apart(stop_though_ignored, signals[i]), 0);
        expect_text("file", "new");
        status = run_apart(stop_after, signals[i]);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "signal %d: %d", signals[i], status);
        expect_text("file", "newer");
        ck_assert_int_eq(count_entries(".", false), 1);
    }
}
END_TEST

/* Writes files of one letter, one after the other. */
static void write_often(int times)
{
    char reason[WHOLE_FILE_REASON];
    whole_file file;
    for (int i = 0; i != times; i++) {
        bool ok = whole_file_open(&file, "file", reason);
        for (int j = 0; j < LENGTH && ok; j++)
            ok = fputc('a' + i % 26, file.stream) >= 0;
        if (!ok || !whole_file_commit(&file, reason))
            _exit(1);
    }
}

/* All of one letter, and complete. */
static void expect_whole(void)
{
    static char text[LENGTH + 1];
    FILE *file = fopen("file", "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(text, 1, sizeof text, file), LENGTH);
    fclose(file);
    ck_assert_mem_eq(text, text + 1, LENGTH - 1);
}

START_TEST(kill_leaves_the_old_file)
{
    write_often(1);
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            write_often(-1);
            _exit(0);
        }
        const struct timespec while_it_writes = {0, 100000 + i * 30000}; /* up to 3 ms */
        nanosleep(&while_it_writes, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        expect_whole();
    }
}
END_TEST

START_TEST(two_write_at_once)
{
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            write_often(50);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    expect_whole();
    ck_assert_int_eq(count_entries(".", false), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("whole_file");
    TCase *place = tcase_create("place"), *interruption = tcase_create("interruption");
    tcase_add_checked_fixture(place, enter_folder, leave_folder);
    tcase_add_test(place, follows_links);
    tcase_add_test(place, refuses_places_that_are_none);
    tcase_add_test(place, keeps_permissions);
    tcase_add_test(place, keeps_the_owner);
    tcase_add_test(place, takes_long_names);
    tcase_add_test(place, leaves_nothing_of_what_is_given_up);
    suite_add_tcase(suite, place);
    tcase_add_checked_fixture(interruption, enter_folder, leave_folder);
    tcase_add_test(interruption, signals_remove_it);
    tcase_add_test(interruption, kill_leaves_the_old_file);
    tcase_add_test(interruption, two_write_at_once);
    suite_add_tcase(suite, interruption);
    return suite_run(suite);
}
