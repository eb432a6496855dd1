"""Checks copes.distributed over NCCL, a process for each GPU, and times it beside one GPU and beside PyTorch's spelling.

Run by tools/multi_gpu.sh. A failed check is an exit status of 1 on every rank."""

import argparse
import json
import os
import pathlib

import torch
import torch.distributed as dist
from decode import check_decode, check_merge, print_decode, time_decode
from dtensors import check_dtensors
from measure import Checks, time_collective
from overlap import check_overlap
from softmax import check_softmax, print_softmax, time_softmax


def print_title(checks, world):
    versions = f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
    print(
        f"\n{world} x {torch.cuda.get_device_name()}, {versions}: {checks.passed} checks passed, {checks.failed} failed"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, and no cache or sequence of a million tokens"
    )
    parser.add_argument("--out", type=pathlib.Path, help="write the times there, as JSON")
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_stream(torch.cuda.Stream())  # the default one cannot be recorded
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, world = dist.get_rank(), dist.get_world_size()
    checks = Checks()
    check_decode(checks, rank, world)
    check_merge(checks, rank, world)
    check_softmax(checks, rank, world)
    check_dtensors(checks, world)
    check_overlap(checks)
    repeats = 10 if args.quick else 50
    times = {"collective": time_collective(repeats)}
    caches, sequences = (32768, 262144, 1048576), (262144, 1048576)
    if args.quick:
        caches, sequences = caches[:-1], sequences[:-1]
    times["decode"] = [time_decode(keys, rank, world, repeats) for keys in caches]
    times["softmax"] = [time_softmax(tokens, rank, world, repeats) for tokens in sequences]
    if rank == 0:
        print_title(checks, world)
        print_decode(times["decode"], times["collective"], world)
        print_softmax(times["softmax"], world)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / f"multi_gpu_{world}.json").write_text(json.dumps(times, indent=1))
    dist.destroy_process_group()
    raise SystemExit(checks.failed > 0)


if __name__ == "__main__":
    main()
