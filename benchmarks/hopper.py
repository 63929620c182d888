"""Speed of the Hopper kernels, each beside a peer on the same tensors in the same run.

    python benchmarks/hopper.py [--json] [--only gemm|decode|host]

Needs a Hopper GPU, torch, cuda-bindings and a ptxas. Every kernel is checked against fp64 on the
GPU before it is timed, and is not timed when it is wrong. Times are medians of single launches with
the L2 cache flushed before each, interleaved with the peer, by CUDA events. GEMM: 2 M N K flop,
peer torch.matmul. MLA decode: `mlagen bench` over its usual shapes, with all installed peers.
`host`: the host's time a call, which no GPU work is part of.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = "mlagen.benchmark.hopper/2"
REPEATS = 30
IN_A_ROW = 200  # calls: the GPU's queue holds a thousand launches
SCALE = 192**-0.5
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
    artifact = build(schedule, schedule.problem_type())
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


def decode(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """MLA decode through `mlagen.bench`, beside the peers that are installed."""
    import mlagen
    from mlagen.bench import bench
    from mlagen.families.mla_decode.benchmark import DecodeBenchmark

    benchmark = DecodeBenchmark()
    rows = []
    for case in cases:
        sizes = {name: case[name] for name in ("batch", "keys", "least") if name in case}
        fields = {k: v for k, v in case.items() if k not in (*sizes, "knobs")}
        kernel: Any = mlagen.build("mla_decode_sm90", knobs=case.get("knobs"), **fields)
        work = benchmark.work(fields, sizes, 0)
        report = bench("mla_decode_sm90", benchmark, [work], benchmark.chosen(None),
                       benchmark.lab(kernel), repeats=REPEATS)  # fmt: skip
        for found in report.to_json()["rows"][0]["results"]:
            shape = f"{work} {case.get('knobs', '')}".rstrip()
            rows.append({"kernel": "mla_decode_sm90", "shape": shape, **found})
    return rows


def host(torch: Any) -> list[dict[str, Any]]:
    """Microseconds of the host's time a call, by each way to call dense MLA decode."""
    import mlagen
    from mlagen.compat import flash_mla
    from mlagen.ops import mla_decode, plan_mla_decode

    rows = []
    for batch, keys in ((64, 64), (2, 2048)):
        pages = -(-keys // 64)
        cache = torch.randn(batch * pages, 64, 1, 576, device="cuda").bfloat16()
        table = torch.arange(batch * pages, device="cuda").int().view(batch, pages)
        lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        q = torch.randn(batch, 1, 16, 576, device="cuda").bfloat16()
        kernel: Any = mlagen.build("mla_decode_sm90", num_heads=16)
        plan = kernel.plan(lengths)
        of_operator = plan_mla_decode(q, cache, lengths)
        given = (q, cache, table, lengths)
        step = kernel.prepare(*given, scale=SCALE, plan=plan)
        meta, _ = flash_mla.get_mla_metadata()
        outputs = {"out": step.output, "lse": step.lse}
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        ways: Timed = {
            "a prepared step": step,
            "plan.run, outputs given": partial(plan.run, *given, scale=SCALE, **outputs),
            "plan.run": partial(plan.run, *given, scale=SCALE),
            "the kernel, without a plan": partial(kernel, *given, scale=SCALE),
            "the operator, with a plan": partial(mla_decode, *given, SCALE, plan=of_operator),
            "the operator": partial(mla_decode, *given, SCALE),
            "compat.flash_mla": partial(flash_mla.flash_mla_with_kvcache, *given, 512, meta),
            "replay of a captured step": graph.replay,
        }
        launches = 1 if plan.merges is None else 2
        for name, call in ways.items():
            times = host_time(torch, call)
            rows.append({"kernel": "mla_decode_sm90", "way": name, "launches": launches, **times})
    return rows


def sparse_host(torch: Any) -> list[dict[str, Any]]:
    """The same by each way to call sparse prefill, and sparse decode in one part and in several."""
    rows = []
    for kernel, leading, splits in (
        ("mla_sparse_prefill_sm90", (8,), None),
        ("mla_sparse_decode_sm90", (8, 1), 1),
        ("mla_sparse_decode_sm90", (8, 1), None),
    ):
        ways, launches = sparse_ways(torch, kernel, leading, splits)
        for name, call in ways.items():
            times = host_time(torch, call)
            rows.append({"kernel": kernel, "way": name, "launches": launches, **times})
    return rows


def sparse_ways(
    torch: Any, name: str, leading: tuple[int, ...], splits: int | None
) -> tuple[Timed, int]:
    """Ways to call a sparse kernel of 16 heads over rows of 656 bytes, top-k 64 or, for several
    parts, 2048; and how many kernels each launches."""
    import mlagen
    from mlagen import ops
    from mlagen.compat import flash_mla

    decode = "decode" in name
    cache = torch.zeros(64, 64, 656, device="cuda", dtype=torch.uint8)
    rows = cache.view(torch.float8_e4m3fn)
    topk = 64 if splits == 1 or not decode else 2048
    lists = torch.randint(4096, (*leading, topk), device="cuda", dtype=torch.int32)
    q = torch.randn(*leading, 16, 576, device="cuda").bfloat16()
    length = torch.full(leading[:1], topk, device="cuda", dtype=torch.int32)
    sink = torch.zeros(16, device="cuda")
    kernel: Any = mlagen.build(name, num_heads=16, rows="v32")
    more = {"splits": splits} if decode else {}
    given = (q, rows, lists)
    step = kernel.prepare(*given, scale=SCALE, **more)
    outputs = {"out": step.output, "lse": step.lse}
    if not decode:
        outputs["max_logits"] = step.max_logits
    operator = ops.mla_sparse_decode if decode else ops.mla_sparse_prefill
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    both = {"topk_length": length, "sink": sink}
    ways: Timed = {
        "a prepared run": step,
        "the kernel, outputs given": partial(kernel, *given, scale=SCALE, **more, **outputs),
        "the kernel": partial(kernel, *given, scale=SCALE, **more),
        "the operator": partial(operator, *given, SCALE, **more),
        "the operator, lengths and sink": partial(operator, *given, SCALE, **more, **both),
        "replay of a captured run": graph.replay,
    }
    if decode and splits is None:
        meta, _ = flash_mla.get_mla_metadata()
        ways["compat.flash_mla"] = partial(
            flash_mla.flash_mla_with_kvcache, q, cache[:, :, None], None, None, 512, meta, None,
            SCALE, is_fp8_kvcache=True, indices=lists,
        )  # fmt: skip
    return ways, len(step.launches)


def host_time(torch: Any, call: Callable[[], Any]) -> dict[str, float]:
    """Microseconds until a call returns: median and least over runs of calls that are fewer than
    the GPU's queue holds, so that nothing waits for the GPU."""
    means = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(IN_A_ROW):
            call()
        means.append((time.perf_counter() - started) / IN_A_ROW * 1e6)
    torch.cuda.synchronize()
    return {"host_us": statistics.median(means), "least_us": min(means)}


DECODES: tuple[dict[str, Any], ...] = (
    *({"batch": 128, "num_heads": 128, "keys": keys} for keys in (4096, 8192, 16384, 32768)),
    *({"batch": 128, "num_heads": 128, "keys": keys, "q_len": 2} for keys in (4096, 8192)),
    {"batch": 128, "num_heads": 128, "keys": 8192, "least": 4096},
    *({"batch": 128, "num_heads": n, "keys": 8192} for n in (8, 12, 16, 24, 32, 40, 64)),
    {"batch": 16, "num_heads": 128, "keys": 32768},
    {"batch": 1, "num_heads": 128, "keys": 131072},
    *({"batch": 128, "num_heads": 16, "keys": 8192, "page_size": page} for page in (32, 16, 1)),
    *(
        {"batch": 128, "num_heads": heads, "keys": 8192, "cache_dtype": "fp8_e4m3"}
        for heads in (128, 64, 16)
    ),
    *(
        {"batch": 128, "num_heads": heads, "keys": 8192, "cache_dtype": cache, "dtype": queries}
        for queries, cache in (
            ("fp8_e4m3", "fp8_e4m3"),
            ("bf16", "fp8_rope_aware"),
            ("fp8_rope_aware", "fp8_rope_aware"),
        )
        for heads in (128, 16)
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=["gemm", "decode", "host"])
    options = parser.parse_args()
    import torch

    results: list[dict[str, Any]] = []
    if options.only in (None, "gemm"):
        results += [*gemm(torch, 4096), *gemm(torch, 8192)]
    if options.only in (None, "decode"):
        results += decode(DECODES)
    if options.only in (None, "host"):
        results += [*host(torch), *sparse_host(torch)]
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
