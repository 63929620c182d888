"""MLA decode over small batches on a Hopper GPU, beside the peers that are installed.

    python benchmarks/decode_grid.py [--heads 128] [--batches 1,2,..] [--keys 1024,..] [--sweep]
        [--set cache_dtype=fp8_e4m3] [--knob persistent=1]

Every contender's output is held against attention in fp32 on the GPU (first and last sequence, all
heads) and is not timed where it is wrong. Times are medians of single calls with the L2 cache
flushed before each, contenders taking turns: each runs after another's code. `decode` is ours
without the merge. `--sweep` times ours for other split lengths as well, and for parts that the
blocks of a CTA cluster put together: what the costs in
`mlagen/families/mla_decode/costs.py` come from. One JSON object a line, then geometric means.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOGETHER = (2, 4, 8, 16)
BATCHES, KEYS = (1, 2, 4, 8, 16, 32), (1024, 4096, 16384, 65536, 131072)
PEERS = ("flash_mla", "flashinfer")
LIMIT = 2.0**-7  # relative error as a norm
SWEPT = 8  # split lengths up to a count of items that fills the GPU about twice


def right(case: Any, out: Any) -> bool:
    """Whether the first and the last sequence are attention of theirs, and nothing is NaN."""
    work, found = case.work, not bool(out.isnan().any())
    for index in {0, work.batch - 1}:
        rows = case.cache[case.table[index].long()].view(-1, 576)[: work.lengths[index]].float()
        scores = case.q[index, 0].float() @ rows.T * case.scale
        expected = scores.softmax(-1) @ rows[:, :512]
        error = (out[index, 0].float() - expected).norm() / expected.norm()
        found = found and float(error) <= LIMIT
    return found


def steps(lab: Any, case: Any, *, sweep: bool) -> Iterator[tuple[str, Any, Any]]:
    """Name, plan and prepared call of ours, poisoned: as planned, and at other split lengths."""
    work, kernel = case.work, lab.kernel
    ways: list[dict[str, int]] = [{}]
    if sweep and kernel.artifact.manifest.cluster:
        ways += [{"together": n} for n in TOGETHER]
    if sweep:
        row_blocks = work.batch * -(-work.config.num_heads // 64)
        whole = -(-work.keys // 64)
        least = max(1, whole * row_blocks // 300)
        ratio = (whole / least) ** (1 / SWEPT)
        tiles = sorted({round(least * ratio**n) for n in range(SWEPT + 1)} | {1, 2, 4} - {0})
        ways += [{"split_keys": 64 * n} for n in tiles if least <= n <= whole]
    for way in ways:
        plan = kernel.plan(work.lengths, **way)
        step = kernel.prepare(
            case.q, case.cache, case.table, case.lengths, **case.scales, plan=plan
        )
        for tensor in (step.output, step.lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))
        yield " ".join(f"{name}={n}" for name, n in way.items()) or "planned", plan, step


def point(lab: Any, work: Any, peers: list[Any], repeats: int, *, sweep: bool) -> list[Any]:
    """One workload's rows."""
    from mlagen.bench.timing import interleaved

    case = lab.case(work)
    others = []
    for peer in peers:
        call = peer.prepare(case)
        if right(case, call()):
            others.append((peer.name, call))
    rows = []
    for way, plan, step in steps(lab, case, sweep=sweep):
        step()
        if not right(case, step.output):
            print(f"{work}, {way}: wrong, not timed", file=sys.stderr)
            continue
        calls = {"mlagen": step, **dict(others[:1])}
        if len(step.launches) > 1:
            calls["decode"] = step.launches[0]
        calls |= dict(others[1:])
        times = interleaved(calls, lab.clock, repeats=repeats)
        us = {name: round(found.median * 1e6, 2) for name, found in times.items()}
        best = min((us[name] for name, _ in others), default=math.nan)
        rows.append(
            {
                "heads": work.config.num_heads, "batch": work.batch, "keys": work.keys, "way": way,
                "splits": len(plan.splits[0]), "items": len(plan.work.items),
                "together": plan.together, "us": us,
                "ratio": round(best / us["mlagen"], 3),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(","))

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=numbers, default=(128,))
    parser.add_argument("--batches", type=numbers, default=BATCHES)
    parser.add_argument("--keys", type=numbers, default=KEYS)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()

    import mlagen
    from mlagen.app.texts import assignments
    from mlagen.families.mla_decode.benchmark import DecodeBenchmark
    from mlagen.families.mla_decode.benchmark.lab import DecodeLab
    from mlagen.families.mla_decode.benchmark.work import DecodeWork
    from mlagen.family.peers import PeerAbsent

    peers = []
    for peer in DecodeBenchmark().chosen(PEERS):
        try:
            print(f"{peer.name} {peer.load()}", file=sys.stderr)
            peers.append(peer)
        except PeerAbsent as error:
            print(f"{peer.name} left out: {error.message}", file=sys.stderr)
    knobs = assignments("--knob", options.knob) or None
    fields = assignments("--set", options.set)
    for heads in options.heads:
        kernel: Any = mlagen.build("mla_decode_sm90", num_heads=heads, knobs=knobs, **fields)
        lab = DecodeLab(kernel)
        ratios = []
        for keys in options.keys:
            for batch in options.batches:
                work = DecodeWork(kernel.config, batch, keys)
                for row in point(lab, work, peers, options.repeats, sweep=options.sweep):
                    print(json.dumps(row), flush=True)
                    if row["way"] == "planned":
                        ratios.append(row["ratio"])
        if peers:
            mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
            print(json.dumps({"heads": heads, "geometric mean of ratios": round(mean, 3)}))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
