#!/usr/bin/env python3
"""Whether the compiler speaks up where one operator's names are used for another: test_diagnostics.py LANGUAGE INCLUDE
COMPILER..., with LANGUAGE c or c++. What is right must compile in silence, what is wrong must not."""
import os
import pathlib
import subprocess
import sys
import tempfile

language, include, *compiler = sys.argv[1:]

BODY = """#include <copes/copes.h>
copes_status snippet(copes_context *context, DLTensor *x, DLTensor *y);
copes_status snippet(copes_context *context, DLTensor *x, DLTensor *y)
{
    copes_op op = %s;
    copes_args args = %s;
    %s
    return copes_run(context, &op, &args, NULL, 0);
}
"""
ZERO = {"c": "{.kind = COPES_LRPE_FORWARD}", "c++": "{}"}[language]
NONE = {"c": "{.in = {NULL}}", "c++": "{}"}[language]

RIGHT = ["args.lrpe_forward.x = x; args.lrpe_forward.theta = y; args.lrpe_forward.o = x; op.lrpe.act = COPES_ACT_SILU;",
         "args.act_backward.grad_o = x; args.act_backward.grad_x = x; op.kind = COPES_ACT_BACKWARD;",
         "args.in[1] = x; args.out[0] = y; op.lrpe.variant = COPES_LRPE_COSINE;"]
WRONG = {"a slot of tpa_decode in lrpe": "args.lrpe_forward.kv_len = x;",
         "a slot of the backward in the forward": "args.lrpe_forward.grad_o = x;",
         "a slot of lrpe in act": "args.act_forward.theta = x;",
         "lse of an operator without one": "args.qk_norm_rope_forward.lse = x;",
         "the output of the forward in the backward": "args.lrpe_backward.o = x;",
         "a slot's number without its operator": "args.in[COPES_ACT_X] = x;",
         "an output's number without its operator": "args.out[COPES_OUT] = x;",
         "a variant for an activation": "op.lrpe.act = COPES_LRPE_COSINE;",
         "an activation for a pairing": "op.lrpe.pairing = COPES_ACT_RELU;",
         "an activation for a kind": "op.kind = COPES_ACT_SILU;",
         "a kind for an activation": "op.act.act = COPES_ACT_BACKWARD;"}
WRONG_IN_C = {"a slot of act in lrpe": (ZERO, "{.lrpe_forward = {.x = x, .grad_x = y}}"),
              "an attribute of tpa_decode in lrpe": ("{.kind = COPES_LRPE_FORWARD, .lrpe = {.causal = 1}}", NONE),
              "a variant for an activation": ("{.kind = COPES_LRPE_FORWARD, .lrpe = {.act = COPES_LRPE_COSINE}}", NONE)}


def complaints(op, args, statement):
    """What the compiler says; its exit status is no matter, as a warning will do."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, {"c": "snippet.c", "c++": "snippet.cpp"}[language])
        path.write_text(BODY % (op, args, statement + " (void)x, (void)y;"))
        result = subprocess.run([*compiler, {"c": "-std=c11", "c++": "-std=c++17"}[language], "-Wall", "-Wextra", "-I", include,
                                 "-fsyntax-only", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=dict(os.environ, LC_ALL="C"))
        assert result.returncode == 0 or result.stdout, result
        return result.stdout


failures = [f"taken for wrong: {text}\n{said}" for text in RIGHT if (said := complaints(ZERO, NONE, text))]
failures += [f"no diagnostic: {name}" for name, text in WRONG.items() if not complaints(ZERO, NONE, text)]
if language == "c":
    failures += [f"no diagnostic: {name}" for name, (op, args) in WRONG_IN_C.items() if not complaints(op, args, "")]
print(*failures, sep="\n")
sys.exit(len(failures) > 0)
