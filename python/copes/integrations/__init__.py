"""Models of other packages that turn by copes. Each module is loaded when it is first asked for, as it needs PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import transformers as transformers
else:

    def __getattr__(name):
        if name == "transformers":
            return importlib.import_module(".transformers", __name__)
        raise AttributeError(f"module 'copes.integrations' has no attribute {name!r}")
