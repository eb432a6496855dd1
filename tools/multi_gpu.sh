#!/usr/bin/env bash
# On a machine with several GPUs: checks copes.distributed over NCCL on 2, 4, 8 .. of them, as many as there are, and prints its times.
# tools/multi_gpu.sh [--gpus "N ..."] [--python PYTHON] [FLAG ...]
# PYTHON has copes and PyTorch. FLAGs go to bench/multi_gpu: --quick, --out FOLDER.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=python3 gpus=''
while [ $# -gt 0 ]; do
    case $1 in
    --gpus) gpus=$2 && shift 2 ;;
    --python) python=$2 && shift 2 ;;
    --help) sed -n '2,4s/^# //p' "$0" && exit 2 ;;
    *) break ;;
    esac
done

found=$(nvidia-smi --list-gpus | wc -l)
if [ -z "$gpus" ]; then
    for ((n = 2; n <= found; n *= 2)); do gpus="$gpus $n"; done
fi
[ -n "$gpus" ] || { echo "this machine has $found GPU; it must have 2 or more" >&2 && exit 2; }

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
nvidia-smi topo -m
# Multicast over NVLink adds in the switch, in an order of its own.
export NCCL_NVLS_ENABLE=0 OMP_NUM_THREADS=1
for n in $gpus; do
    "$python" -m torch.distributed.run --standalone --nproc-per-node "$n" "$root/bench/multi_gpu" "$@"
done
