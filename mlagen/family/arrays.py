"""A family whose calls are arrays of named sizes: what `mlagen verify` needs of a small kernel.

    register(ArrayFamily("columns", sizes={"m": 77, "n": 300},
                         inputs={"x": ("fp32", "m", "n")}, outputs={"out": ("fp32", "n")},
                         oracles=(exact,)))

`data` makes inputs that a standard normal draw does not: rows near zero, where a norm shows its
epsilon. A family with inputs that depend on each other, or with sampled workgroups, writes a
`ProblemKind` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from mlagen.errors import ConfigError
from mlagen.family.array_kernel import Array, ArrayKernel, Form, shape_of
from mlagen.family.base import Builder, Family
from mlagen.family.covering import Call, Covering
from mlagen.family.kinds import Chosen, ProblemKind, Trial
from mlagen.problem.arrays import untouched
from mlagen.problem.expected import Expected, Worst, four_dimensions
from mlagen.problem.fields import integer
from mlagen.problem.formats import ELEMENT_TYPES

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher, LaunchReport

Maker = Callable[[np.random.Generator, str, tuple[int, ...]], Array]  # for a tensor of that name
Oracle = Callable[..., Expected]


def _randn(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _realistic(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Heavy tails, and rows of many magnitudes."""
    return rng.standard_t(5, shape) * rng.lognormal(0.0, 0.7, (*shape[:-1], 1))


_DRAWN = 1 << 22  # numbers that a simulated call has at each place of an array
DATA: Mapping[str, Maker] = {
    "randn": lambda rng, tensor, shape: _randn(rng, shape),
    "realistic": lambda rng, tensor, shape: _realistic(rng, shape),
}


@dataclass(frozen=True, eq=False)
class ArrayFamily(Family):
    """Kernels from arrays to arrays.

    `sizes`: the whole numbers of a call, each with the value that a call takes where none is given;
    the kernel's scalar arguments are among them. `inputs` and `outputs`: the kernel's tensors by
    argument name, each an element type of `mlagen.problem.formats.ELEMENT_TYPES` and its shape in
    words of `sizes`. `oracles`: each takes the inputs by name, and as a second argument, where it
    has one, the problem's fields; it says what one output must be.
    `calls`: sizes of the calls that together reach all code, where one with all defaults does not;
    "data" among them names what a call's inputs are like, "randn" where it does not.
    `data`: more of these names, each with a function of (random generator, tensor's name, shape)
    to the tensor's values. `mlagen verify --data NAME` takes them, too.
    """

    name: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Form]
    outputs: Mapping[str, Form]
    oracles: Sequence[Oracle]
    calls: Sequence[Mapping[str, int | str]] = ({},)
    data: Mapping[str, Maker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tensor, (dtype, *shape) in (*self.inputs.items(), *self.outputs.items()):
            if dtype not in ELEMENT_TYPES:
                known = ", ".join(ELEMENT_TYPES)
                raise ConfigError(f"{self.name}: {tensor} is of {dtype!r}", hint=f"types: {known}")
            for size in shape:
                if not isinstance(size, int) and size not in self.sizes:
                    known = ", ".join(self.sizes)
                    raise ConfigError(f"{self.name}: {tensor} has {size!r}", hint=f"sizes: {known}")
        if "data" in self.sizes:
            raise ConfigError(
                f"{self.name}: a size is called 'data', which names inputs in `calls`"
            )
        if again := sorted(set(self.data) & set(DATA)):
            raise ConfigError(f"{self.name}: data {again[0]!r} is there already")
        for call in self.calls:
            if (name := call.get("data", "randn")) not in self.makers:
                known = ", ".join(self.makers)
                raise ConfigError(f"{self.name}: a call of data {name!r}", hint=f"data: {known}")
            if unknown := sorted(set(call) - {*self.sizes, "data"}):
                known = ", ".join(self.sizes)
                raise ConfigError(f"{self.name}: a call has {unknown[0]!r}", hint=f"sizes: {known}")

    @property
    def makers(self) -> Mapping[str, Maker]:
        """What makes the inputs of each name of data."""
        return {**DATA, **self.data}

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> ArrayKernel:
        """The artifact as a function of arrays: `launcher` runs it, or else the emulator for numpy
        arrays and the target's own launcher for tensors of a GPU."""
        return ArrayKernel(self, artifact, launcher)

    def kind(self, problem_type: str) -> ProblemKind:
        """The same for each problem class of the family."""
        return _ArrayKind(self)

    def empty(self, sizes: Mapping[str, int], fill: float = np.nan) -> dict[str, Array]:
        """The outputs of a call, filled with NaN: what nobody writes shows."""
        made = {}
        for tensor, form in self.outputs.items():
            made[tensor] = np.zeros(shape_of(form, sizes), ELEMENT_TYPES[str(form[0])])
            if fill:
                made[tensor].fill(fill)
        return made


@dataclass(frozen=True)
class _ArrayInputs:
    family: ArrayFamily
    problem: Mapping[str, Any]
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]


