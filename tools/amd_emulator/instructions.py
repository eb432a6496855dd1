"""RDNA3's instructions, each translated to C by tinygrad's emulator as it is first met, but for those that the emulator has
only about right or not at all: these are functions of run_grid.c."""

import ctypes
import traceback

import test.mockgpu.amd.emu as emu  # tinygrad's
from test.mockgpu.amd import pcode
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import Ops, UOp

ARCHITECTURE = "rdna3"
BY_FUNCTION = {
    "V_EXP_F32": "approximate_exp2",
    "V_RCP_F32": "approximate_rcp",
    "V_RCP_IFLAG_F32": "approximate_rcp",
    "V_SQRT_F32": "approximate_sqrt",
    "V_RSQ_F32": "approximate_rsq",
    "V_LOG_F32": "approximate_log2",
    "V_RNDNE_F32": "round_to_even",
}
# tinygrad reads x / 4 % 32 as x / (4 % 32), and lanes that are off have any address.
PERMUTED, PERMUTED_BY = "32'I(VGPR[i][ADDR] + OFFSET.b32) / 4 % 32", "((32'U(VGPR[i][ADDR] + OFFSET.b32) >> 2U) & 31U)"
INVALIDATE_CACHES = (0xE0AC0000, 0xE0B00000)  # buffer_gl0_inv, buffer_gl1_inv: nothing to do where memory is one
GET_PC, GET_PC_MASK = 0xBE804700, 0xFF80FF00  # s_getpc_b64


def calls(run, name, result, arguments, dtype):
    """A function of run_grid.c as an operation of the emulator's."""
    address = ctypes.cast(getattr(run, name), ctypes.c_void_p).value
    places = ", ".join(f"{{{i}}}" for i in range(len(arguments)))
    text = f'(({result}(*)({", ".join(arguments)})){address}ul)({places})'
    return lambda *given: UOp(Ops.CUSTOMI, dtype, tuple(given), arg=text)


def of_floats(function):
    def call(*given):
        return function(*[x.bitcast(dtypes.float32) if x.dtype == dtypes.uint32 else x for x in given])

    return call


def install(run):
    """Puts the functions of run_grid.c in the emulator."""
    emulated_fma, emulated_ldexp, emulated_pcode = pcode._FUNCS["fma"], pcode._FUNCS["ldexp"], emu.get_pcode
    ldexp = calls(run, "scale_by_power", "float", ["float", "int"], dtypes.float32)

    def fma(a, b, c):
        suffix = {dtypes.float32: "f", dtypes.float64: ""}.get(a.dtype)
        if suffix is None:
            return emulated_fma(a, b, c)
        return UOp(Ops.CUSTOMI, a.dtype, (a, b, c), arg=f"__builtin_fma{suffix}({{0}}, {{1}}, {{2}})")

    def scale(value, exponent):
        value = value.bitcast(dtypes.float32) if value.dtype == dtypes.uint32 else value
        if value.dtype != dtypes.float32:
            return emulated_ldexp(value, exponent)
        return ldexp(value, exponent.cast(dtypes.int))

    def get_pcode(operation):
        name = operation.name.replace("_E32", "").replace("_E64", "")
        if name in BY_FUNCTION:
            return f"D0.f32 = {BY_FUNCTION[name]}(S0.f32)"
        if name == "V_LDEXP_F32":
            return "D0.f32 = ldexp(S0.f32, S1.i32)"
        text = emulated_pcode(operation)
        if name == "DS_BPERMUTE_B32":
            assert PERMUTED in text
            return text.replace(PERMUTED, PERMUTED_BY)
        return text

    pcode._FUNCS.update(
        fma=fma,
        ldexp=scale,
        f32_to_i32=of_floats(calls(run, "to_int", "int", ["float"], dtypes.int)),
        f32_to_u32=of_floats(calls(run, "to_unsigned", "unsigned", ["float"], dtypes.uint32)),
    )
    for name in set(BY_FUNCTION.values()):
        pcode._FUNCS[name] = of_floats(calls(run, name, "float", ["float"], dtypes.float32))
    emu.get_pcode = get_pcode


def translator(run):
    """What fills the Entry of an instruction; 1 where it cannot."""

    def translate(code, place):
        entry, word = code.entry(place), ctypes.c_uint32.from_address(place).value
        try:
            if word in INVALIDATE_CACHES:
                entry.run = ctypes.cast(run.skip_8, ctypes.c_void_p).value
            elif word & GET_PC_MASK == GET_PC:
                entry.run = ctypes.cast(run.get_pc, ctypes.c_void_p).value
            else:
                (program, runtime), instruction = emu._decode_at(place, ARCHITECTURE)
                entry.run = ctypes.cast(runtime.fxn, ctypes.c_void_p).value
                for i, buffer in enumerate(program.arg.globals):
                    entry.map[i] = buffer
                entry.barrier = isinstance(instruction, emu.ir3.SOPP) and instruction.op in emu._BARRIER_OPS
            entry.known = 1
            return 0
        except Exception:  # from a callback of C's there is nowhere to raise it to
            traceback.print_exc()
            return 1

    return translate
