"""The kernels of `ArrayFamily` as functions: arrays are emulated, tensors of a GPU are launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.launch import EmulatedLauncher, gpu_launcher
from mlagen.launch.device_tensor import beside, device_tensor, on_the_host
from mlagen.launch_findings import findings_error, findings_of
from mlagen.problem.formats import ELEMENT_TYPES

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher, LaunchReport

Array = npt.NDArray[Any]
Form = tuple[str | int, ...]  # an element type, then sizes: their names, or numbers
TORCH_TYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8_e4m3": "float8_e4m3fn"}


class Arrays(Protocol):
    """What a kernel asks of its family; see `ArrayFamily`."""

    @property
    def name(self) -> str: ...
    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def inputs(self) -> Mapping[str, Form]: ...
    @property
    def outputs(self) -> Mapping[str, Form]: ...

    def empty(self, sizes: Mapping[str, int], fill: float = ...) -> dict[str, Array]: ...


class ArrayKernel:
    """A built kernel as a function: inputs in the order of `inputs`, or by name; the output, or a
    tuple of them in the order of `outputs`.

    numpy arrays are emulated, with the sanitizer on; tensors of a GPU, torch's or others', are
    launched there in the current stream. An output that is given by name is written and returned;
    the others are made: full of NaN on the host, with any content beside torch's tensors.
    """

    def __init__(self, family: Arrays, artifact: Artifact, launcher: Launcher | None) -> None:
        self.family, self.artifact, self._given = family, artifact, launcher

    def __call__(self, *given: Any, **named: Any) -> Any:
        """ConfigError for a missing or unknown tensor, another element type, shapes that do not go
        together, tensors of several places; FindingsError for what the sanitizer found."""
        family = self.family
        outputs = {name: named.pop(name) for name in family.outputs if name in named}
        arrays = {**dict(zip(family.inputs, given, strict=False)), **named}
        if set(arrays) != set(family.inputs) or len(given) + len(named) != len(arrays):
            raise ConfigError(
                f"{family.name} takes {', '.join(family.inputs)}, each once; "
                f"got {len(given)} by place and {', '.join(named) or 'none'} by name"
            )
        host = on_the_host({**arrays, **outputs})
        seen = {name: _seen(name, tensor) for name, tensor in {**arrays, **outputs}.items()}
        sizes = _sizes(family, {name: seen[name] for name in family.inputs})
        for name, (dtype, *names) in family.outputs.items():
            shape = shape_of((dtype, *names), sizes)
            if name not in outputs:
                like = next(iter(arrays.values()))
                outputs[name] = (
                    empty(str(dtype), shape)
                    if host
                    else beside(name, like, shape, TORCH_TYPES[str(dtype)])
                )
            elif seen[name] != (dtype, shape):
                raise ConfigError(f"{name} is {_told(seen[name])}, not {dtype} {list(shape)}")
        report = self._launch(arrays, outputs, sizes, host)
        if found := findings_of(self.artifact, report):
            raise findings_error(self.artifact, found)
        ordered = tuple(outputs[name] for name in family.outputs)
        return ordered[0] if len(ordered) == 1 else ordered

    def run(
        self, arrays: Mapping[str, Array], sizes: Mapping[str, int], *, fill: bool = True
    ) -> tuple[dict[str, Array], LaunchReport]:
        """The outputs by name, and what the launch was, findings among it. For checkers. Without
        `fill` outputs begin as zeros, which take no memory until they are written."""
        outputs = self.family.empty(sizes, np.nan if fill else 0)
        return outputs, self._launch(arrays, outputs, sizes, True)

    def _launch(
        self,
        arrays: Mapping[str, Any],
        outputs: Mapping[str, Any],
        sizes: Mapping[str, int],
        host: bool,
    ) -> LaunchReport:
        manifest = self.artifact.manifest
        launcher = self._given or (EmulatedLauncher() if host else gpu_launcher(manifest.target))
        scalars = {a.name: sizes[a.name] for a in manifest.args if a.name in sizes}
        return launcher.launch(
            self.artifact, tensors={**arrays, **outputs}, scalars=scalars, sizes=sizes
        )


def shape_of(form: Form, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in form[1:])


def empty(dtype: str, shape: tuple[int, ...]) -> Array:
    return np.full(shape, np.nan, ELEMENT_TYPES[dtype])


_Seen = tuple[str, tuple[int, ...]]  # what a tensor is of, as the family calls it, and its shape
_NAMES = {dtype: name for name, dtype in ELEMENT_TYPES.items()}


def _seen(name: str, tensor: Any) -> _Seen:
    if isinstance(tensor, np.ndarray):
        return _NAMES.get(tensor.dtype, str(tensor.dtype)), tensor.shape
    view = device_tensor(name, tensor, -1)
    return view.dtype, view.shape


def _told(seen: _Seen) -> str:
    return f"{seen[0]} {list(seen[1])}"


def _sizes(family: Arrays, arrays: Mapping[str, _Seen]) -> dict[str, int]:
    """The sizes that the inputs' shapes say."""
    sizes = dict(family.sizes)
    seen: dict[str, str] = {}
    for tensor, (dtype, *names) in family.inputs.items():
        held, shape = arrays[tensor]
        if held != dtype or len(shape) != len(names):
            asked = f"{dtype} [{', '.join(map(str, names))}]"
            raise ConfigError(f"{tensor} is {_told((held, shape))}, not {asked}")
        for name, length in zip(names, shape, strict=True):
            wanted = name if isinstance(name, int) else sizes[name]
            if (isinstance(name, int) or name in seen) and length != wanted:
                other = "" if isinstance(name, int) else f", as {seen[name]} has"
                raise ConfigError(f"{tensor} has {length} for {name}, not {wanted}{other}")
            if isinstance(name, str):
                sizes[name], seen[name] = length, tensor
    return sizes
