"""Times with cold caches, by events on a GPU and by the clock on the CPU; replayed CUDA graphs; the peak of memory."""

import contextlib
import pathlib
import statistics
import time

import torch

MEBI = 1 << 20
MOST_FLUSH = 256 * MEBI  # servers tell of more cache than a few cores ever fill


def forget_compiled(provider):
    """Before a provider that compiles is given another case."""
    if provider.compiles:
        import torch._dynamo

        torch._dynamo.reset()  # else it compiles for any length after a few, and then no more


def make_call(provider, case, inputs, gradient):
    """What is measured: the provider's function on these inputs or, with a gradient that arrives at the output, its
    backward."""
    forget_compiled(provider)
    function = provider.function(case, inputs)
    if gradient is None:
        return forward_call(function, inputs)
    return backward_call(function, inputs, gradient)


def forward_call(function, inputs):
    """The operator as inference runs it."""

    def call():
        with torch.no_grad():
            return function(*inputs)

    return call


def backward_call(function, inputs, gradient):
    """The gradient of x alone, from a forward that has run. Held are the edges of the graph, not its tensors, so that
    what stays allocated is what the provider saved."""
    zero = torch.zeros((), dtype=inputs[0].dtype, device=inputs[0].device, requires_grad=True)
    with torch.enable_grad():
        x = inputs[0] + zero
        out = function(x, *inputs[1:])
    source, target = torch.autograd.graph.get_gradient_edge(out), torch.autograd.graph.get_gradient_edge(x)
    return lambda: torch.autograd.grad(source, target, gradient, retain_graph=True)[0]


def gradients_call(outputs, inputs):
    """A function of the gradients that arrive at the outputs, giving those of the inputs."""
    sources, targets = (list(map(torch.autograd.graph.get_gradient_edge, ends)) for ends in (outputs, inputs))
    return lambda gradients: torch.autograd.grad(sources, targets, gradients, retain_graph=True)


class Meter:
    """One device's clock. Repeats fill about `budget_ms`, but are at least `least` and at most `most`."""

    least, most, budget_ms = 10, 100, 20.0

    def median_ms(self, call):
        """The median time of a call whose data is in no cache, and of how many."""
        start = time.perf_counter()
        (first,) = self._times(call, 1)
        cost = self.cost_ms(first, (time.perf_counter() - start) * 1e3)
        repeats = min(max(int(self.budget_ms / max(cost, 1e-6)), self.least), self.most)
        return statistics.median(self._times(call, repeats)), repeats

    def copy_ms(self, total):
        """A copy that moves so many bytes, half of them read and half written."""
        source = torch.ones(total // 2, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        self._times(lambda: target.copy_(source), 1)
        return self.median_ms(lambda: target.copy_(source))[0]


class CudaMeter(Meter):
    """Everything runs on one stream. What is timed is queued before any of it is waited for."""

    device = "cuda"

    def __init__(self):
        self.stream = torch.cuda.Stream()
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.ones(3 * cache // 4, dtype=torch.float32, device=self.device)
        self.most_of_it = torch.empty((), dtype=torch.float32, device=self.device)

    def running(self):
        return torch.cuda.stream(self.stream)

    def cost_ms(self, measured, elapsed):
        """Of the budget, for a repeat."""
        del elapsed  # the host's, who need not wait between repeats
        return measured

    def _times(self, call, repeats):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
        for start, end in events:
            torch.amax(self.flush, (0,), out=self.most_of_it)  # read, so that nothing is left to be written back
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def copy_replay_ms(self, total, count):
        """As copy_ms, of a copy in a graph of many, each from and to memory of its own."""
        sources = [torch.ones(total // 2, dtype=torch.uint8, device=self.device) for _ in range(count)]
        pairs = [(torch.empty_like(source), source) for source in sources]
        return self.replay_ms(lambda: [target.copy_(source) for target, source in pairs]) / count

    def empty_replay_ms(self, count):
        """Of a kernel that does nothing, in a graph of many."""
        return self.replay_ms(lambda: [torch.cuda._sleep(0) for _ in range(count)]) / count

    def replay_ms(self, call):
        """As median_ms, of the call captured in a graph: no launch is waited for."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            call()
        finally:
            graph.capture_end()
        graph.replay()
        return self.median_ms(graph.replay)[0]

    def finish(self):
        torch.cuda.synchronize()

    def tidy(self):
        """The allocator keeps what it has, but for blocks that no later row may fit."""
        if torch.cuda.memory_reserved() > torch.cuda.get_device_properties(0).total_memory // 3:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def memory(self):
        """Yields a function that runs a call; the result's `mib` is its peak above what stood here."""
        before = torch.cuda.memory_allocated()

        def run(call):
            torch.cuda.reset_peak_memory_stats()
            call()
            torch.cuda.synchronize()
            run.mib = (torch.cuda.max_memory_allocated() - before) / MEBI

        yield run


def last_level_cache():
    """Bytes of the largest cache that the first core sees; 32 MiB where it is not told."""
    sizes = pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    texts = [path.read_text(encoding="ascii").strip() for path in sizes]
    return max((int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] for text in texts), default=32 * MEBI)


class CpuMeter(Meter):
    """The clock around each call, and the profiler's record of allocations."""

    device = "cpu"
    least, most, budget_ms = 5, 50, 300.0

    def __init__(self, warm=False):
        size = 0 if warm else min(2 * last_level_cache(), MOST_FLUSH) // 4
        self.flush = torch.ones(size, dtype=torch.float32)

    def running(self):
        return contextlib.nullcontext()

    def cost_ms(self, measured, elapsed):
        """Emptying the caches takes its time too."""
        return max(measured, elapsed)

    def _times(self, call, repeats):
        times = []
        for _ in range(repeats):
            self.flush.sum()
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def replay_ms(self, *_):
        """There are no graphs to replay."""

    copy_replay_ms = empty_replay_ms = replay_ms

    def finish(self):
        pass

    tidy = finish

    @contextlib.contextmanager
    def memory(self):
        """As CudaMeter's."""
        mark = "the measured call"

        def run(call):
            with torch.profiler.record_function(mark):
                call()

        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            yield run
        events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
        total = peak = 0
        for event in events:
            if event.name() == mark:
                peak = total
            elif event.name() == "[memory]":
                total += event.nbytes()
                peak = max(peak, total)
        run.mib = peak / MEBI


def meter_of(device, warm=False):
    return CudaMeter() if device == "cuda" else CpuMeter(warm)
