/* How kernels of tpa_decode merge partial outputs, in whatever memory, and write outputs. */
#ifndef COPES_BACKENDS_GPU_TPA_OUTPUT_H
#define COPES_BACKENDS_GPU_TPA_OUTPUT_H

#include "backends/gpu/storage.h"
#include "backends/gpu/tpa/partials.h"

namespace COPES_GPU::tpa
{

/* An item: four sums and their rows. The sums are of one row, or two each of two rows. */
template <int ROWS> struct output_item {
    row_state row[ROWS];
    float o[4];
};

/* Merges `count` of at most AT_ONCE partials into an item, from `first` on. All reads come before the first use. */
template <int AT_ONCE, int ROWS, typename Partials>
DEVICE void add_partials(output_item<ROWS> &to, const Partials &partials, int first, int count)
{
    constexpr int OF_ROW = 4 / ROWS;
    row_state state[AT_ONCE][ROWS];
    float4 sums[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const bool exists = i < count;
        for (int row = 0; row < ROWS; row++)
            state[i][row] = exists ? partials.state(first + i, row) : row_state{-INFINITY, 0};
        sums[i] = exists ? partials.sums(first + i) : make_float4(0, 0, 0, 0);
    }
    float shift[ROWS];
    for (int row = 0; row < ROWS; row++) {
        const float before = to.row[row].most;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            to.row[row].most = fmaxf(to.row[row].most, state[i][row].most);
        shift[row] = shift_of(to.row[row].most);
        const float shrink = exp2_term(before - shift[row]);
        to.row[row].sum *= shrink;
        for (int k = row * OF_ROW; k < (row + 1) * OF_ROW; k++)
            to.o[k] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const float x[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
        for (int row = 0; row < ROWS; row++) {
            const float weight = exp2_term(state[i][row].most - shift[row]);
            to.row[row].sum = fmaf(weight, state[i][row].sum, to.row[row].sum);
            for (int k = row * OF_ROW; k < (row + 1) * OF_ROW; k++)
                to.o[k] = fmaf(weight, x[k], to.o[k]);
        }
    }
}

/* Merges an item of `count` partials. All threads have the same `most`, which no `count` passes, so that they loop
 * alike. */
template <int AT_ONCE, int ROWS, typename Partials>
DEVICE output_item<ROWS> merge_item(const Partials &partials, int most, int count)
{
    output_item<ROWS> item = {};
    for (int row = 0; row < ROWS; row++)
        item.row[row].most = -INFINITY;
    for (int first = 0; first < most; first += AT_ONCE)
        add_partials<AT_ONCE>(item, partials, first, count - first);
    return item;
}

/* Writes N features of a head, or zeros if the head has seen no key. pairs: features 2 i and 2 i + 1 are written as
 * one word. */
template <typename T, int N>
DEVICE void write_output(const copes_tpa_problem &problem, bool pairs, int64_t b, int64_t n, int64_t h,
                         const int (&feature)[N], row_state row, const float *x, bool seen)
{
    T *o = output_at<T>(problem, b, n, h);
    const output_scale scale(problem, row.sum);
    float finished[N];
    for (int i = 0; i < N; i++)
        finished[i] = seen ? scale.apply(x[i]) : 0;
    if (pairs) {
        for (int i = 0; i < N; i += 2)
            if (feature[i] < (int)problem.e)
                *reinterpret_cast<uint32_t *>(o + feature[i]) = storage<T>::pack(finished + i);
    } else {
        for (int i = 0; i < N; i++)
            if (feature[i] < (int)problem.e)
                write_scalar(o + feature[i] * problem.o.stride[3], finished[i]);
    }
    if (feature[0] == 0)
        write_lse(problem, b, n, h, row);
}

/* Where the outputs of a block go: to the workspace as a part's, or to the output. */
struct output_place {
    int64_t b, n;
    int head; /* the head of the block's first row */
    int64_t part;
    const partial_outputs *partials; /* nullptr: there are no parts */
    bool pairs;                      /* two features may be written as one word */
};

/* Stores N features of a head as a part's, or writes them if there are no parts. */
template <typename T, int N>
DEVICE void put_output(const copes_tpa_problem &problem, const output_place &to, int h, const int (&feature)[N],
                       row_state row, const float *x)
{
    if (to.partials != nullptr) {
        const int64_t index = (to.b * problem.n + to.n) * problem.h + h;
        float *sums = to.partials->sums_at(problem, index, to.part);
        if (feature[0] == 0)
            *to.partials->state_at(problem, index, to.part) = row;
        for (int i = 0; i < N; i++)
            if (feature[i] < (int)problem.e)
                sums[feature[i]] = x[i];
        return;
    }
    const bool unseen = row.sum == 0 && row.most == -INFINITY && !key_range(problem).any(to.b, to.n);
    write_output<T, N>(problem, to.pairs, to.b, to.n, h, feature, row, x, !unseen);
}

} // namespace COPES_GPU::tpa

#endif
