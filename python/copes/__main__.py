"""python -m copes: the command `copes`, which runs, checks and times operators (python -m copes --help)."""

import importlib.metadata
import os
import platform
import signal
import sys

from . import _copes


def host() -> str:
    """Python and the packages that hand tensors over, with their versions, for `copes doctor`."""
    found = [f"{platform.python_implementation()} {platform.python_version()}"]
    for name in ("torch", "numpy", "transformers"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


def main() -> int:
    if not hasattr(_copes, "command"):
        print("copes: this build has no command; build it with cJSON installed (-Dtools=enabled)", file=sys.stderr)
        return 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:]
    if arguments == ["doctor"]:
        arguments += ["--host", host()]
    return _copes.command([b"copes", *map(os.fsencode, arguments)])


if __name__ == "__main__":
    sys.exit(main())
