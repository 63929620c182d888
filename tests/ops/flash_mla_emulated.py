"""FlashMLA's own sparse tests without a GPU: torch on the CPU, mlagen's kernels in the emulator.

    python tests/ops/flash_mla_emulated.py FOLDER prefill|decode [--where EXPRESSION] [--most N]
        [--seed N] [--heads N] [--sms N]

Cases are drawn from those of the whole list for which the expression of `c`, a case, is true:
"c.decode.b == 4 and c.topk == 64". The test's generator, call, reference and comparison run as they
are; `--heads` changes the cases' heads. Needs torch for CPUs, and patience with large cases.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import flash_mla_tests as runner
import ml_dtypes
import numpy_torch
from sparse_calls import artifact

from mlagen.families.mla_sparse.kernel import sparse_kernel

SPARSE = ("flash_mla_sparse_fwd", "flash_mla_with_kvcache")
OTHERS = ("synchronize", "empty_cache", "set_device")  # what a CPU does not need


def stand_in(torch: Any, tensor: Any) -> numpy_torch.Tensor:
    """The same memory as a tensor of the stand-in: numpy knows the bits of these types."""
    bits = {
        torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
        torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    }
    whole, own = bits.get(tensor.dtype, (tensor.dtype, None))
    array = tensor.view(whole).numpy()
    return numpy_torch.Tensor(array if own is None else array.view(own))


def of_torch(torch: Any, tensor: numpy_torch.Tensor) -> Any:
    """A copy of an output."""
    if tensor.array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(tensor.array.view("int16").copy()).view(torch.bfloat16)
    return torch.from_numpy(tensor.array.copy())


def emulated(sms: int) -> tuple[Any, Any]:
    """`mlagen.compat.flash_mla` over the stand-in of torch, and that one."""
    launcher = numpy_torch.Emulating()

    @cache
    def built(name: str, config: Any) -> Any:
        return sparse_kernel(artifact(name, config.to_fields()), launcher, artifact)

    with numpy_torch.installed() as module:
        compat = importlib.import_module("mlagen.compat.flash_mla")
        operators = importlib.import_module("mlagen.ops.torch_sparse")
        operators._built = built
    module.sms = sms
    return compat, module


def bridged(torch: Any, sms: int) -> ModuleType:
    """A `flash_mla` of torch's tensors."""
    compat, module = emulated(sms)
    made: Any = ModuleType("flash_mla")

    def function(name: str) -> Any:
        def call(*given: Any, **named: Any) -> tuple[Any, ...]:
            def own(value: Any) -> Any:
                return stand_in(torch, value) if isinstance(value, torch.Tensor) else value

            with patch.dict(sys.modules, torch=module):
                found = getattr(compat, name)(
                    *map(own, given), **{key: own(value) for key, value in named.items()}
                )
            return tuple(of_torch(torch, tensor) for tensor in found)

        return call

    for name in SPARSE:
        setattr(made, name, function(name))
    made.get_mla_metadata = compat.get_mla_metadata
    made.install = lambda: sys.modules.update(flash_mla=made)
    return made


def drawn(cases: list[Any], where: str, options: argparse.Namespace) -> list[Any]:
    """Those that are asked for."""
    fitting = [c for c in cases if eval(where, {"c": c}) and not runner.timed(c)]
    random.Random(options.seed).shuffle(fitting)
    for case in fitting[: options.most]:
        case.h_q = options.heads or case.h_q
    return fitting[: options.most]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("test", choices=["prefill", "decode"])
    parser.add_argument("--where", default="c.s_q == 1 and c.topk < 600")
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--sms", type=int, default=132)
    options = parser.parse_args()
    where, options.where = options.where, "True"  # which is asked of cases as they are
    options.only, options.seconds = "results", float("inf")

    import mlagen.compat

    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch._inductor.config")  # before there is a triton
    made = bridged(torch, options.sms)
    sys.modules |= {
        "mlagen.compat.flash_mla": made,
        "triton": SimpleNamespace(jit=lambda function: function),  # type: ignore[dict-item]
    }
    vars(mlagen.compat)["flash_mla"] = made
    for name in OTHERS:
        setattr(torch.cuda, name, lambda *_: None)
    torch.Tensor.cuda = lambda self: self
    torch.set_default_device = lambda _: None
    whole = runner.Test.of

    def some(folder: Path, name: str) -> runner.Test:
        test = whole(folder, name)
        return runner.Test(test.function, drawn(test.cases, where, options))

    with patch.object(runner.Test, "of", some):
        raise SystemExit(bool(runner.run(options, 0, 1)))


if __name__ == "__main__":
    main()
