/* The questions that common/tensor.c answers about memory, against every byte of small random views: it must never call
 * apart what shares a byte, nor distinct what overlaps itself, and must see that the usual ways to split a buffer do
 * not. */
#include "common/tensor.h"
#include "tests/every.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 1024 };

static char buffer[BYTES];
static uint64_t state = 1;

static int count_tries(void)
{
    return 200000 / tests_every();
}

static int64_t random_below(int64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}

static copes_tensor read_view(DLDataType dtype, char *data, int rank, const int64_t *shape, const int64_t *stride)
{
    int64_t lengths[COPES_MAX_RANK] = {0}, steps[COPES_MAX_RANK] = {0};
    memcpy(lengths, shape, (size_t)rank * sizeof *shape);
    memcpy(steps, stride, (size_t)rank * sizeof *stride);
    const DLTensor view =
        {.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = dtype, .shape = lengths, .strides = steps};
    copes_tensor tensor;
    ck_assert_int_eq(copes_tensor_read("op", "slot", "any", &view, &tensor), COPES_OK);
    return tensor;
}

/* A view of some of `buffer`'s bytes. */
static copes_tensor random_view(void)
{
    static const DLDataType types[4] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}};
    for (;;) {
        int64_t shape[4], stride[4];
        const int rank = (int)random_below(5);
        for (int i = 0; i < rank; i++) {
            shape[i] = random_below(16) == 0 ? 0 : 1 + random_below(4);
            stride[i] = random_below(25) - 8;
        }
        const copes_tensor tensor = read_view(types[random_below(4)], buffer + BYTES / 2, rank, shape, stride);
        const int64_t start = random_below(BYTES) - BYTES / 2;
        copes_tensor moved = tensor;
        moved.data += start;
        if (start + tensor.low >= -BYTES / 2 && start + tensor.high <= BYTES / 2)
            return moved;
    }
}

/* Adds 1 to `touched` for every byte of every element; the most that a byte then has. (ck_assert writes down every call
 * that holds, and there are millions here.) */
static int touch(const copes_tensor *tensor, unsigned char touched[BYTES])
{
    int most = 0;
    for (int64_t n = 0; n < tensor->count; n++) {
        int64_t rest = n, offset = 0;
        for (int i = tensor->rank - 1; i >= 0; i--) {
            offset += rest % tensor->shape[i] * tensor->stride[i];
            rest /= tensor->shape[i];
        }
        const int64_t size = copes_dtype_size(tensor->dtype), at = tensor->data - buffer + offset * size;
        if (offset * size < tensor->low || offset * size + size > tensor->high)
            ck_abort_msg("element %lld lies outside the tensor's bytes", (long long)n);
        for (int64_t j = at; j < at + size; j++) {
            touched[j]++;
            most = touched[j] > most ? touched[j] : most;
        }
    }
    return most;
}

static bool share_a_byte(const copes_tensor *a, const copes_tensor *b)
{
    unsigned char of_a[BYTES] = {0}, of_b[BYTES] = {0};
    touch(a, of_a);
    touch(b, of_b);
    for (int i = 0; i < BYTES; i++)
        if (of_a[i] != 0 && of_b[i] != 0)
            return true;
    return false;
}

START_TEST(apart_is_certain)
{
    const int tries = count_tries();
    int apart = 0, sharing = 0, missed = 0;
    for (int i = 0; i < tries; i++) {
        const copes_tensor a = random_view(), b = random_view();
        const bool shared = share_a_byte(&a, &b), maybe = copes_tensor_may_overlap(&a, &b);
        ck_assert_msg(maybe || !shared, "try %d: called apart", i);
        ck_assert_int_eq(maybe, copes_tensor_may_overlap(&b, &a));
        sharing += shared;
        apart += !maybe;
        missed += maybe && !shared;
    }
    ck_assert_int_gt(apart, tries / 10);
    ck_assert_int_gt(sharing, tries / 20);
    printf("apart %d, sharing %d, apart but not seen so %d of %d\n", apart, sharing, missed, tries);
}
END_TEST

