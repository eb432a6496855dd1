"""What test_command*.py compare with: safetensors files and the operators' definitions, in Python's own numbers."""
import itertools
import json
import math
import struct

CODES = {"F64": "d", "F32": "f", "F16": "e", "I32": "i", "I64": "q", "U8": "B"}


class Tensor:
    """A shape and the elements in row-major order."""

    def __init__(self, shape, values, dtype="F64"):
        self.shape, self.values, self.dtype = tuple(shape), list(values), dtype
        assert len(self.values) == math.prod(self.shape)

    def at(self, *index):
        place = 0
        for i, length in zip(index, self.shape, strict=True):
            assert 0 <= i < length
            place = place * length + i
        return self.values[place]

    def indices(self):
        return itertools.product(*map(range, self.shape))

    def like(self, values):
        return Tensor(self.shape, values, self.dtype)

    def transposed(self, axes):
        shape = [self.shape[a] for a in axes]
        inverse = [axes.index(i) for i in range(len(axes))]
        values = [self.at(*(index[i] for i in inverse)) for index in itertools.product(*map(range, shape))]
        return Tensor(shape, values, self.dtype)


def float8(bits):
    """The number of a float8_e4m3fn."""
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = math.ldexp(fraction + 8, exponent - 10) if exponent else math.ldexp(fraction, -9)
    return -size if bits & 128 else size


def float8_bits(value):
    """Of the nearest, of two as near the even one; past the largest, that one."""
    size = min(range(127), key=lambda bits: (abs(float8(bits) - abs(value)), bits & 1))
    return size | 128 * (math.copysign(1, value) < 0)


