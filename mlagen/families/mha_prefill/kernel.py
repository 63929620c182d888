"""An MHA kernel as a function: numpy arrays in and out (emulated), or tensors of a GPU."""

from __future__ import annotations

from typing import Any, ClassVar

from mlagen.attention.calls import taking
from mlagen.attention.prefill.host import PrefillArguments
from mlagen.attention.prefill.kernel import PrefillCall, PrefillKernel
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2


def mha_call(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    q_scale: float = 1.0,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    start_pos: Any = 0,
    q_offsets: Any = None,
    kv_offsets: Any = None,
    kv_lengths: Any = None,
    page_table: Any = None,
    sinks: Any = None,
    out: Any = None,
    lse: Any = None,
    max_seq_len: int | None = None,
) -> PrefillCall:
    """The call of these arguments; `MhaKernel.__call__` says what they are."""
    tensors = {
        "q": q, "k": k, "v": v, "q_offsets": q_offsets, "kv_offsets": kv_offsets,
        "kv_lengths": kv_lengths, "page_table": page_table, "sinks": sinks,
    }  # fmt: skip
    scales = (scale, q_scale, k_scale, v_scale)
    return PrefillCall(tensors, scales, start_pos, out, lse, max_seq_len)


takes_call = taking(mha_call)


class MhaKernel(PrefillKernel):
    """A built MHA kernel. `kernel(q, k, v)` runs it, in the emulator unless told otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    config_type: ClassVar[type[PrefillConfig]] = MhaConfigV2
    inputs_type: ClassVar[Any] = MhaInputs
    config: MhaConfigV2

    @takes_call
    def __call__(self, call: PrefillCall) -> Any:
        """Attention of `q` over `k` and `v`: O, or (O, LSE) where the kernel is built for it.

        C-contiguous arrays of the problem's dtype (`ml_dtypes.bfloat16` or float8_e4m3fn), shapes
        and the arrays that each form takes as in `MhaInputs`: dense q [B, S, H, D] over k, v [B,
        num_keys, H_kv, D]; packed rows with `q_offsets`; keys packed with `kv_offsets` or in pages
        with `page_table` and `kv_lengths`. `scale` multiplies the dot products, 1 / sqrt(D) where
        it is not given; fp8 tensors hold numbers divided by `q_scale`, `k_scale` and `v_scale`.
        Query row i stands at `start_pos + i`, a number or int32 [B] where lengths differ by
        sequence. `out` and `lse` are written to and returned; they are filled with NaN first, so
        nothing old survives.

        Tensors of a GPU (torch's, or with the array interface or DLPack) run on it, in its current
        stream, and nothing waits for them; `out` is then left as it is, and torch alone makes one.
        Ragged kernels then need `max_seq_len`, the query rows of the longest sequence; on arrays of
        the host `q_offsets` tells it.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        run, and FindingsError when the emulator's sanitizer found a defect in the run.
        """
        return self._called(call)

    @takes_call
    def arguments(self, call: PrefillCall) -> PrefillArguments:
        """What a call on tensors of a GPU passes to the launcher, checked: for
        `kernel.gpu_launcher.prepare`. See `gpu_arguments`."""
        return self._arguments(call)
