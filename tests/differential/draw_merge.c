/* Cases of attention_merge: numbers of shares, empty ones, and lse of every kind. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

void draw_merge(check_case *c, int64_t room, uint64_t *state)
{
    const bool backward = draw_chance(state, 2);
    c->op.kind = backward ? COPES_ATTENTION_MERGE_BACKWARD : COPES_ATTENTION_MERGE_FORWARD;
    c->op.merge.base = (copes_log_base)check_below(state, 2);
    c->rank = 5;
    c->shape[0] = draw_length(state, draw_chance(state, 4) ? 70 : 9);
    int64_t taken = c->shape[0];
    for (int i = 4; i > 0; i--) {
        const int64_t most = i == 4 ? 300 : 20;
        room = room / taken > 0 ? room / taken : 1;
        c->shape[i] = taken = draw_length(state, room < most ? room : most);
    }
    if (draw_chance(state, 200))
        c->shape[check_below(state, 5)] = 0;
    c->merge.lse = (check_lse)check_below(state, CHECK_LSE_KINDS);
    c->merge.grad_lse_shares = backward && !draw_chance(state, 4);
    c->lse = !backward || draw_chance(state, 2);
}
