"""results.json: every figure of a comparison, kept after each measurement; a run is resumed and rendered from it."""

import json
import os
import pathlib


class Results:
    """{"about": {...}, "rows": {key: {"case": {...}, "bytes": ..., "copy_ms": ..., "providers": {name: outcome}}}}

    An outcome is {"ms", "replay_ms", "mib", "error", "repeats"} or {"failed": reason}. "notes" in "about" are sentences for
    the report, written by hand."""

    def __init__(self, folder, about=None):
        self.path = pathlib.Path(folder) / "results.json"
        self._texts = {}  # of rows as they were saved last, as most do not change
        self.data = {"about": about or {}, "rows": {}}
        if self.path.exists():
            self.data = json.loads(self.path.read_text(encoding="utf-8"))
            if about:
                self._go_on(about)

    def _go_on(self, about):
        """What was measured elsewhere is not to be mixed in; what is told of the run is then of both."""
        old = self.data["about"]
        for name in ("device", "torch"):
            if old.get(name) != about.get(name):
                found, now = old.get(name), about.get(name)
                raise SystemExit(f"{self.path}: measured with {name} {found}, and this is {now}; give another --out")
        commands = [line for line in old.get("commands", []) if line not in about.get("commands", [])]
        self.data["about"] = {**old, **about, "commands": commands + about.get("commands", [])}
        for name in ("versions", "missing"):
            self.data["about"][name] = {**old.get(name, {}), **about.get(name, {})}

    @property
    def rows(self):
        return self.data["rows"]

    def row(self, key, **fields):
        """The row, made of the fields where it is new."""
        return self.rows.setdefault(key, {**fields, "providers": {}})

    def forget(self, names):
        """Drops the outcomes of these providers, to be measured again."""
        for row in self.rows.values():
            for name in names:
                row["providers"].pop(name, None)

    def save(self, changed=None):
        """`changed`: the key of the only row that is not as it was; else any may be."""
        if changed is None:
            self._texts.clear()
        self._texts.pop(changed, None)
        for key, row in self.rows.items():
            if key not in self._texts:
                self._texts[key] = f"{json.dumps(key)}: {json.dumps(row)}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        rows = ",\n".join(self._texts[key] for key in self.rows)
        about = json.dumps(self.data["about"], indent=1)
        draft.write_text(f'{{"about": {about},\n"rows": {{\n{rows}\n}}}}\n', encoding="utf-8")
        os.replace(draft, self.path)
