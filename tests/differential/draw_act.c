/* Cases of act: any rank, axis and shape, now and then without elements. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

void draw_act(check_case *c, int64_t room, uint64_t *state)
{
    c->op.kind = draw_chance(state, 2) ? COPES_ACT_FORWARD : COPES_ACT_BACKWARD;
    c->op.act.act = (copes_act)check_below(state, COPES_ACT_SOFTMAX + 1);
    c->rank = (int)draw_between(state, 1, draw_between(state, 1, COPES_MAX_RANK));
    c->op.act.dim = (int32_t)draw_between(state, -c->rank, 0);
    const int first = (int)check_below(state, c->rank); /* takes the most of the room */
    for (int i = 0; i < c->rank; i++) {
        int64_t *length = &c->shape[(first + i) % c->rank];
        *length = draw_length(state, room);
        room /= *length;
    }
    if (draw_chance(state, 200))
        c->shape[check_below(state, c->rank)] = 0;
}