class _ArrayKind(ProblemKind):
    def __init__(self, family: ArrayFamily) -> None:
        self.family, self.sizes, self.data = family, tuple(family.sizes), tuple(family.makers)

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> _ArrayInputs:
        makers = self.family.makers
        if data not in makers:
            raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(makers)}")
        sizes = self._sizes(shape)
        rng = np.random.default_rng([seed, *data.encode()])
        arrays = {}
        for tensor, form in self.family.inputs.items():
            extents = shape_of(form, sizes)
            values = np.asarray(makers[data](rng, tensor, extents))
            if values.shape != extents:
                raise ConfigError(
                    f"{self.family.name}: data {data!r} makes {tensor} {list(values.shape)}, "
                    f"not {list(extents)}"
                )
            arrays[tensor] = values.astype(ELEMENT_TYPES[str(form[0])])
        return _ArrayInputs(self.family, problem, sizes, arrays)

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> _ArrayInputs:
        """Numbers at the begin, in the middle and at the end of each array, whatever is `chosen`:
        what a workgroup reads is the schedule's own to know."""
        sizes = self._sizes(shape)
        rng = np.random.default_rng(seed)
        try:
            arrays = {
                tensor: _in_part(rng, shape_of(form, sizes), ELEMENT_TYPES[str(form[0])])
                for tensor, form in self.family.inputs.items()
            }
        except MemoryError as error:
            raise ConfigError(f"no array has these sizes: {error}") from None
        problem = artifact.manifest.problem
        return _ArrayInputs(self.family, problem, sizes, arrays)

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
        calls = ({**call} for call in self.family.calls)
        return Covering(tuple(Call(str(sizes.pop("data", "randn")), sizes) for sizes in calls))


@dataclass(frozen=True)
class _ArrayTrial(Trial):
    inputs: _ArrayInputs
    compared: bool = True

    def uncompared(self) -> _ArrayTrial:
        return replace(self, compared=False)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.inputs.sizes

    def oracles(self) -> tuple[Expected, ...]:
        given = (self.inputs.arrays, self.inputs.problem)
        return tuple(
            oracle(*given[: len(signature(oracle).parameters)])
            for oracle in self.inputs.family.oracles
        )

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, Array], LaunchReport]:
        kernel = ArrayKernel(self.inputs.family, artifact, launcher)
        inputs = self.inputs
        outputs, report = kernel.run(inputs.arrays, inputs.sizes, fill=self.compared)
        return {name: four_dimensions(array) for name, array in outputs.items()}, report

    def place(self, worst: Worst) -> str:
        """The last indices of the output, as many as it has dimensions."""
        at = (worst.batch, worst.head, worst.row, worst.depth)
        form = self.inputs.family.outputs[worst.output]
        return f"{worst.output}[{', '.join(map(str, at[5 - len(form) :]))}]"


def _in_part(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    made = untouched(shape, dtype)
    count = max(_DRAWN // math.prod(shape[1:]), 1)
    rows = shape[0] if shape else 0
    for start in (0, (rows - count) // 2, rows - count) if rows > 3 * count else (0,):
        part = made[start : start + count] if rows > 3 * count else made
        part[...] = _realistic(rng, part.shape).astype(dtype)
    return made
