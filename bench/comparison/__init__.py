"""The comparison benchmark: the published tables of the Triton library xopes, with a column for each provider.

command    the arguments, and the steps in their order
cases      what is measured: operators, sizes, inputs, the bytes that must move
providers  who runs them: copes, PyTorch eager and compiled, xopes, FlashTPA; of RoPE flash-attn, QuACK, Liger, FlashInfer
reference  the operators in float64, on a slice
rope       RoPE over any positions, a table of its own, with rope_reference, rope_row and replayed_report
agreement  when a result is the right function
measure    time with cold caches, time of a replayed CUDA graph, memory
session    the loop: check, measure, keep; a provider that fails costs its own cell and nothing else
compiling  compiles everything in several processes first, so that the GPU does not wait
progress   the progress bar
results    results.json: resumed, rendered
report     report.md
plots      the plots
"""
