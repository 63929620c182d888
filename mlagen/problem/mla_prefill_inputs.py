"""One call's data of an MLA prefill problem: its tensors with their run-time numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.arithmetic import BF16_PRESCALED, FP8, Arithmetic
from mlagen.problem.fields import number
from mlagen.problem.formats import SMALLEST_NORMAL
from mlagen.problem.mha_arrays import Ints
from mlagen.problem.mla import MlaConfig
from mlagen.problem.prefill_inputs import PrefillInputs, PrefillSequence, check_scale


@dataclass(frozen=True, slots=True)
class Scales:
    """The softmax scale of a call, and those of its tensors."""

    scale: float
    q_scale: float = 1.0
    k_scale: float = 1.0
    v_scale: float = 1.0

    @property
    def score_scale(self) -> float:
        """What takes dot products of the stored Q and K to natural units."""
        return self.scale * self.q_scale * self.k_scale


def checked_scales(
    config: MlaConfig, scale: float, q_scale: float, k_scale: float, v_scale: float
) -> Scales:
    """The scales as the kernel is handed them: those of tensors as fp32 numbers.

    Raises ConfigError for a scale that is not positive and finite, and for scales of bf16 tensors.
    """
    made = Scales(
        check_scale(config, scale),
        _tensor_scale(config, "q_scale", q_scale),
        _tensor_scale(config, "k_scale", k_scale),
        _tensor_scale(config, "v_scale", v_scale),
    )
    check_scale(config, made.score_scale, "scale * q_scale * k_scale")
    return made


def _tensor_scale(config: MlaConfig, name: str, value: float) -> float:
    with np.errstate(over="ignore"):
        given = float(np.float32(number(name, value)))
    if not (given >= SMALLEST_NORMAL and np.isfinite(given)):
        raise ConfigError(
            f"{name}={value} must be positive and finite in fp32",
            hint="the largest magnitude of the tensor / 448 is usual",
        )
    if config.dtype == "bf16" and given != 1.0:
        raise ConfigError(
            f"{name}={given:g}: a kernel of dtype=bf16 takes no scales of its tensors",
            hint="dtype=fp8_e4m3 does; fold others into scale and the output",
        )
    return given


@dataclass(frozen=True, eq=False)
class MlaPrefillInputs(PrefillInputs):
    """Q, K, V and the run-time numbers of one call of an MLA prefill kernel; see `PrefillInputs`.

    `q`, `k`, `v` and `k_rope` have the shapes of the problem's form (see `problem.mla`): `v` is
    None for latent rows, `k_rope` is given for `nope_rope` alone.

    `scale` multiplies the dot products; 1 / sqrt(192) is the model's. For fp8 the tensors hold
    numbers divided by `q_scale`, `k_scale` (rope too) and `v_scale`, one fp32 number each; the
    kernel multiplies them back. Latent rows are K and V at once: there `v_scale` belongs to the
    reading as V. For bf16 all three are 1.

    Raises ConfigError for what is missing, what the form does not take, and shapes, types and
    numbers that do not fit.
    """

    config: MlaConfig
    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    v: npt.NDArray[Any] | None
    scale: float
    start_pos: int | Ints = 0
    num_keys: int | None = None
    q_offsets: Ints | None = None
    kv_offsets: Ints | None = None
    kv_lengths: Ints | None = None
    page_table: Ints | None = None
    k_rope: npt.NDArray[Any] | None = None
    q_scale: float = 1.0
    k_scale: float = 1.0
    v_scale: float = 1.0

    def __post_init__(self) -> None:
        given = (self.scale, self.q_scale, self.k_scale, self.v_scale)
        for name, value in asdict(checked_scales(self.config, *given)).items():
            object.__setattr__(self, name, value)
        form = self.config.kv_form
        self._check_form({"v": form != "latent", "k_rope": form == "nope_rope"})

    def key_rows(self, sequence: PrefillSequence, kv_head: int) -> tuple[Any, Any]:
        """The keys [keys, 192] and the values [keys, 128] of a sequence, in their order."""
        config = self.config
        k = self.gathered(sequence, self.k)[:, kv_head]
        if self.v is not None:
            v = self.gathered(sequence, self.v)[:, kv_head]
            if self.k_rope is None:
                return k, v
            return np.concatenate([k, self.gathered(sequence, self.k_rope)], axis=1), v
        nope = k[:, : config.depth]
        rope = k[:, config.rope_cache_offset : config.rope_cache_offset + config.d_rope]
        return np.concatenate([nope, rope], axis=1), nope

    @property
    def arithmetic(self) -> Arithmetic:
        """What the kernel computes with."""
        return BF16_PRESCALED if self.config.dtype == "bf16" else FP8

    @property
    def score_scale(self) -> float:
        """What takes dot products of the stored Q and K to natural units."""
        return Scales(self.scale, self.q_scale, self.k_scale, self.v_scale).score_scale

    @property
    def value_scale(self) -> float:
        """What the stored V is multiplied with."""
        return self.v_scale
