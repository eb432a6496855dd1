"""When a provider's result is the right function, and a line that says what went wrong with one."""

import torch

# ||ours - theirs|| / ||theirs|| of results that are the same function in bfloat16: storage alone costs 0.002, products
# and sums rounded to bfloat16 on the way up to 0.02.
AGREEMENT = 0.05


class Disagreement(Exception):
    """A provider's result is not what it must be."""


def relative_error(a, b):
    """||a - b|| / ||b||, entry of the batch by entry, so that large tensors need no copy as large."""
    difference = sum((x.double() - y.double()).square().sum().item() for x, y in zip(a, b))
    size = sum(y.double().square().sum().item() for y in b)
    return (difference / size) ** 0.5 if size > 0 else difference**0.5


def refuse_wrong(error, against, bound=AGREEMENT):
    """Raises where a relative error is too large, or no number."""
    if not error <= bound:
        raise Disagreement(f"wrong: relative error {error:.2g} against {against}")


def reason_of(error):
    """A line that says what went wrong."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return "out of memory"
    text = (str(error).strip() or "no message").splitlines()[0]
    return text if isinstance(error, Disagreement) else f"{type(error).__name__}: {text}"[:300]
