#!/bin/sh
# patch_tinygrad.sh FOLDER: mends what the emulator of a checkout of tinygrad gets wrong for ordinary code, once. Accesses to
# global memory go by bytes, as words would lose an address's low bits, lanes that are off leave local memory alone, and a row's
# lanes can all read one of them (DPP's row_share, called row_newbcast there).
set -eu
cd "$1"
touch test/mockgpu/__init__.py
python3 - <<'P'
path = "test/mockgpu/amd/emu.py"
text = open(path).read()
changes = (
    (
        "  scratch = UOp.param(4, dtypes.uint8, (1 << 30,))\n",
        "  scratch = UOp.param(4, dtypes.uint8, (1 << 30,))\n  vmem8 = UOp.param(6, dtypes.uint8, (1 << 48,))\n",
    ),
    (
        "mem = ctx.lds if is_lds else ctx.scratch if is_scratch else ctx.vmem\n",
        "is_atomic_op = 'ATOMIC' in op_name\n"
        "  mem = ctx.lds if is_lds else ctx.scratch if is_scratch else ctx.vmem if is_atomic_op else ctx.vmem8\n",
    ),
    ("      if is_scratch: return _mem_store_bytes(", "      if mem.dtype == dtypes.uint8: return _mem_store_bytes("),
    (
        "    idx = mem.index(addr >> addr_shift)\n    return idx.store(active.where(val, idx.load()))",
        "    idx = mem.index((addr >> addr_shift).valid(active))\n    return idx.store(active.where(val, idx))",
    ),
    (
        "      return {'ADDR': addr, 'ADDR_BASE': addr, 'OFFSET': offset,",
        "      return {'_active': _lane_active(exec_mask, lane), 'ADDR': addr, 'ADDR_BASE': addr, 'OFFSET': offset,",
    ),
    (
        "    elif op == 'row_bcast': src_lane = row_base\n",
        "    elif op == 'row_bcast': src_lane = row_base\n"
        "    elif op == 'row_newbcast': src_lane = row_base + _c(arg, dtypes.int)\n",
    ),
)
if "vmem8" not in text:
    for before, after in changes:
        if text.count(before) != 1:
            raise SystemExit(f"another tinygrad than is expected: {path} has {text.count(before)} times {before!r}")
        text = text.replace(before, after)
    open(path, "w").write(text)
P