START_TEST(distinct_is_certain)
{
    const int tries = count_tries();
    int passed = 0, refused = 0, missed = 0;
    for (int i = 0; i < tries; i++) {
        unsigned char touched[BYTES] = {0};
        const copes_tensor tensor = random_view();
        const bool overlaps = touch(&tensor, touched) > 1;
        const bool passes = copes_tensor_check_distinct("op", &tensor) == COPES_OK;
        ck_assert_msg(!passes || !overlaps, "try %d: called distinct", i);
        passed += passes;
        refused += !passes;
        missed += !passes && !overlaps;
    }
    ck_assert_int_gt(passed, tries / 10);
    ck_assert_int_gt(refused, tries / 10);
    printf("distinct %d, refused %d, of which distinct %d\n", passed, refused, missed);
}
END_TEST

/* Two views of one buffer, the second `apart` elements on. */
typedef struct layout {
    const char *name;
    int rank;
    int64_t shape[4], stride[4], apart;
} layout;

static const layout layouts[] = {
    {"columns of packed (B, N, 3, H, D)", 4, {2, 3, 2, 4}, {72, 24, 4, 1}, 8},
    {"the outer two of packed (B, N, 3, H, D)", 4, {2, 3, 2, 4}, {72, 24, 4, 1}, 16},
    {"columns of packed (B, N, H, 3 D)", 4, {2, 3, 2, 4}, {72, 24, 12, 1}, 4},
    {"columns of packed (B, H, N, 3 D), seen as (B, N, H, D)", 4, {2, 3, 2, 4}, {72, 12, 36, 1}, 4},
    {"halves of the last axis", 3, {2, 4, 8}, {64, 16, 1}, 8},
    {"uneven parts of the last axis", 2, {6, 5}, {16, 1}, 5},
    {"alternate rows", 2, {5, 8}, {16, 1}, 8},
    {"alternate elements", 2, {4, 8}, {16, 2}, 1},
    {"alternate rows, backwards", 2, {5, 8}, {-16, 1}, -72},
    {"halves of the tokens", 4, {2, 3, 2, 4}, {48, 8, 4, 1}, 24},
    {"halves of the batch", 4, {2, 3, 2, 4}, {24, 8, 4, 1}, 48},
    {"alternate heads", 4, {2, 3, 2, 4}, {48, 16, 8, 1}, 4},
    {"one row of each of two columns", 3, {1, 1, 4}, {24, 8, 1}, 4},
};

START_TEST(usual_splits_are_apart)
{
    static const DLDataType types[2] = {{kDLBfloat, 16, 1}, {kDLFloat, 32, 1}};
    const layout *at = &layouts[_i];
    for (int type = 0; type < 2; type++) {
        const int size = types[type].bits / 8;
        const copes_tensor a = read_view(types[type], buffer + BYTES / 4, at->rank, at->shape, at->stride);
        const copes_tensor b =
            read_view(types[type], buffer + BYTES / 4 + at->apart * size, at->rank, at->shape, at->stride);
        ck_assert_msg(!copes_tensor_may_overlap(&a, &b) && !copes_tensor_may_overlap(&b, &a), "%s", at->name);
        ck_assert_msg(copes_tensor_check_distinct("op", &a) == COPES_OK, "%s", at->name);
        const copes_tensor c = read_view(types[type], a.data + size, at->rank, at->shape, at->stride);
        ck_assert_msg(copes_tensor_may_overlap(&a, &c) || at->apart == 1, "%s, one element on", at->name);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("overlap");
    TCase *memory = tcase_create("memory");
    tcase_set_timeout(memory, 120);
    tcase_add_test(memory, apart_is_certain);
    tcase_add_test(memory, distinct_is_certain);
    tcase_add_loop_test(memory, usual_splits_are_apart, 0, sizeof layouts / sizeof layouts[0]);
    suite_add_tcase(suite, memory);
    return suite_run(suite);
}
