"""An MLA prefill kernel as a function: numpy arrays in and out (emulated), or tensors of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mlagen.ops.prefill import PrefillKernel
from mlagen.ops.prefill_gpu import PrefillArguments
from mlagen.problem import MlaConfig, MlaPrefillInputs, default_scale
from mlagen.problem.mla_prefill_inputs import checked_scales
from mlagen.problem.prefill import PrefillConfig


class MlaPrefillKernel(PrefillKernel):
    """A built MLA prefill kernel. `kernel(q, k, v)` runs it, in the emulator unless told otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    config_type: ClassVar[type[PrefillConfig]] = MlaConfig
    inputs_type: ClassVar[Any] = MlaPrefillInputs
    config: MlaConfig

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any = None,
        *,
        k_rope: Any = None,
        scale: float | None = None,
        q_scale: float = 1.0,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        start_pos: Any = 0,
        q_offsets: Any = None,
        kv_offsets: Any = None,
        kv_lengths: Any = None,
        page_table: Any = None,
        out: Any = None,
        lse: Any = None,
        max_seq_len: int | None = None,
    ) -> Any:
        """Attention of `q` over `k` and `v`: O, or (O, LSE) where the kernel is built for it.

        C-contiguous arrays of the problem's dtype (`ml_dtypes.float8_e4m3fn` or bfloat16), with
        the shapes of its form (see `problem.mla`): dense q [B, S, H, 192] over k [B, num_keys,
        H_kv, 192] and v [B, num_keys, H_kv, 128]; `k_rope` for `nope_rope`; no v for `latent`;
        packed rows and pages as in `MhaKernel`. `scale` multiplies the dot products, 1 / sqrt(192)
        where it is not given. fp8 tensors hold numbers divided by `q_scale`, `k_scale` (rope too)
        and `v_scale`. `out` and `lse` are written to and returned; they are filled with NaN first.

        Tensors of a GPU run on it; there `MhaKernel`'s rules hold, `max_seq_len` included.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        run, and FindingsError when the emulator's sanitizer found a defect in the run.
        """
        tensors = {
            "q": q, "k": k, "v": v, "k_rope": k_rope, "q_offsets": q_offsets,
            "kv_offsets": kv_offsets, "kv_lengths": kv_lengths, "page_table": page_table,
        }  # fmt: skip
        return self._call(
            tensors,
            self._scales(scale, q_scale, k_scale, v_scale),
            start_pos=start_pos,
            out=out,
            lse=lse,
            max_seq_len=max_seq_len,
        )

    def arguments(
        self,
        q: Any,
        k: Any,
        v: Any = None,
        *,
        scale: float | None = None,
        q_scale: float = 1.0,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        start_pos: Any = 0,
        out: Any = None,
        lse: Any = None,
        max_seq_len: int | None = None,
        **arrays: Any,
    ) -> PrefillArguments:
        """What a call on tensors of a GPU hands to the launcher, checked: for
        `kernel.gpu_launcher.prepare`. `arrays` are those of MlaPrefillInputs."""
        return self._arguments(
            {"q": q, "k": k, "v": v, **arrays},
            self._scales(scale, q_scale, k_scale, v_scale),
            start_pos=start_pos,
            out=out,
            lse=lse,
            max_seq_len=max_seq_len,
        )

    def _scales(
        self, scale: float | None, q_scale: float, k_scale: float, v_scale: float
    ) -> dict[str, float]:
        return {
            "scale": default_scale(self.config) if scale is None else scale,
            "q_scale": q_scale,
            "k_scale": k_scale,
            "v_scale": v_scale,
        }

    def _checked_scales(self, scales: Mapping[str, float]) -> tuple[float, float]:
        made = checked_scales(self.config, **scales)
        return made.score_scale, made.v_scale
