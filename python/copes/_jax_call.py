"""An operator in a program of JAX: one foreign call, whose results the library has described while the program was traced.

Shapes, types and attributes are checked then, so that what the library refuses it refuses there, in its own words."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _copes
from ._copes import infer, operators
from ._jax_vmap import rule

TABLE = operators()
TARGET = __package__  # a package under another name has handlers of its own
CACHES = ("k_cache", "v_cache")  # outputs that exist before the call
_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "hip": 10}  # DLPack's


if not hasattr(jax, "enable_x64"):
    raise ImportError(f"copes.jax needs JAX 0.8 or newer; this is {jax.__version__}")


def register() -> None:
    if not hasattr(_copes, "xla_handlers"):
        raise ImportError(
            "copes was built without copes.jax, for want of XLA's header: build it where jaxlib is installed, by "
            "pip install --no-build-isolation"
        )
    for platform, handler in _copes.xla_handlers().items():
        jax.ffi.register_ffi_target(TARGET, handler, platform=platform)


class Call(NamedTuple):
    """What of a call is not its arrays: which input slots have one, which outputs are wanted, and the attributes as infer()
    returned them, which hold for operands of any batch."""

    operator: int
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    attributes: tuple

    @property
    def name(self):
        return TABLE[self.operator][0]

    @property
    def names(self):
        """Those of the arrays' slots: the inputs, then the caches."""
        inputs = [name for name, given in zip(TABLE[self.operator][1], self.inputs) if given]
        return inputs + [name for name in self.wanted if name in CACHES]

    @property
    def wanted(self):
        """The names of the outputs."""
        return [name for name, wanted in zip(TABLE[self.operator][2], self.outputs) if wanted]


def as_array(name, x):
    if x is None or isinstance(x, jax.Array):
        return x
    if isinstance(x, np.ndarray):
        return jnp.asarray(x)
    raise TypeError(f"{name} is a {type(x)}; it must be an array of JAX or NumPy")


def check(operator, inputs, outputs, attributes):
    """The inputs and outputs of a call as arrays, and its attributes as infer() returns them. Raises what the library says of
    a call that it refuses."""
    _, in_names, out_names, _ = TABLE[operator]
    inputs = [as_array(name, x) for name, x in zip(in_names, inputs)]
    outputs = [as_array(name, x) if name in CACHES else x for name, x in zip(out_names, outputs)]
    _, attributes, _ = infer(operator, *_device(), *map(_pair, inputs), *map(_pair, outputs), *attributes)
    arrays = alike(*inputs, *(x for name, x in zip(out_names, outputs) if name in CACHES))
    return arrays, attributes


def call(operator, inputs, outputs, attributes):
    """The operator's results, as a list. `inputs` are arrays or None; of the outputs a flag says whether each is wanted, and
    a cache comes as the array that it replaces, or None. Attributes are those of check()."""
    wanted = tuple(x is not None and x is not False for x in outputs)
    caches = [x for name, x in zip(TABLE[operator][2], outputs) if name in CACHES and x is not None]
    what = Call(operator, tuple(x is not None for x in inputs), wanted, attributes)
    return _call_again(what, *(x for x in inputs if x is not None), *caches)


def _call_again(what, *arrays):
    return _function(what)(*alike(*arrays))


def alike(*arrays):
    """Inside shard_map: the arrays as what differs from device to device, where one of them does. Gradients of those that do
    not are then summed over the devices."""
    given = [x for x in arrays if x is not None]
    axes = frozenset().union(*map(_varying, given))
    return [x if x is None else _vary(x, axes - _varying(x)) for x in arrays]


def _varying(x):
    kind = jax.typeof(x)
    return kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying


def _vary(x, axes):
    return jax.lax.pcast(x, tuple(axes), to="varying") if axes else x


def _description(shape, dtype, like):
    """Of a result, which differs between the devices of a shard_map as the operands do."""
    if not _varying(like):
        return jax.ShapeDtypeStruct(shape, dtype)
    kind = jax.typeof(like)
    sharding = jax.sharding.NamedSharding(kind.sharding.mesh, jax.P())
    varying = {"vma": kind.vma} if hasattr(kind, "vma") else {"manual_axis_type": kind.manual_axis_type}
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding, **varying)


def _pair(x):
    return (x.shape, x.dtype.name) if isinstance(x, jax.Array) else x


def _device():
    """DLPack's name of the device that programs are for, by which the workspace is planned."""
    device = jax.config.jax_default_device
    device = device if isinstance(device, jax.Device) else jax.local_devices()[0]
    if device.platform == "cpu":
        return _DEVICE_TYPES["cpu"], 0
    gpus = [name for name, *_ in _copes.devices() if name != "cpu"] or ["cuda"]
    return _DEVICE_TYPES[gpus[0]], device.local_hardware_id


@functools.lru_cache(4096)
def _function(what: Call):
    """The call as a function of arrays, with a rule for vmap and the refusal of derivatives: those that there are are made of
    other calls, in _jax_operators.py."""
    batched = jax.custom_batching.custom_vmap(functools.partial(_call, what))
    batched.def_vmap(functools.partial(rule, _call_again, what))
    function = jax.custom_vjp(batched)
    refuse = functools.partial(_refuse_derivative, what.name)
    function.defvjp(refuse, refuse)
    return jax.jit(function, inline=True)


def _refuse_derivative(name, *_):
    raise NotImplementedError(
        f"{name}: it has no such derivative; operators have the first, in reverse mode, tpa_decode none"
    )


def _call(what, *arrays):
    names, wanted = what.names, what.wanted
    described = dict(zip(names, map(_pair, arrays)))
    _, in_names, out_names, attribute_names = TABLE[what.operator]
    outputs = [described.get(name) if name in CACHES else name in wanted for name in out_names]
    pairs, attributes, workspace = infer(
        what.operator, *_device(), *map(described.get, in_names), *outputs, *what.attributes
    )
    results = [_description(*pair, arrays[0]) for pair in pairs]
    if workspace > 0:
        results.append(_description((workspace,), "uint8", arrays[0]))
    aliases = {names.index(name): wanted.index(name) for name in CACHES if name in wanted}
    made = jax.ffi.ffi_call(TARGET, results, input_output_aliases=aliases)(
        *arrays,
        operator=what.name,
        inputs=" ".join(name for name in names if name not in CACHES),
        outputs=" ".join(wanted),
        **{name: _value(x) for name, x in zip(attribute_names, attributes) if x is not None},
    )
    return made[: len(pairs)]


def _value(attribute):
    """As the handler reads it: 64 bits for every number."""
    if isinstance(attribute, str):
        return attribute
    if isinstance(attribute, tuple):
        return np.array(attribute, np.int64)
    return np.float64(attribute) if isinstance(attribute, float) else np.int64(attribute)
