"""A row of the table `prologue` being measured: one of `rope` whose calls may have a cache among their outputs, and beside
them what it costs to launch nothing."""

import torch

from .prologue import make_setting, make_tensors, pack
from .prologue_reference import expected, slices
from .rope_row import RopeRow


class PrologueRow(RopeRow):
    def prepare(self):
        self.setting = make_setting(self.case, self.meter.device)
        self.inputs = make_tensors(self.case, self.meter.device)

    def expected(self):
        return expected(self.case, self.setting, self.inputs)

    def slices(self, results):
        return slices(self.case, self.setting, results)

    def function(self, provider):
        return provider.prologue(self.case, self.setting)

    def buffers(self):
        if not self.case.packed:
            return super().buffers()
        inputs = pack(self.inputs)
        return inputs, self.outputs(inputs)

    def outputs(self, inputs):
        if not self.case.cache:
            return super().outputs(inputs)
        caches = [inputs[0].new_zeros(self.case.cache_shape) for _ in range(2)]
        return [torch.empty_like(inputs[0]), *caches]

    def measure_copy(self, row):
        """And the floor of a decoding step: as many empty kernels in a graph."""
        super().measure_copy(row)
        if self.case.decodes and row.get("empty_replay_ms") is None:
            row["empty_replay_ms"] = self.meter.empty_replay_ms(self.case.replays)
