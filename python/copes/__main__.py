"""python -m copes: the command `copes`, which runs, checks and times operators (python -m copes --help)."""

import os
import signal
import sys

from . import _copes


def main() -> int:
    if not hasattr(_copes, "command"):
        print("copes: this build has no command; build it with cJSON installed (-Dtools=enabled)", file=sys.stderr)
        return 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _copes.command([b"copes", *map(os.fsencode, sys.argv[1:])])


if __name__ == "__main__":
    sys.exit(main())
