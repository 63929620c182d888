"""A family whose calls are arrays of named sizes: what `mlagen verify` needs of a small kernel.

    register(ArrayFamily("columns", sizes={"m": 77, "n": 300},
                         inputs={"x": ("fp32", "m", "n")}, outputs={"out": ("fp32", "n")},
                         oracles=(exact,)))

A family with inputs that depend on each other, or with sampled workgroups, writes a `Kind` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.family.base import Builder, Family
from mlagen.family.covering import Call, Covering
from mlagen.family.kinds import Kind, Trial
from mlagen.problem.expected import Expected, Worst, four_dimensions
from mlagen.problem.fields import integer
from mlagen.problem.formats import ELEMENT_TYPES

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher, LaunchReport

Array = npt.NDArray[Any]
Form = tuple[str | int, ...]  # an element type, then sizes: their names, or numbers
Oracle = Callable[[Mapping[str, Array]], Expected]  # takes the inputs by name


def _randn(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _realistic(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Heavy tails, and rows of many magnitudes."""
    return rng.standard_t(5, shape) * rng.lognormal(0.0, 0.7, (*shape[:-1], 1))


_DRAWN = 1 << 22  # numbers that a simulated call has at each place of an array
DATA = {"randn": _randn, "realistic": _realistic}


@dataclass(frozen=True, eq=False)
class ArrayFamily(Family):
    """Kernels from arrays to arrays.

    `sizes`: the whole numbers of a call, each with the value that a call takes where none is given;
    the kernel's scalar arguments are among them. `inputs` and `outputs`: the kernel's tensors by
    argument name, each an element type of `mlagen.problem.formats.ELEMENT_TYPES` and its shape in
    words of `sizes`. `oracles`: each takes the inputs by name and says what one output must be.
    `calls`: sizes of the calls that together reach all code, where one with all defaults does not.
    """

    name: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Form]
    outputs: Mapping[str, Form]
    oracles: Sequence[Oracle]
    calls: Sequence[Mapping[str, int]] = ({},)

    def __post_init__(self) -> None:
        for tensor, (dtype, *shape) in (*self.inputs.items(), *self.outputs.items()):
            if dtype not in ELEMENT_TYPES:
                known = ", ".join(ELEMENT_TYPES)
                raise ConfigError(f"{self.name}: {tensor} is of {dtype!r}", hint=f"types: {known}")
            for size in shape:
                if not isinstance(size, int) and size not in self.sizes:
                    known = ", ".join(self.sizes)
                    raise ConfigError(f"{self.name}: {tensor} has {size!r}", hint=f"sizes: {known}")

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> ArrayKernel:
        """The artifact as a function of arrays, in the emulator unless told otherwise."""
        from mlagen.launch import EmulatedLauncher

        return ArrayKernel(self, artifact, launcher or EmulatedLauncher())

    def kind(self, problem_type: str) -> Kind:
        """The same for each problem class of the family."""
        return _ArrayKind(self)

    def empty(self, sizes: Mapping[str, int], fill: float = np.nan) -> dict[str, Array]:
        """The outputs of a call, filled with NaN: what nobody writes shows."""
        made = {}
        for tensor, form in self.outputs.items():
            made[tensor] = np.zeros(_shape(form, sizes), ELEMENT_TYPES[str(form[0])])
            if fill:
                made[tensor].fill(fill)
        return made


class ArrayKernel:
    """A built kernel as a function: inputs in the order of `inputs`, or by name; the output, or a
    tuple of them in the order of `outputs`."""

    def __init__(self, family: ArrayFamily, artifact: Artifact, launcher: Launcher) -> None:
        self.family, self.artifact, self.launcher = family, artifact, launcher

    def __call__(self, *given: Array, **named: Array) -> Array | tuple[Array, ...]:
        """ConfigError for a missing or unknown tensor, another element type, or shapes that do not
        go together."""
        family = self.family
        arrays = {**dict(zip(family.inputs, given, strict=False)), **named}
        if set(arrays) != set(family.inputs) or len(given) + len(named) != len(arrays):
            raise ConfigError(
                f"{family.name} takes {', '.join(family.inputs)}, each once; "
                f"got {len(given)} by place and {', '.join(named) or 'none'} by name"
            )
        outputs, _ = self.run(arrays, _sizes(family, arrays))
        return outputs[next(iter(outputs))] if len(outputs) == 1 else tuple(outputs.values())

    def run(
        self, arrays: Mapping[str, Array], sizes: Mapping[str, int], *, fill: bool = True
    ) -> tuple[dict[str, Array], LaunchReport]:
        """The outputs by name, and what the launch was. Without `fill` outputs begin as zeros,
        which take no memory until they are written."""
        outputs = self.family.empty(sizes, np.nan if fill else 0)
        scalars = {a.name: sizes[a.name] for a in self.artifact.manifest.args if a.name in sizes}
        tensors = {**arrays, **outputs}
        return outputs, self.launcher.launch(
            self.artifact, tensors=tensors, scalars=scalars, sizes=sizes
        )


