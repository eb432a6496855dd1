"""A code object of AMD's compiler in memory: its kernels, their arguments, and its translated instructions."""

import ctypes
import struct

LOAD, DYNAMIC_SYMBOLS, RELOCATIONS, NOTES = 1, 11, 4, 4
RELATIVE64 = 13
PACKET_BYTES = 64
GARBAGE = b"\xa5"

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
READ_WRITE, PRIVATE_ANONYMOUS = 3, 0x22


class Entry(ctypes.Structure):
    """struct entry of run_grid.c: an instruction's function, and which buffer is each of its arguments."""

    _fields_ = [
        ("run", ctypes.c_void_p),
        ("map", ctypes.c_uint8 * 8),
        ("barrier", ctypes.c_uint64),
        ("known", ctypes.c_uint64),
    ]


def unpack(data, at):
    """The MessagePack value at a place, and the place after it: as much of the format as code objects have."""
    kind = data[at]
    if kind < 0x80:
        return kind, at + 1
    if kind < 0x90:
        return unpack_table(data, at + 1, kind & 15)
    if kind < 0xA0:
        return unpack_list(data, at + 1, kind & 15)
    if kind < 0xC0:
        return unpack_text(data, at + 1, kind & 31)
    if kind in (0xC2, 0xC3):
        return kind == 0xC3, at + 1
    for first, bytes_of_first, signed in ((0xCC, 1, False), (0xD0, 1, True)):
        if first <= kind < first + 4:
            size = bytes_of_first << (kind - first)
            return int.from_bytes(data[at + 1 : at + 1 + size], "big", signed=signed), at + 1 + size
    for first, count, bytes_of_first, read in (
        (0xD9, 3, 1, unpack_text),
        (0xDC, 2, 2, unpack_list),
        (0xDE, 2, 2, unpack_table),
    ):
        if first <= kind < first + count:
            size = bytes_of_first << (kind - first)
            return read(data, at + 1 + size, int.from_bytes(data[at + 1 : at + 1 + size], "big"))
    raise ValueError(f"MessagePack has no {kind:#x} here")


def unpack_list(data, at, count):
    values = []
    for _ in range(count):
        value, at = unpack(data, at)
        values.append(value)
    return values, at


def unpack_table(data, at, count):
    values, at = unpack_list(data, at, 2 * count)
    return dict(zip(values[::2], values[1::2])), at


def unpack_text(data, at, count):
    return data[at : at + count].decode(), at + count


class CodeObject:
    """`translate`, of a place in memory, fills the Entry of the instruction there."""

    def __init__(self, data, translate):
        self.kernels, self.symbols = {}, {}
        self._load(data)
        self._read_sections(data)
        self.program = (Entry * (self.size // 4))()
        self.compiler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)(lambda place: translate(self, place))

    def _load(self, data):
        (offset,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        heads = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        loaded = [head for head in heads if head[0] == LOAD]
        self.size = (max(head[3] + head[6] for head in loaded) + 8191) // 4096 * 4096
        self.base = libc.mmap(None, self.size, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0)
        for head in loaded:
            ctypes.memmove(self.base + head[3], bytes(data[head[2] : head[2] + head[5]]), head[5])
        for head in heads:
            if head[0] == NOTES:
                (name_size,) = struct.unpack_from("<I", data, head[2])
                notes, _ = unpack(data, head[2] + 12 + (name_size + 3) // 4 * 4)
                self.kernels.update({kernel[".name"]: kernel for kernel in notes["amdhsa.kernels"]})

    def _read_sections(self, data):
        (offset,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
        for section in sections:
            items = range(section[4], section[4] + section[5], 24)
            if section[1] == DYNAMIC_SYMBOLS:
                names = sections[section[6]][4]
                for at in items:
                    name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
                    self.symbols[data[names + name : data.index(b"\0", names + name)].decode()] = value
            elif section[1] == RELOCATIONS:
                for at in items:
                    where, info, addend = struct.unpack_from("<QQq", data, at)
                    if info & 0xFFFFFFFF != RELATIVE64:
                        raise ValueError(f"relocation {info & 0xffffffff} is not known")
                    ctypes.c_uint64.from_address(self.base + where).value = self.base + addend

    def entry(self, place):
        return self.program[(place - self.base) // 4]

    def explicit_arguments(self, name):
        return [a for a in self.kernels[name][".args"] if not a[".value_kind"].startswith("hidden")]

    def argument_segment(self, name, shape, arguments):
        """The memory that a kernel's arguments lie in, those that the compiler adds included."""
        kernel = self.kernels[name]
        size = kernel[".kernarg_segment_size"] + 64
        segment = ctypes.create_string_buffer(GARBAGE * size, size)
        hidden = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": shape[6]}
        for i, axis in enumerate("xyz"):
            hidden[f"hidden_block_count_{axis}"] = shape[i]
            hidden[f"hidden_group_size_{axis}"] = shape[3 + i]
        for argument, value in zip(self.explicit_arguments(name), arguments, strict=True):
            ctypes.memmove(ctypes.addressof(segment) + argument[".offset"], value, len(value))
        for argument in kernel[".args"]:
            if argument[".value_kind"].startswith("hidden"):
                value = hidden.get(argument[".value_kind"], 0).to_bytes(argument[".size"], "little")
                ctypes.memmove(ctypes.addressof(segment) + argument[".offset"], value, len(value))
        return segment

    def launch(self, run, name, shape, arguments, order):
        """Runs a grid of shape[:3] blocks of shape[3:6] threads with shape[6] bytes of dynamic local memory."""
        descriptor = self.base + self.symbols[name + ".kd"]
        local, private = struct.unpack("<II", ctypes.string_at(descriptor, 8))
        (entry,) = struct.unpack("<q", ctypes.string_at(descriptor + 16, 8))
        (resources,) = struct.unpack("<I", ctypes.string_at(descriptor + 52, 4))
        (properties,) = struct.unpack("<H", ctypes.string_at(descriptor + 56, 2))
        if private != 0 or not properties >> 10 & 1:
            raise ValueError(f"{name} has scratch memory, or waves of 64")
        segment = self.argument_segment(name, shape, arguments)
        packet = ctypes.create_string_buffer(PACKET_BYTES)
        grid = [shape[i] * shape[3 + i] for i in range(3)]
        struct.pack_into("<HHHHHHIII", packet, 0, 0, 3, *shape[3:6], 0, *grid)
        registers = []  # a kernel's first scalar registers: those of these that its properties ask for
        pointers = [
            (0, 4),
            (ctypes.addressof(packet), 2),
            (0, 2),
            (ctypes.addressof(segment), 2),
            (0, 2),
            (0, 2),
            (0, 1),
        ]
        for bit, (value, words) in enumerate(pointers):
            if properties >> bit & 1:
                registers += [value >> 32 * i & 0xFFFFFFFF for i in range(words)]
        registers += [0] * ((resources >> 1 & 31) - len(registers))
        return run.run_grid(
            ctypes.c_uint64(self.base),
            self.program,
            self.compiler,
            ctypes.c_uint64(descriptor + entry),
            (ctypes.c_uint32 * 3)(*shape[:3]),
            (ctypes.c_uint32 * 3)(*shape[3:6]),
            (ctypes.c_uint32 * len(registers))(*registers),
            len(registers),
            ctypes.c_uint32(resources),
            ctypes.c_uint64(max((local + shape[6] + 15) // 16 * 16, 16)),
            order,
        )
