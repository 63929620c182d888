"""A lab without a GPU: tensors are the host's, kernels are oracles, time is what calls cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.families.mla_decode.benchmark.judge import DecodeJudge
from mlagen.families.mla_decode.benchmark.work import DecodeCase, DecodeWork
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.rounded import rounded
from mlagen.family.peers import PeerAbsent, PeerUnfit


class FakeClock:
    """Its time goes on only when a call says so; `log` is what happened."""

    def __init__(self) -> None:
        self.now, self.log = 0.0, []

    def flush(self) -> None:
        self.log.append("flush")
        self.now += 1.0  # a flush that were timed would show

    def mark(self) -> float:
        return self.now

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def costs(self, name: str, seconds: Any, result: Any = None) -> Callable[[], Any]:
        """A call that takes so long: a number, or one after the other of several."""
        left = iter(seconds) if isinstance(seconds, list) else None

        def call() -> Any:
            self.log.append(name)
            self.now += next(left) if left is not None else seconds
            return result

        return call


class FakeLab:
    """Ours takes `seconds`; `spoil` changes its outputs (O, LSE) before they are looked at."""

    def __init__(self, seconds: float = 2e-3, spoil: Callable[[Any, Any], None] | None = None):
        self.clock: Any = FakeClock()
        self.seconds, self.spoil = seconds, spoil

    def facts(self) -> dict[str, str]:
        return {"device": "none"}

    def case(self, work: DecodeWork) -> DecodeCase:
        made = mla_decode_inputs(work.config, lengths=work.lengths, data="randn", seed=work.seed)
        return DecodeCase(work, made.q, made.cache, made.block_table, made.cache_lengths,
                          MODEL_SCALE, made.kv_scale, made.q_scale, made.kv_scales,
                          made.q_scales)  # fmt: skip

    def right(self, case: DecodeCase) -> tuple[Any, Any, Any]:
        """O, LSE and splits as a right kernel has them."""
        config = case.work.config
        splits = plan_work(config, case.work.lengths, blocks=8).splits
        inputs = MlaDecodeInputs(
            config, case.q, case.cache, case.table, case.lengths, **case.scales
        )
        found = rounded(inputs, splits=splits)
        lse = found.lse.values[..., 0].transpose(0, 2, 1)
        out = found.output.values.astype(ml_dtypes.bfloat16)
        return out, np.ascontiguousarray(lse).astype(np.float32), splits

    def ours(self, case: DecodeCase) -> Callable[[], Any]:
        out, lse, splits = self.right(case)
        if self.spoil is not None:
            self.spoil(out, lse)
        return self.clock.costs("mlagen", self.seconds, (out, lse, splits))

    def judge(self, case: DecodeCase) -> DecodeJudge:
        return DecodeJudge(case, np.asarray)

    def ceilings(self) -> dict[str, Any]:
        return {"matmul": (self.clock.costs("matmul", 0.5), 100.0, "TFLOP/s")}

    def wait(self) -> None:
        pass


class FakePeer:
    """Takes `seconds` and is off by the factor `off`."""

    def __init__(self, name: str, lab: FakeLab, seconds: Any = 1e-3, off: float = 1.0,
                 absent: str = "", unfit: str = "", breaks: str = "") -> None:  # fmt: skip
        self.name, self.lab, self.seconds, self.off = name, lab, seconds, off
        self.absent, self.unfit, self.breaks = absent, unfit, breaks

    def load(self) -> str:
        if self.absent:
            raise PeerAbsent(self.absent)
        return "1.0"

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        if self.unfit:
            raise PeerUnfit(self.unfit)
        if self.breaks:
            raise RuntimeError(f"{self.breaks}\nand much more")
        out, _, _ = self.lab.right(case)
        return self.lab.clock.costs(self.name, self.seconds, out * ml_dtypes.bfloat16(self.off))