@dataclass(frozen=True)
class _ArrayInputs:
    family: ArrayFamily
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    compared: bool = True  # whether somebody looks at the outputs


class _ArrayKind(Kind):
    data = tuple(DATA)

    def __init__(self, family: ArrayFamily) -> None:
        self.family, self.sizes = family, tuple(family.sizes)

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> _ArrayInputs:
        if data not in DATA:
            raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(DATA)}")
        sizes = self._sizes(shape)
        rng = np.random.default_rng([seed, *data.encode()])
        arrays = {
            tensor: DATA[data](rng, _shape(form, sizes)).astype(ELEMENT_TYPES[str(form[0])])
            for tensor, form in self.family.inputs.items()
        }
        return _ArrayInputs(self.family, sizes, arrays)

    def simulated(self, artifact: Artifact, *, seed: int, **shape: Any) -> _ArrayInputs:
        """Zeros, which take no memory, but where the first workgroup of a grid, the middle and the
        last one read."""
        sizes = self._sizes(shape)
        rng = np.random.default_rng(seed)
        try:
            arrays = {
                tensor: _in_part(rng, _shape(form, sizes), ELEMENT_TYPES[str(form[0])])
                for tensor, form in self.family.inputs.items()
            }
        except (MemoryError, ValueError) as error:  # numpy's: more bytes than addresses
            raise ConfigError(f"no array has these sizes: {error}") from None
        return _ArrayInputs(self.family, sizes, arrays, compared=False)

    def _sizes(self, shape: Mapping[str, Any]) -> dict[str, int]:
        """All sizes of a call, of which `shape` has some."""
        if unknown := set(shape) - set(self.sizes):
            known = ", ".join(self.sizes)
            raise ConfigError(f"unknown size {', '.join(sorted(unknown))}", hint=f"sizes: {known}")
        sizes = {**self.family.sizes, **{name: integer(name, n) for name, n in shape.items()}}
        if bad := [f"{name}={n}" for name, n in sizes.items() if n < 1]:
            raise ConfigError(f"{', '.join(bad)}: a size is at least 1")
        return sizes

    def trial(self, inputs: _ArrayInputs) -> _ArrayTrial:
        return _ArrayTrial(inputs)

    def covering(self, artifact: Artifact) -> Covering:
        return Covering(tuple(Call("randn", sizes) for sizes in self.family.calls))


@dataclass(frozen=True)
class _ArrayTrial(Trial):
    inputs: _ArrayInputs

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.inputs.sizes

    def oracles(self) -> tuple[Expected, ...]:
        return tuple(oracle(self.inputs.arrays) for oracle in self.inputs.family.oracles)

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, Array], LaunchReport]:
        kernel = ArrayKernel(self.inputs.family, artifact, launcher)
        inputs = self.inputs
        outputs, report = kernel.run(inputs.arrays, inputs.sizes, fill=inputs.compared)
        return {name: four_dimensions(array) for name, array in outputs.items()}, report

    def place(self, worst: Worst) -> str:
        """The last indices of the output, as many as it has dimensions."""
        at = (worst.batch, worst.head, worst.row, worst.depth)
        form = self.inputs.family.outputs[worst.output]
        return f"{worst.output}[{', '.join(map(str, at[5 - len(form) :]))}]"


def _in_part(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    made = np.zeros(shape, dtype)
    count = max(_DRAWN // math.prod(shape[1:]), 1)
    rows = shape[0] if shape else 0
    for start in (0, (rows - count) // 2, rows - count) if rows > 3 * count else (0,):
        part = made[start : start + count] if rows > 3 * count else made
        part[...] = _realistic(rng, part.shape).astype(dtype)
    return made


def _shape(form: Form, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else sizes[size] for size in form[1:])


def _sizes(family: ArrayFamily, arrays: Mapping[str, Array]) -> dict[str, int]:
    """The sizes that the arrays' shapes say."""
    sizes = dict(family.sizes)
    seen: dict[str, str] = {}
    for tensor, (dtype, *names) in family.inputs.items():
        array = arrays[tensor]
        if array.dtype != ELEMENT_TYPES[str(dtype)] or array.ndim != len(names):
            asked = f"{dtype} [{', '.join(map(str, names))}]"
            raise ConfigError(f"{tensor} is {array.dtype} {list(array.shape)}, not {asked}")
        for name, length in zip(names, array.shape, strict=True):
            wanted = name if isinstance(name, int) else sizes[name]
            if (isinstance(name, int) or name in seen) and length != wanted:
                other = "" if isinstance(name, int) else f", as {seen[name]} has"
                raise ConfigError(f"{tensor} has {length} for {name}, not {wanted}{other}")
            if isinstance(name, str):
                sizes[name], seen[name] = length, tensor
    return sizes
