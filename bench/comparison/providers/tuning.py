"""Self-tuning Triton kernels, tuned in less time."""

import functools


def narrow(module, warps, blocks=None):
    """Leaves a module's kernels the variants with so many warps, and so many tokens a block where they choose those.
    Variants that differ in pipeline stages alone are one: the loads of these kernels are in no loops."""
    from triton.runtime.autotuner import Autotuner
    from triton.testing import do_bench

    for kernel in vars(module).values():
        if not isinstance(kernel, Autotuner):
            continue
        fewest_stages = min(config.num_stages for config in kernel.configs)
        kernel.configs = [
            config
            for config in kernel.configs
            if config.num_stages == fewest_stages
            and config.num_warps in warps
            and (blocks is None or config.kwargs["BLOCK_N"] in blocks)
        ]
        kernel.do_bench = functools.partial(do_bench, warmup=2, rep=6)
