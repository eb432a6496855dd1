"""The progress bar: lively on a terminal, a line every ten seconds in a log."""

import sys

from tqdm import tqdm


def progress(*arguments, **settings):
    lively = sys.stderr.isatty()
    return tqdm(*arguments, unit="", mininterval=0.1 if lively else 10, dynamic_ncols=lively, **settings)
