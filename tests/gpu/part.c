/* Calls on a stream that has some of a device's multiprocessors: one of a green context, which only CUDA has. */
#include "tests/gpu/cases.h"
#include "tests/gpu/green.h"
#include "tests/gpu/lane.h"
#include "tests/gpu/right.h"

#include <stdio.h>
#include <stdlib.h>

/* Multiprocessors, rounded up by the device: fewer than a cluster may have blocks, and nearly all. */
static const unsigned parts[] = {8, 24, 104};
enum { PARTS = sizeof parts / sizeof parts[0] };

START_TEST(graphs_replay_on_a_part_of_the_device)
{
    part p;
    if (!open_part(&p, parts[_i]))
        return;
    for (int i = 0; i < GPU_CASES; i++) {
        lane l = {.stream = NULL};
        open_lane_on(p.stream, &l, &gpu_cases[i]);
        expect_replays(&l, &gpu_cases[i]);
        empty_lane(&l);
    }
    close_part(&p);
}
END_TEST

START_TEST(a_part_of_the_device_runs_everything)
{
    part p;
    char text[40];
    copes_context *context;
    if (!open_part(&p, parts[_i]))
        return;
    const copes_context_options options = {.stream = p.stream};
    ck_assert_msg(copes_context_create(gpu, &options, &context) == COPES_OK, "%s", copes_last_error());
    snprintf(text, sizeof text, "%u multiprocessors", parts[_i]);
    for (size_t i = 0; i < check_family_count; i++)
        expect_right(&check_families[i], context, _i, text);
    copes_context_destroy(context);
    close_part(&p);
}
END_TEST

/* To a part of the device and back. The workspace may have to be another's. */
START_TEST(a_context_follows_its_stream_to_a_part)
{
    part p;
    lane l = {.stream = NULL};
    size_t size = 0;
    if (!open_part(&p, parts[0]))
        return;
    open_lane(&l, &gpu_cases[_i]);
    run(&l);
    unsigned char *wanted = take_output(&l);
    ck_assert_int_eq(copes_context_set_stream(l.context, p.stream), COPES_OK);
    ck_assert_int_eq(copes_workspace_size(l.context, &l.call.op, &l.call.args, &size), COPES_OK);
    const copes_status status = status_of_run(&l);
    ck_assert_int_eq(status, size > l.call.workspace_size ? COPES_ERROR_WORKSPACE : COPES_OK);
    free(take_output(&l));
    ck_assert_int_eq(copes_context_set_stream(l.context, l.stream), COPES_OK);
    run(&l);
    expect_output(&l, wanted);
    free(wanted);
    close_lane(&l);
    close_part(&p);
}
END_TEST

TCase *part_tests(void)
{
    TCase *tests = tcase_create("part");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, graphs_replay_on_a_part_of_the_device, 0, PARTS);
    tcase_add_loop_test(tests, a_part_of_the_device_runs_everything, 0, PARTS);
    tcase_add_loop_test(tests, a_context_follows_its_stream_to_a_part, 0, GPU_CASES);
    return tests;
}
