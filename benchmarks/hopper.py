"""Speed of the Hopper kernels, each beside a peer on the same tensors in the same run.

    python benchmarks/hopper.py [--json]

Needs a Hopper GPU, torch, cuda-bindings and a ptxas. Every kernel is checked against fp64 on the
GPU before it is timed, and is not timed when it is wrong. Times are medians of single launches with
the L2 cache flushed before each, interleaved with the peer, by CUDA events. GEMM: 2 M N K flop,
peer torch.matmul. MLA decode: 2 * batch * heads * keys * (576 + 512) flop, cache bytes read once;
peer FlashMLA where it is installed, and always the share of the same run's 8192^3 bf16 matmul.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = "mlagen.benchmark.hopper/1"
REPEATS = 30
Timed = dict[str, Callable[[], Any]]


def medians(torch: Any, calls: Timed) -> dict[str, float]:
    """Seconds of each call, interleaved, L2 flushed before each."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(REPEATS + 3):
        for name, call in calls.items():
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if round_ >= 3:
                times[name].append(begin.elapsed_time(end) / 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def wrong(name: str, error: float, limit: float) -> bool:
    """Whether a relative error forbids a speed; says so."""
    if error <= limit:
        return False
    print(f"{name}: relative error {error:.3g} is above {limit:.3g}, not timed", file=sys.stderr)
    return True


def gemm(torch: Any, size: int) -> list[dict[str, Any]]:
    """C = A . B^T, size^3, beside torch.matmul."""
    from mlagen.codegen import build
    from mlagen.codegen.schedules import load
    from mlagen.launch import CudaLauncher

    schedule = load(str(ROOT / "examples" / "gemm_bf16.py"), "sm_90a")
    artifact = build(schedule, schedule.problem_type(m_tile=128))
    a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda").bfloat16()
    other = torch.empty_like(c)
    sizes = {"m": size, "n": size, "k": size}
    call = CudaLauncher().prepare(
        artifact, tensors={"a": a, "b": b, "c": c}, scalars=sizes, sizes=sizes
    )
    call()
    rows = slice(0, 512)
    expected = a[rows].double() @ b.double().T
    error = float((c[rows].double() - expected).norm() / expected.norm())
    if wrong(f"gemm {size}", error, 2.0**-8):
        return []
    seconds = medians(torch, {"ours": call, "peer": lambda: torch.matmul(a, b.T, out=other)})
    flop = 2 * size**3
    return [
        {
            "kernel": "gemm_bf16_sm90", "shape": f"{size}^3", "peer": "torch.matmul",
            "us": seconds["ours"] * 1e6, "tflops": flop / seconds["ours"] / 1e12,
            "peer_tflops": flop / seconds["peer"] / 1e12,
            "ratio": seconds["peer"] / seconds["ours"], "relative_error": error,
        }
    ]  # fmt: skip


def decode(torch: Any, batch: int, heads: int, keys: int) -> list[dict[str, Any]]:
    """MLA decode of `batch` sequences of `keys` keys, beside a matmul and FlashMLA."""
    from mlagen.codegen import build
    from mlagen.launch import CudaLauncher
    from mlagen.ops import MlaDecodeKernel
    from mlagen.problem import MlaDecodeConfig

    pages = keys // 64
    cache = torch.randn(batch * pages, 64, 1, 576, device="cuda").bfloat16()
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
    q = torch.randn(batch, 1, heads, 576, device="cuda").bfloat16()
    scale = 192**-0.5
    launcher = CudaLauncher()
    kernel = MlaDecodeKernel(build("mla_decode_sm90", MlaDecodeConfig(num_heads=heads)), launcher)
    given = kernel.arguments(q, cache, table, lengths, scale=scale)
    # Prepared once: what is timed is the kernel, not the checks of a first call.
    ours = launcher.prepare(
        kernel.artifact, tensors=given.tensors, scalars=given.scalars, sizes=given.sizes
    )
    ours()
    out = given.tensors["o"]
    rows = cache[table[0].long()].view(keys, 576).double()
    scores = torch.softmax(q[0, 0].double() @ rows.T * scale, -1)
    expected = scores @ rows[:, :512]
    error = float((out[0, 0].double() - expected).norm() / expected.norm())
    if wrong(f"mla decode {batch} x {heads} x {keys}", error, 2.0**-7):
        return []
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    calls: Timed = {
        "ours": ours,
        "matmul": lambda: torch.matmul(a, b),
    }
    try:
        import flash_mla  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        pass
    else:
        metadata, splits = flash_mla.get_mla_metadata(lengths, heads, 1)
        calls["flash_mla"] = lambda: flash_mla.flash_mla_with_kvcache(
            q, cache, table, lengths, 512, metadata, splits, softmax_scale=scale
        )
    seconds = medians(torch, calls)
    flop, read = 2 * batch * heads * keys * (576 + 512), batch * keys * 576 * 2
    tflops = flop / seconds["ours"] / 1e12
    result = {
        "kernel": "mla_decode_sm90", "shape": f"b={batch} h={heads} keys={keys}",
        "us": seconds["ours"] * 1e6, "tflops": tflops, "GB/s": read / seconds["ours"] / 1e9,
        "share_of_matmul": tflops / (2 * 8192**3 / seconds["matmul"] / 1e12),
        "relative_error": error,
    }  # fmt: skip
    if "flash_mla" in seconds:
        result |= {"peer": "flash_mla", "ratio": seconds["flash_mla"] / seconds["ours"]}
    return [result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import torch

    results = [*gemm(torch, 4096), *gemm(torch, 8192)]
    for batch, heads, keys in ((128, 128, 4096), (128, 128, 8192), (128, 64, 8192)):
        results += decode(torch, batch, heads, keys)
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    if options.json:
        print(json.dumps({"schema": SCHEMA, "device": device, "results": results}))
        return
    print(device)
    for result in results:
        values = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in result.items())
        print("  " + ", ".join(values))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
