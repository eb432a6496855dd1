"""The loop over rows and providers. Before it is timed, what a provider computes is held against float64 on a slice and
against the other providers as a whole; what fails is kept with its reason, and the others go on."""

import gc

from . import prologue, rope
from .agreement import AGREEMENT, reason_of, refuse_wrong, relative_error
from .cases import make_gradient, make_inputs
from .measure import make_call
from .progress import progress
from .prologue_row import PrologueRow
from .reference import expected, slice_of
from .rope_row import RopeRow

REPLAYED = {rope.OP: RopeRow, prologue.OP: PrologueRow}  # tables whose calls follow each other in a graph


class Broken(Exception):
    """The device takes no more work from this process."""


class Row:
    """A case being measured: what its providers are held against."""

    def __init__(self, case, meter):
        self.case, self.meter = case, meter
        inputs = make_inputs(case, meter.device)
        gradient = self.gradient()
        self.truth = expected(case, inputs, gradient)
        self.first = None  # the name and the result of the first provider that was right

    def measure_copy(self, row):
        """There is one for the calls as Python makes them, which stands for a replayed one, too."""

    def gradient(self):
        return make_gradient(self.case, self.meter.device) if self.case.mode == "backward" else None

    def prepare(self, provider):
        """The call that is measured."""
        inputs = make_inputs(self.case, self.meter.device)
        return make_call(provider, self.case, inputs, self.gradient())

    def check(self, provider, result):
        """The relative error of the slice. Raises where it, or the whole beside another provider's, is too large."""
        error = relative_error(slice_of(self.case, result, is_output=True), self.truth)
        refuse_wrong(error, "float64")
        if self.first is None:
            self.first = provider.name, result
        refuse_wrong(relative_error(result, self.first[1]), self.first[0], 2 * AGREEMENT)
        return error

    def measure(self, provider):
        """The outcome of a provider that works."""
        with self.meter.memory() as memory:
            call = self.prepare(provider)
            call()
            memory(call)
        error = self.check(provider, call())
        ms, repeats = self.meter.median_ms(call)
        outcome = {"ms": ms, "repeats": repeats, "mib": memory.mib, "error": error}
        try:
            outcome["replay_ms"] = self.meter.replay_ms(call)
        except Exception as error:
            outcome["replay_failed"] = reason_of(error)
        return outcome

    def outcome(self, provider):
        """Of any provider."""
        try:
            return self.measure(provider)
        except Exception as error:
            return {"failed": reason_of(error)}


def clean(meter, outcomes):
    """Gives memory back for the next row. What a failure held is in its traceback's cycles."""
    if any("failed" in outcome for outcome in outcomes):
        gc.collect()
    meter.tidy()


def missing_cells(cases, providers, results):
    """The pairs of a case and a provider that are still to be measured."""
    have = {key: row["providers"] for key, row in results.rows.items()}
    return [(c, p) for c in cases for p in providers if p.runs(c) and p.name not in have.get(c.key, ())]


def run(cases, providers, meter, results, quiet=False):
    """Measures what results lack, and keeps it as it comes."""
    todo = {}
    for case, provider in missing_cells(cases, providers, results):
        todo.setdefault(case, []).append(provider)
    total = sum(map(len, todo.values()))
    with progress(total=total, disable=quiet) as bar, meter.running():
        for case, wanted in todo.items():
            row = results.row(case.key, case=case.fields(), bytes=case.bytes_moved, copy_ms=None)
            run_row(case, row, wanted, meter, results, bar)
            clean(meter, row["providers"].values())


def run_row(case, row, providers, meter, results, bar):
    """One row's providers, the copy first. A row that the device has no room for fails as a whole."""
    bar.set_description(case.key)
    try:
        row["copy_ms"] = row["copy_ms"] or meter.copy_ms(case.bytes_moved)
        measured = REPLAYED.get(case.op, Row)(case, meter)
        measured.measure_copy(row)
    except Exception as error:
        row["providers"].update({provider.name: {"failed": reason_of(error)} for provider in providers})
        providers = ()
    for provider in providers:
        bar.set_postfix_str(provider.name)
        measure_cell(measured, provider, row["providers"], results)
        bar.update()
    results.save(case.key)


def measure_cell(measured, provider, outcomes, results):
    """Measures one provider. Should the process die of it, a resumed run passes it by."""
    outcomes[provider.name] = {"failed": "the process ended while it was measured"}
    results.save(measured.case.key)
    try:
        outcomes[provider.name] = measured.outcome(provider)
    except BaseException:  # interrupted: to be measured when resumed
        del outcomes[provider.name]
        results.save(measured.case.key)
        raise
    try:
        measured.meter.finish()
    except Exception as error:
        results.save(measured.case.key)
        raise Broken(f"{provider.name}, {measured.case.key}: {reason_of(error)}; run again to go on") from error
