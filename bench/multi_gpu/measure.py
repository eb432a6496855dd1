"""What the checks and the times of all operators share."""

import statistics

import torch
import torch.distributed as dist

LENGTHS = (37, 0, 256, 3, 91, 1, 0, 640)  # of contiguous shares that are checked: unequal ones, and empty ones
UNITS = {torch.float32: 2e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}


def share_of_rank(rank):
    """Its part of all that is checked, a slice."""
    return slice(sum(LENGTHS[:rank]), sum(LENGTHS[: rank + 1]))


class Checks:
    """Counts what fails on any rank; rank 0 says what was checked."""

    def __init__(self):
        self.failed = self.passed = 0

    def expect(self, name, good):
        bad = torch.tensor([not good], dtype=torch.int32, device="cuda")
        dist.all_reduce(bad)
        self.failed += bool(bad.item())
        self.passed += not bad.item()
        if bad.item() and dist.get_rank() == 0:
            print(f"FAILED on {bad.item()} ranks: {name}")

    def near(self, name, made, wanted, unit):
        self.expect(name, torch.allclose(made.double(), wanted, rtol=unit, atol=unit))

    def same_bits(self, name, x):
        """Those of every rank?"""
        bits = x.contiguous().flatten().view(torch.uint8)
        every = [torch.empty_like(bits) for _ in range(dist.get_world_size())]
        dist.all_gather(every, bits)
        self.expect(name, all(torch.equal(each, bits) for each in every))


HOSTS_APART = 1_000_000  # cycles of a GPU in which all hosts have enqueued a repeat


def begin_together(one):
    """All GPUs begin what is enqueued next at once, whenever their hosts are ready."""
    dist.all_reduce(one)
    torch.cuda._sleep(HOSTS_APART)


def median_us(call, repeats):
    """Of the slowest rank, in a graph that was recorded: what the host needs for a call is not in it. A gradient is found on the
    stream of its forward, so that both must be on the current stream, and it must be one that can be recorded."""
    one = torch.zeros(1, device="cuda")
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        call()
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin_together(one)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    slowest = torch.tensor([statistics.median(times[3:])], device="cuda", dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def time_collective(repeats):
    """us of an all-gather that moves 4 bytes from each rank."""
    one = torch.zeros(1, device="cuda")
    every = one.new_empty(dist.get_world_size())
    return median_us(lambda: dist.all_gather_into_tensor(every, one), repeats)
