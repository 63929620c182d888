"""What `mlagen verify` needs to know of a GEMM: inputs, a way to run it, oracles, words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gemm.oracles import exact, rounded
from gemm.problem import OUTPUT_TYPES, GemmConfig, GemmInputs, check_sizes
from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.family import Call, Covering, ProblemKind, TileWalk, Trial, tile_counts
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.expected import Expected, Worst

Array = npt.NDArray[Any]
EDGES = 64  # columns of C that a wave owns


def _randn(rng: np.random.Generator, rows: int, k: int) -> Array:
    return rng.standard_normal((rows, k))


def _realistic(rng: np.random.Generator, rows: int, k: int) -> Array:
    """As activations and weights are: a few large channels, rows of many sizes, heavy tails."""
    x = rng.standard_t(5, (rows, k)) * rng.lognormal(0.0, 0.7, (rows, 1))
    x[:, rng.integers(k, size=max(1, k // 128))] *= 20.0
    return x


def _late(rng: np.random.Generator, rows: int, k: int) -> Array:
    """The last 8 columns of K outweigh all others: a tail that is dropped or doubled shows."""
    x = rng.standard_normal((rows, k))
    x[:, -8:] *= 64.0
    return x


DATA: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "realistic": _realistic,
    "randn": _randn,
    "late": _late,
}


def gemm_inputs(
    config: GemmConfig,
    *,
    m: int = 256,
    n: int = 256,
    k: int = 512,
    data: str = "realistic",
    seed: int = 0,
) -> GemmInputs:
    """Made-up inputs; the same arguments give the same bits. ConfigError for bad sizes or data."""
    check_sizes(m, n, k)
    if data not in DATA:
        raise ConfigError(f"unknown data {data!r}", hint=f"data: {', '.join(DATA)}")
    rng = np.random.default_rng([seed, *data.encode()])
    element = OUTPUT_TYPES[config.dtype]
    a, b = (DATA[data](rng, rows, k).astype(element) for rows in (m, n))
    return GemmInputs(config, a, b)


class GemmKernel:
    """A built GEMM as a function of arrays. ConfigError for an artifact of another problem."""

    def __init__(self, artifact: Artifact, launcher: Launcher) -> None:
        if artifact.manifest.problem_type != GemmConfig.__name__:
            raise ConfigError(f"{artifact.manifest.kernel} solves no {GemmConfig.__name__}")
        self.artifact, self.launcher = artifact, launcher
        self.config = GemmConfig.from_fields(artifact.manifest.problem)

    def run(self, inputs: GemmInputs) -> tuple[Array, LaunchReport]:
        """C [M, N], filled with NaN before the run so that nothing old survives."""
        if inputs.config != self.config:
            raise ConfigError(f"the inputs are those of {inputs.config}, not of {self.config}")
        sizes = inputs.sizes
        c = np.full((sizes["m"], sizes["n"]), np.nan, OUTPUT_TYPES[self.config.output_dtype])
        report = self.launcher.launch(
            self.artifact,
            tensors={"a": inputs.a, "b": inputs.b, "c": c},
            scalars=sizes,
            sizes=sizes,
        )
        return c, report


@dataclass(frozen=True)
class GemmTrial(Trial):
    """A call of a GEMM kernel."""

    inputs: GemmInputs
    k_tile: int | None = None  # of the artifact, once it is known

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.inputs.sizes

    @property
    def walk(self) -> TileWalk | None:
        if self.k_tile is None:
            return None
        return TileWalk(-(-self.sizes["k"] // self.k_tile), "k", self.k_tile)

    def planned(self, artifact: Artifact) -> GemmTrial:
        return replace(self, k_tile=artifact.manifest.knobs.get("k_tile"))

    def oracles(self) -> tuple[Expected, ...]:
        return exact(self.inputs), rounded(self.inputs)

    def run(self, artifact: Artifact, launcher: Launcher) -> tuple[Array, LaunchReport]:
        c, report = GemmKernel(artifact, launcher).run(self.inputs)
        return c[None, :, None], report

    def place(self, worst: Worst) -> str:
        return f"row {worst.row}, column {worst.depth}"


class GemmKind(ProblemKind):
    """GEMM as a kind of problem that can be verified."""

    sizes = ("m", "n", "k")
    data = tuple(DATA)
    uneven: ClassVar[Mapping[str, Any]] = {"m": 77, "n": 331, "k": 200}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> GemmInputs:
        return gemm_inputs(GemmConfig.from_fields(problem), data=data, seed=seed, **shape)

    def trial(self, inputs: GemmInputs) -> GemmTrial:
        return GemmTrial(inputs)

    def covering(self, artifact: Artifact) -> Covering:
        """A K for every number of tiles that the text tells apart, whole and cut, and one that goes
        twice round a ring whose slots are counted in registers; an N that is stored in whole rows
        of 16 bytes and one that is not; then an edge of C at each column that a lane compares with
        it."""
        knobs: Mapping[str, Any] = artifact.manifest.knobs
        m, n = 2 * knobs["m_tile"] - 3, 2 * knobs["n_tile"] - 8
        rounds = (2 * knobs["stages"] + 2,) if "stages" in knobs else ()
        counts = [count for count in (*tile_counts(artifact.manifest), *rounds) if count]
        sizes = [
            {"m": m, "n": n - number % 2, "k": knobs["k_tile"] * count - 8 * (number % 2)}
            for number, count in enumerate(counts)
        ]
        # Columns of a lane: four, and the next four are another lane's.
        edges = [edge for edge in range(1, EDGES + 1) if (edge - 1) % 8 < 4 or edge % 8 == 0]
        sizes += [{"m": 3, "n": edge, "k": 8} for edge in edges]
        return Covering(
            tuple(Call("randn", each) for each in sizes),
            ("K is at least 8, so that no run has N = 0 tiles",),
        )
