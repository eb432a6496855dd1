"""A row of the table `rope` being measured. A provider's `rope` gives a function of inputs and outputs, that calls may
follow each other on memory of their own as the layers of a model do; angles they share."""

import functools

import torch

from .agreement import AGREEMENT, reason_of, refuse_wrong, relative_error
from .measure import forget_compiled
from .rope import make_angles, make_inputs
from .rope_reference import expected, slices


class RopeRow:
    """What the providers of a row are held against."""

    def __init__(self, case, meter):
        self.case, self.meter = case, meter
        self.prepare()
        self.first = None  # the name and the results of the first provider that was right

    def prepare(self):
        """What all calls have to do with."""
        self.angles = make_angles(self.case, self.meter.device)
        self.inputs = make_inputs(self.case, self.meter.device)
        self.saved = make_inputs(self.case, self.meter.device, seed=2025) if self.case.mode != "forward" else ()

    @functools.cached_property
    def truth(self):
        return self.expected()

    def expected(self):
        return expected(self.case, self.angles, self.inputs, self.saved)

    def slices(self, results):
        return slices(self.case, results)

    def function(self, provider):
        """Of lists of inputs and outputs."""
        return provider.rope(self.case, self.angles, self.saved)

    def measure_copy(self, row):
        """A copy of the same bytes, replayed as the calls are."""
        if row.get("copy_replay_ms") is None:
            row["copy_replay_ms"] = self.meter.copy_replay_ms(self.case.bytes_moved, self.case.replays)

    def buffers(self):
        """Inputs and outputs of a call."""
        inputs = [x.clone() for x in self.inputs]
        return inputs, self.outputs(inputs)

    def outputs(self, inputs):
        return inputs if self.case.in_place else [torch.empty_like(x) for x in inputs]

    def check(self, provider, results):
        """The relative error of the slices. Raises where it, or the whole beside another provider's, is too large."""
        error = max(relative_error(a, b) for a, b in zip(self.slices(results), self.truth, strict=True))
        refuse_wrong(error, "float64")
        if self.first is None:
            self.first = provider.name, [x.clone() if self.case.in_place else x for x in results]
        apart = max(relative_error(a, b) for a, b in zip(results, self.first[1], strict=True))
        refuse_wrong(apart, self.first[0], 2 * AGREEMENT)
        return error

    def replay_ms(self, run, first):
        """Of a call among as many in a graph; None where there are no graphs. Results stay until all are there, as
        what is written over them would be in the cache."""
        sets = [first] + [self.buffers() for _ in range(self.case.replays - 1)]
        ms = self.meter.replay_ms(lambda: [run(*each) for each in sets])
        return None if ms is None else ms / self.case.replays

    def measure(self, provider):
        """The outcome of a provider that works."""
        forget_compiled(provider)
        run = torch.no_grad()(self.function(provider))
        run(*self.buffers())  # compiles
        buffers = self.buffers()
        error = self.check(provider, run(*buffers))
        ms, repeats = self.meter.median_ms(lambda: run(*buffers))
        outcome = {"ms": ms, "repeats": repeats, "error": error}
        try:
            replayed = self.replay_ms(run, buffers)
            if replayed is not None:
                outcome["replay_ms"] = replayed
        except Exception as error:
            outcome["replay_failed"] = reason_of(error)
        return outcome

    def outcome(self, provider):
        """Of any provider."""
        try:
            return self.measure(provider)
        except Exception as error:
            return {"failed": reason_of(error)}

    def compile_only(self, provider):
        """Runs it once, and looks at nothing."""
        forget_compiled(provider)
        run = torch.no_grad()(self.function(provider))
        run(self.inputs, self.outputs(self.inputs))
