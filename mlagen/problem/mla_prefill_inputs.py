"""One call's data of an MLA prefill problem: its tensors with their run-time numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
        object.__setattr__(self, "scale", check_scale(self.config, self.scale))
        for name in ("q_scale", "k_scale", "v_scale"):
            object.__setattr__(self, name, self._checked_tensor_scale(name))
        check_scale(self.config, self.score_scale, "scale * q_scale * k_scale")
        form = self.config.kv_form
        self._check_form({"v": form != "latent", "k_rope": form == "nope_rope"})

    def _checked_tensor_scale(self, name: str) -> float:
        """The scale of a tensor as the fp32 number that the kernel is handed."""
        with np.errstate(over="ignore"):
            given = float(np.float32(number(name, getattr(self, name))))
        if not (given >= SMALLEST_NORMAL and np.isfinite(given)):
            raise ConfigError(
                f"{name}={getattr(self, name)} must be positive and finite in fp32",
                hint="the largest magnitude of the tensor / 448 is usual",
            )
        if self.config.dtype == "bf16" and given != 1.0:
            raise ConfigError(
                f"{name}={given:g}: a kernel of dtype=bf16 takes no scales of its tensors",
                hint="dtype=fp8_e4m3 does; fold others into scale and the output",
            )
        return given

    @property
    def options(self) -> Mapping[str, Any]:
        """What decides, besides the form, which arrays the kernel takes."""
        return {"kv_form": self.config.kv_form}

    def key_tensors(self) -> Mapping[str, tuple[npt.NDArray[Any], tuple[int, ...]]]:
        """k, and what the form has besides."""
        config = self.config
        found: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]] = {}
        found["k"] = (self.k, (config.num_kv_heads, config.k_width))
        if self.v is not None:
            found["v"] = (self.v, (config.num_kv_heads, config.depth))
        if self.k_rope is not None:
            found["k_rope"] = (self.k_rope, (config.d_rope,))
        return found

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
        return self.scale * self.q_scale * self.k_scale

    @property
    def value_scale(self) -> float:
        """What the stored V is multiplied with."""
        return self.v_scale
