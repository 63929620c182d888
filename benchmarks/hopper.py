"""Speed of the Hopper kernels, each beside a peer on the same tensors in the same run.

    python benchmarks/hopper.py [--json] [--only gemm|decode]

Needs a Hopper GPU, torch, cuda-bindings and a ptxas. Every kernel is checked against fp64 on the
GPU before it is timed, and is not timed when it is wrong. Times are medians of single launches with
the L2 cache flushed before each, interleaved with the peer, by CUDA events. GEMM: 2 M N K flop,
peer torch.matmul. MLA decode: 2 * s_q * heads * keys * (576 + 512) flop, cache bytes read once;
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


def decode(
    torch: Any,
    batch: int,
    heads: int,
    keys: int,
    *,
    q_len: int = 1,
    page: int = 64,
    varied: bool = False,
    cache_dtype: str = "bf16",
) -> list[dict[str, Any]]:
    """MLA decode of `batch` sequences of `keys` keys, beside a matmul and FlashMLA. `varied`:
    lengths drawn from keys / 2 .. keys."""
    import mlagen

    pages = keys // page
    cache = torch.randn(batch * pages, page, 1, 576, device="cuda").bfloat16()
    if cache_dtype != "bf16":
        cache = cache.to(torch.float8_e4m3fn)
    table = torch.randperm(batch * pages, device="cuda").int().view(batch, pages)
    drawn = torch.randint(keys // 2, keys + 1, (batch,), generator=torch.manual_seed(1))
    lengths = (drawn if varied else torch.full((batch,), keys)).int()
    q = torch.randn(batch, q_len, heads, 576, device="cuda").bfloat16()
    scale = 192**-0.5
    kernel = mlagen.build(
        "mla_decode_sm90", num_heads=heads, q_len=q_len, page_size=page, cache_dtype=cache_dtype,
    )  # fmt: skip
    plan = kernel.plan(lengths.tolist())
    on_gpu = lengths.cuda()
    # Prepared once: what is timed is the kernels, not the checks of a first call.
    ours = kernel.prepare(q, cache, table, on_gpu, scale=scale, plan=plan)
    ours.output.fill_(float("nan"))
    ours()
    last = batch - 1
    own = int(lengths[last])
    rows = cache.view(torch.uint8 if cache_dtype != "bf16" else cache.dtype)[table[last].long()]
    rows = rows.view(cache.dtype).view(keys, 576)[:own].double()
    scores = torch.softmax(q[last, -1].double() @ rows.T * scale, -1)
    expected = scores @ rows[:, :512]
    error = float((ours.output[last, -1].double() - expected).norm() / expected.norm())
    shape = f"b={batch} h={heads} s_q={q_len} keys={keys}{' varied' * varied} page={page}"
    shape += f" {cache_dtype}"
    if wrong(f"mla decode {shape}", error, 2.0**-7):
        return []
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    calls: Timed = {
        "ours": ours,
        "matmul": lambda: torch.matmul(a, b),
    }
    if page == 64 and cache_dtype == "bf16":
        try:
            import flash_mla  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            pass
        else:
            metadata, splits = flash_mla.get_mla_metadata(on_gpu, heads * q_len, 1)
            calls["flash_mla"] = lambda: flash_mla.flash_mla_with_kvcache(
                q, cache, table, on_gpu, 512, metadata, splits, softmax_scale=scale, causal=True
            )
    seconds = medians(torch, calls)
    total = int(lengths.sum())
    flop, read = 2 * q_len * heads * total * (576 + 512), total * 576 * cache.element_size()
    tflops = flop / seconds["ours"] / 1e12
    result = {
        "kernel": "mla_decode_sm90", "shape": shape, "splits": plan.work.slots,
        "us": seconds["ours"] * 1e6, "tflops": tflops, "GB/s": read / seconds["ours"] / 1e9,
        "share_of_matmul": tflops / (2 * 8192**3 / seconds["matmul"] / 1e12),
        "relative_error": error,
    }  # fmt: skip
    if "flash_mla" in seconds:
        result |= {"peer": "flash_mla", "ratio": seconds["flash_mla"] / seconds["ours"]}
    return [result]


DECODES: tuple[dict[str, Any], ...] = (
    *({"batch": 128, "heads": 128, "keys": keys} for keys in (4096, 8192, 16384)),
    {"batch": 128, "heads": 128, "keys": 8192, "q_len": 2},
    {"batch": 128, "heads": 128, "keys": 8192, "varied": True},
    *({"batch": 128, "heads": heads, "keys": 8192} for heads in (8, 16, 64)),
    {"batch": 16, "heads": 128, "keys": 32768},
    {"batch": 1, "heads": 128, "keys": 131072},
    *({"batch": 128, "heads": 16, "keys": 8192, "page": page} for page in (32, 16, 1)),
    *(
        {"batch": 128, "heads": heads, "keys": 8192, "cache_dtype": "fp8_e4m3"}
        for heads in (128, 64, 16)
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["gemm", "decode"])
    options = parser.parse_args()
    import torch

    results: list[dict[str, Any]] = []
    if options.only != "decode":
        results += [*gemm(torch, 4096), *gemm(torch, 8192)]
    if options.only != "gemm":
        for shape in DECODES:
            results += decode(torch, **shape)
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