def encode(dtype, values):
    if dtype == "F8_E4M3":
        return bytes(map(float8_bits, values))
    if dtype == "BF16":  # to nearest even
        bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
        return struct.pack(f"<{len(bits)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def decode(dtype, data):
    if dtype == "F8_E4M3":
        return list(map(float8, data))
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", data))


def write(path, **tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = encode(tensor.dtype, tensor.values)
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as stream:
        content = stream.read()
    length = struct.unpack("<Q", content[:8])[0]
    assert length % 8 == 0
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        begin, end = entry["data_offsets"]
        values = decode(entry["dtype"], content[8 + length + begin:8 + length + end])
        tensors[name] = Tensor(entry["shape"], values, entry["dtype"])
    return tensors


def stored(tensor):
    """The tensor with the values that its type keeps."""
    return tensor.like(decode(tensor.dtype, encode(tensor.dtype, tensor.values)))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


ELEMENTWISE = {
    "none": lambda x: x,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
}


def log_sum_exp(values):
    top = max(values)
    if top == -math.inf:
        return top
    return top + math.log(sum(math.exp(v - top) for v in values))


def row(x, index, axis):
    return [x.at(*index[:axis], i, *index[axis + 1:]) for i in range(x.shape[axis])]


def act(x, act="none", dim=-1):
    if act != "softmax":
        return x.like([ELEMENTWISE[act](v) for v in x.values])
    axis = dim % len(x.shape)
    return x.like([math.exp(x.at(*index) - log_sum_exp(row(x, index, axis))) for index in x.indices()])


def lse_of_sequence(x):
    b, n, h, d = x.shape
    return Tensor((b, h, d), [log_sum_exp([x.at(i, t, j, k) for t in range(n)])
                              for i in range(b) for j in range(h) for k in range(d)])


def on_grid(place, grid):
    """Row-major coordinates; None outside the grid."""
    if not 0 <= place < math.prod(grid):
        return None
    position = []
    for size in reversed(grid):
        position.insert(0, place % size)
        place //= size
    return position


def given(positions, batch, token):
    """What a tensor (N), (B, N) or (m, B, N) has for a token."""
    index = (batch, token)[2 - min(len(positions.shape), 2):]
    return [positions.at(*index)] if len(positions.shape) < 3 else [positions.at(j, *index) for j in range(positions.shape[0])]


def angles(theta, position, head, count, sections, pad_theta):
    """The angles of a head at a position, as docs/operators.md has them."""
    if position is None:
        return [0.0] * count
    head = head if theta.shape[-2] > 1 else 0
    if len(theta.shape) == 3:
        return [sum(p * theta.at(j, head, i) for j, p in enumerate(position)) for i in range(count)]
    turns = [theta.at(head, e) for e in range(theta.shape[1])]
    if sections:
        of = [j for j, size in enumerate(sections) for _ in range(size)]
        return [position[of[i]] * turns[i] for i in range(count)]
    if len(position) == 1 and len(turns) == 1 and not pad_theta:
        turns = turns * count
    phi = [p * t for p in position for t in turns]
    return (phi + [0.0] * count)[:count]


def lrpe(x, theta, variant, act="none", dim=-1, pairing="half", grid=None, offset=(), prefix=0, suffix=0, sections=(),
         rotary_dim=0, pad_theta=False, rotary_begin=0, amplitude=0, inverse=False, positions=None, offsets=None):
    b, n, h, d = x.shape
    y = globals()["act"](x, act, dim)
    length = n - prefix - suffix
    rotary_dim = rotary_dim or d - rotary_begin
    factor, sign = amplitude or 1, -1 if inverse else 1
    count = d if variant == "cosine" else rotary_dim // 2
    values = []
    for i, t, j in itertools.product(range(b), range(n), range(h)):
        position = given(positions, i, t) if positions else on_grid(t - prefix, grid or [length])
        if position is not None:
            position = [p + o + (offsets.at(i) if offsets else 0) for p, o in zip(position, (*offset, 0, 0, 0, 0))]
        phi = [sign * p for p in angles(theta, position, j, count, sections, pad_theta)]
        features = [y.at(i, t, j, k) for k in range(d)]
        if variant == "cosine":
            values += [factor * v * math.cos(p) for v, p in zip(features, phi)]
            values += [factor * v * math.sin(p) for v, p in zip(features, phi)]
            continue
        for k, p in enumerate(phi):
            first, second = (k, k + count) if pairing == "half" else (2 * k, 2 * k + 1)
            first, second = rotary_begin + first, rotary_begin + second
            u, v = factor * features[first], factor * features[second]
            features[first] = u * math.cos(p) - v * math.sin(p)
            features[second] = u * math.sin(p) + v * math.cos(p)
        values += features
    return Tensor((b, n, h, 2 * d if variant == "cosine" else d), values)


def norm(x, weight, eps=1e-6, weight_offset=0, norm_over="head"):
    """RMSNorm of heads, or of all heads of a token."""
    heads, d = x.shape[2:]
    values = []
    for i, t, j, k in x.indices():
        over = [x.at(i, t, m, c) for m in (range(heads) if norm_over == "all_heads" else (j,)) for c in range(d)]
        w = weight.at(*(j, k)[-len(weight.shape):]) + weight_offset
        values.append(x.at(i, t, j, k) * w / math.sqrt(sum(v * v for v in over) / len(over) + (eps or 1e-6)))
    return x.like(values)


def qk(x, theta, weight=None, rotation=None, **case):
    """One side of qk_norm_rope; `rotation`: lrpe's arguments."""
    return lrpe(x if weight is None else norm(x, weight, **case), theta, "rotate", **(rotation or {}))


def cached(cache, x, slots, scale=None):
    """The cache with the rows of x where slots say, divided by a head's scale."""
    blocks, page, heads, d = cache.shape
    values = list(cache.values)
    for i, t, j, k in x.indices():
        slot = slots.at(i, t)
        if 0 <= slot < blocks * page:
            values[(slot * heads + j) * d + k] = x.at(i, t, j, k) / (scale.values[j % len(scale.values)] if scale else 1)
    return stored(cache.like(values))


def tpa(aq, bq, ak, bk, av, bv, kv_len=None, scale=0, scale_q=0, scale_k=0, scale_v=0, causal=False,
        kv_first=0, kv_stride=1, kv_total=None):
    def factor(a, b, i, t, j, k, scale):
        if len(a.shape) == 3:
            return (scale or 1) * a.at(i, t, j) * b.at(i, t, k)
        rank = a.shape[3]
        return (scale or 1 / rank) * sum(a.at(i, t, j, r) * b.at(i, t, r, k) for r in range(rank))

    b, n, h, _ = aq.shape
    m, d, e = ak.shape[1], bq.shape[3], bv.shape[-1]
    o, lse = [], []
    for i, t, j in itertools.product(range(b), range(n), range(h)):
        total = kv_total or kv_first + (m - 1) * kv_stride + 1
        length = min(max(kv_len.values[i], 0), total) if kv_len else total
        end = length - n + t + 1 if causal else length
        seen = sum(kv_first + s * kv_stride < end for s in range(m))
        q = [factor(aq, bq, i, t, j, k, scale_q) for k in range(d)]
        scores = [(scale or d ** -0.5) * sum(q[k] * factor(ak, bk, i, s, j, k, scale_k) for k in range(d))
                  for s in range(seen)]
        lse.append(log_sum_exp(scores) if scores else -math.inf)
        o += [sum(math.exp(score - lse[-1]) * factor(av, bv, i, s, j, k, scale_v) for s, score in enumerate(scores))
              for k in range(e)]
    return Tensor((b, n, h, e), o), Tensor((b, n, h), lse)


def merge(o_shares, lse_shares, base="e"):
    """attention_merge of shares of which some may be empty: their lse is infinite."""
    s, *rows, e = o_shares.shape
    count = math.prod(rows)
    o, lse = [], []
    for row in range(count):
        full = [j for j in range(s) if not math.isinf(lse_shares.values[j * count + row])]
        b = 2.0 if base == "2" else math.e
        weights = {j: b ** lse_shares.values[j * count + row] for j in full}
        lse.append(math.log(sum(weights.values()), b) if full else -math.inf)
        o += [sum(w * o_shares.values[(j * count + row) * e + k] for j, w in weights.items()) / sum(weights.values())
              if full else 0.0 for k in range(e)]
    return Tensor(tuple(rows) + (e,), o), Tensor(tuple(rows), lse)


def gradient(function, x, grad_o, step=1e-5):
    """Of sum(function(x) grad_o) by x, by central differences."""
    def loss(at, value):
        moved = x.like(x.values[:at] + [value] + x.values[at + 1:])
        return sum(o * g for o, g in zip(function(moved).values, grad_o.values, strict=True))

    return x.like([(loss(i, v + step) - loss(i, v - step)) / (2 * step) for i, v in enumerate(x.values)])
