"""An MLA prefill kernel as a function: numpy arrays in and out (emulated), or tensors of a GPU."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.calls import taking
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.host import PrefillArguments, host_call
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.kernel import PrefillCall, PrefillKernel, PrefillRun
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.aiter import aiter_arguments
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.mla_prefill.workspace import merge, work_call
from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel
from mlagen.launch import Launcher

COMPUTE_UNITS = 256  # of an MI350X or MI355X: a persistent kernel has a workgroup for each


def mla_prefill_call(
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
) -> PrefillCall:
    """The call of these arguments; `MlaPrefillKernel.__call__` says what they are."""
    tensors = {
        "q": q, "k": k, "v": v, "k_rope": k_rope, "q_offsets": q_offsets,
        "kv_offsets": kv_offsets, "kv_lengths": kv_lengths, "page_table": page_table,
    }  # fmt: skip
    scales = (scale, q_scale, k_scale, v_scale)
    return PrefillCall(tensors, scales, start_pos, out, lse, max_seq_len)


takes_call = taking(mla_prefill_call)


class MlaPrefillKernel(PrefillKernel):
    """A built MLA prefill kernel. `kernel(q, k, v)` runs it, in the emulator unless told otherwise.

    A persistent kernel's work is planned for `workgroups`. Its partial outputs are merged by the
    kernel `reduce`, or in fp64 on the host where there is none.

    Raises ConfigError for an artifact of another kind of problem.
    """

    config_type: ClassVar[type[PrefillConfig]] = MlaConfigV2
    inputs_type: ClassVar[Any] = MlaPrefillInputs
    config: MlaConfigV2

    def __init__(
        self,
        artifact: Artifact,
        launcher: Launcher | None = None,
        *,
        workgroups: int = COMPUTE_UNITS,
        reduce: MlaReduceKernel | None = None,
    ) -> None:
        super().__init__(artifact, launcher)
        self.workgroups = workgroups
        self.reduce = reduce
        facts = facts_of(artifact)
        self.persistent, self.takes_aiters_arguments = facts.persistent, facts.aiter

    @takes_call
    def __call__(self, call: PrefillCall) -> Any:
        """Attention of `q` over `k` and `v`: O, or (O, LSE) where the kernel is built for it.

        C-contiguous arrays of the problem's dtype (`ml_dtypes.float8_e4m3fn` or bfloat16), with
        the shapes of its form (see `mla_prefill.problem`): dense q [B, S, H, 192] over k [B,
        num_keys, H_kv, 192] and v [B, num_keys, H_kv, 128]; `k_rope` for `nope_rope`; no v for
        `latent`; packed rows and pages as in `MhaKernel`. `scale` multiplies the dot products,
        1 / sqrt(192) where it is not given. fp8 tensors hold numbers divided by `q_scale`,
        `k_scale` (rope too) and `v_scale`. `out` and `lse` are written to and returned; they are
        filled with NaN first.

        Tensors of a GPU run on it; there `MhaKernel`'s rules hold, `max_seq_len` included.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        run, and FindingsError when the emulator's sanitizer found a defect in the run.
        """
        return self._called(call)

    def run(
        self,
        inputs: PrefillInputs,
        *,
        out: npt.NDArray[Any] | None = None,
        lse: npt.NDArray[Any] | None = None,
        plan: WorkPlan | None = None,
        partial_o: npt.NDArray[Any] | None = None,
        partial_lse: npt.NDArray[Any] | None = None,
        compared: bool = True,
    ) -> PrefillRun:
        """Like a call, but findings are left in the report. For checkers. Not `compared`: outputs
        that are not given are not filled, and parts are not merged.

        A persistent kernel also takes its `plan` and the buffers of partial outputs, fp32 [rows,
        num_heads, 128] and [rows, num_heads], which are filled with NaN; all are made where they
        are not given.
        """
        if not self.persistent:
            if not (plan is partial_o is partial_lse is None):
                raise ConfigError(
                    f"{self.artifact.manifest.kernel} has a workgroup for each query tile: it "
                    f"takes neither a plan nor partial outputs"
                )
            return super().run(inputs, out=out, lse=lse, compared=compared)
        self._require_own(inputs)
        assert isinstance(inputs, MlaPrefillInputs)
        call = host_call(inputs, out, lse, compared=compared)
        output, log_sum = call.tensors["o"], call.tensors.get("lse")
        if not inputs.seq_len:
            return PrefillRun(output, log_sum, None)
        listed = self.takes_aiters_arguments
        if plan is None:
            plan = plan_inputs(inputs, self.workgroups, listed=listed)
        work = work_call(inputs, plan, partial_o, partial_lse, listed=listed, compared=compared)
        tensors, scalars = {**call.tensors, **work.tensors}, call.scalars
        if listed:
            tensors, scalars = aiter_arguments(inputs, work, output)
        report = self.launcher.launch(
            self.artifact,
            tensors=tensors,
            scalars=scalars,
            sizes={"workgroups": work.workgroups},
        )
        if compared:
            merge(inputs, work, output, log_sum, self.reduce)
        return PrefillRun(output, log_sum, report)

    @takes_call
    def arguments(self, call: PrefillCall) -> PrefillArguments:
        """What a call on tensors of a GPU passes to the launcher, checked: for
        `kernel.gpu_launcher.prepare`. ConfigError for a persistent kernel, whose work is planned
        from lengths on the host."""
        return self._arguments(call)

    def _arguments(self, call: PrefillCall) -> PrefillArguments:
        if self.persistent:
            raise ConfigError(
                f"{self.artifact.manifest.kernel} is persistent: its work is planned from lengths "
                f"that are on the host, and these are tensors of a GPU",
                hint="a static grid needs no plan; or launch it through mlagen.launch with a plan",
            )
        return super()._arguments(call)
