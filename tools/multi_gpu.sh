#!/usr/bin/env bash
# On a machine with several GPUs: checks copes.distributed over NCCL on 2, 4, 8 .. of them, as many as there are, and prints its times.
# Then the same of copes.jax on all of them, where PYTHON has JAX.
# tools/multi_gpu.sh [--gpus "N ..."] [--python PYTHON] [FLAG ...]
# PYTHON has copes and PyTorch. FLAGs go to bench/multi_gpu: --quick, --out FOLDER.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=python3 gpus=''
while [ $# -gt 0 ]; do
    case $1 in
    --gpus) gpus=$2 && shift 2 ;;
    --python) python=$2 && shift 2 ;;
    --help) sed -n '2,5s/^# //p' "$0" && exit 2 ;;
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
if "$python" -c 'import jax' 2> /dev/null; then
    XLA_PYTHON_CLIENT_PREALLOCATE=false "$python" "$root/bench/multi_gpu/jax_shards.py"
else
    echo "$python has no JAX: copes.jax is not checked" >&2
fi
