/* What the cases of all operators share. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

bool draw_chance(uint64_t *state, int64_t one_in)
{
    return check_below(state, one_in) == 0;
}

int64_t draw_between(uint64_t *state, int64_t least, int64_t most)
{
    return least + check_below(state, most - least + 1);
}

int64_t draw_length(uint64_t *state, int64_t most)
{
    static const int64_t edges[] = {1,  2,  3,  4,  7,  8,   9,   15,  16,  17,  31,
                                    32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
    const int64_t edge = edges[check_below(state, sizeof edges / sizeof *edges)];
    const int64_t any = draw_between(state, 1, most > 1 ? most : 1);
    return draw_chance(state, 2) && edge <= most ? edge : any;
}

/* Mostly a few elements, so that there are many cases; at times enough of them for long rows and several threads. */
static int64_t draw_room(uint64_t *state)
{
    const int64_t which = check_below(state, 1000);
    return which < 600 ? 64 : which < 940 ? 400 : which < 998 ? 3000 : 30000;
}

static void draw_fill(check_case *c, uint64_t *state)
{
    c->fill = draw_chance(state, 2) ? CHECK_NORMAL : (check_fill)check_below(state, CHECK_FILLS);
    c->fill = check_makes_sense(c) ? c->fill : CHECK_WIDE;
}

/* A saved log sum exp hangs on other tensors, lengths of caches have a filling of their own, and two tokens no place. */
static bool may_repeat(const check_case *c, int slot)
{
    switch (c->op.kind) {
    case COPES_TPA_DECODE: return slot < COPES_TPA_KV_LEN;
    case COPES_QK_NORM_ROPE_FORWARD:
    case COPES_QK_NORM_ROPE_BACKWARD: return slot != COPES_QK_SLOTS;
    case COPES_ATTENTION_MERGE_FORWARD:
    case COPES_ATTENTION_MERGE_BACKWARD: return true;
    case COPES_ACT_FORWARD: return slot != COPES_ACT_LSE_ALL;
    case COPES_ACT_BACKWARD: return slot != COPES_ACT_DELTA_ALL;
    case COPES_LRPE_FORWARD: return slot != COPES_LRPE_LSE_ALL;
    default: return slot < COPES_LRPE_LSE;
    }
}

static void draw_repeats(check_case *c, uint64_t *state)
{
    for (int slot = 0; slot < COPES_MAX_INPUTS; slot++)
        if (may_repeat(c, slot) && draw_chance(state, 6))
            c->repeats[slot] = (unsigned char)(check_random(state) & check_random(state));
}

/* qk_norm_rope and then attention_merge came last, and leave to the others their seeds. */
static int draw_family(uint64_t seed, uint64_t *state)
{
    uint64_t apart = ~seed;
    const int family = (int)check_below(state, 4);
    const bool is_qk = draw_chance(&apart, 5);
    return draw_chance(&apart, 6) ? 5 : is_qk ? 4 : family;
}

check_case draw_case_of(uint64_t seed, int64_t room)
{
    static const check_type types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};
    uint64_t state = seed;
    const int family = draw_family(seed, &state);
    const int64_t drawn = draw_room(&state);
    room = room > 0 ? room : drawn;
    check_case c = {.family = check_families[family].name, .seed = seed, .random = true};
    c.type = types[check_below(&state, 4)];
    switch (family) {
    case 0: draw_act(&c, room, &state); break;
    case 3: draw_attention(&c, room, &state); break;
    case 4: draw_qk(&c, room, &state); break;
    case 5: draw_merge(&c, room, &state); break;
    default:
        c.op.lrpe.variant = family == 1 ? COPES_LRPE_ROTATE : COPES_LRPE_COSINE;
        draw_lrpe(&c, room, &state);
        break;
    }
    uint64_t apart = ~state; /* shares of a softmax came later, and leave to the others their seeds */
    check_draw_passes(&c, &apart);
    check_draw_kept(&c, &apart);
    draw_repeats(&c, &state);
    if (c.op.kind == COPES_TPA_DECODE)
        draw_attention_fill(&c, &state);
    else
        draw_fill(&c, &state);
    return c;
}

check_case draw_case(uint64_t seed)
{
    return draw_case_of(seed, 0);
}
