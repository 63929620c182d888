"""MLA decode for sm_100a: what 64 keys are to each pipe, by blocks of 64 rows and by CTA pairs.

    python benchmarks/mla_decode_bound_sm100.py [--heads 128] [--forms bf16 e4m3 ..] [--json]
    python benchmarks/mla_decode_bound_sm100.py --plans
    python benchmarks/mla_decode_bound_sm100.py --items

Each kernel runs one sequence of 1024 and one of 2048 keys in the emulator; the difference, divided
by 16, is what 64 more keys cost all blocks that share them. All clocks are a PREDICTION, of no
chip's time: those that a pipe of an SM would be busy if it did nothing else and were never late, by
the rates of `mla_sparse_vs_flashmla_sm100.py`, and two of memory besides. Bytes that TMA brings to
SMEM are those that the kernel announces.

`--plans`: microseconds of calls of equal sequences in bf16, by the plan's own table of costs
(`mlagen.families.mla_decode.costs`), a PREDICTION as well: of the plan for blocks, of that
for CTA pairs, and of that for pairs that take several items (`persistent=1`).

`--items`: warp instructions that an item executes besides those of its tiles, by role: of a block
or pair that has one item, and of the first one and of a further one of `persistent=1`. The emulator
counts instructions; how long their loads take it does not tell.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mla_sparse_vs_flashmla_sm100 import PEAK, RATES, TITLES, Rate, table, work

SCHEMA = "mlagen.benchmark.mla_decode_bound_sm100/1"
KERNEL = "mla_decode_sm100"
SMS, KEYS, FEWER, MORE = 148, 64, 1024, 2048
UNSPLIT = 1 << 20  # keys of a split that no sequence is longer than
CLOCK = PEAK * 1e12 / (SMS * RATES["tensor"].amount)  # a second, at which tensor cores have PEAK
HBM_BYTES = 8e12  # a second
HBM = Rate(
    HBM_BYTES / SMS / CLOCK, "bytes of HBM",
    "NVIDIA's data sheet: 8 TB/s by all SMs at the clock of 2,250 TFLOP/s; less is achieved",
)  # fmt: skip
# (1) of docs/mla_sparse_speed.md: FlashMLA's published 1,450 TFLOP/s of sparse prefill, 128 heads.
L2_SEEN = 1450e12 / (2 * 128 * KEYS * 1088) * 139264 / SMS / CLOCK
L2 = Rate(
    L2_SEEN, "bytes of L2 at least",
    "what FlashMLA's sparse prefill of 128 heads draws at its published 1,450 TFLOP/s; L2's own "
    "rate is not published",
)  # fmt: skip
E4M3 = {"cache_dtype": "fp8_e4m3"}
FORMS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "e4m3": E4M3,
    "rope_aware": {"cache_dtype": "fp8_rope_aware"},
    "compute_fp8": {**E4M3, "dtype": "fp8_e4m3", "compute": "fp8"},
}
CALLS = tuple((batch, keys) for batch in (32, 64, 128) for keys in (2048, 4096, 8192, 32768))
ROWS = (
    "products", "tensor", "ex2", "fp32", "bytes fetched", "SMEM of products", "SMEM of threads",
    "mbarrier arrivals", "mbarrier waits", "issue",
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """What 64 keys cost all blocks that share them, and the clocks of each pipe of one SM."""

    form: str
    heads: int
    ctas: int
    work: dict[str, float]
    clocks: dict[str, float]
    bound: str


def announced(entry: Any, executions: Any, ctas: int) -> int:
    """Bytes that mbarriers expect. Of a CTA pair both blocks meet the instruction, whose predicate
    lets the leader announce those of both."""
    found = 0
    for i in entry.instructions:
        if i.name == "mbarrier" and "expect_tx" in i.parts:
            size = next(x for x in reversed(i.operands) if isinstance(x, int))
            found += executions.get(i.index, 0) * size // ctas
    return found


def run(form: str, heads: int, ctas: int, keys: int) -> Counter[str]:
    """All blocks of one sequence."""
    from mlagen.app.build import build_artifact
    from mlagen.families.mla_decode.kernel import decode_kernel
    from mlagen.families.mla_decode.made_up import mla_decode_inputs
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.launch import EmulatedLauncher
    from mlagen.ptx import read_ptx

    fields = {"num_heads": heads, **FORMS[form]}
    artifact = build_artifact(KERNEL, fields, {"ctas": ctas})
    made = mla_decode_inputs(MlaDecodeConfig(**fields), lengths=(keys,), data="randn", seed=0)
    kernel = decode_kernel(artifact, EmulatedLauncher(sanitize=False))
    given = {**made.tensors, **made.scales}
    (report,) = kernel.run(**given).reports
    assert report.emulation is not None
    entry, executions = read_ptx(artifact.text).entries[0], report.emulation.executions
    found = work(entry, executions, box=128)
    fetched = announced(entry, executions, ctas)
    found["bytes fetched"] += fetched
    found["SMEM"] += fetched
    return found


def told(form: str, heads: int, ctas: int) -> Told:
    """A kernel by two runs."""
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.problem.formats import ELEMENT_TYPES

    first, second = (run(form, heads, ctas, keys) for keys in (FEWER, MORE))
    units = (MORE - FEWER) / KEYS
    per = {name: (second[name] - first[name]) / units for name in sorted(first | second)}
    k = MlaDecodeConfig(heads, **FORMS[form])
    row = k.cache_columns * ELEMENT_TYPES[k.cache_element].itemsize
    blocks = -(-heads // 64)
    clocks = {pipe: per.get(pipe, 0.0) / rate.amount / blocks for pipe, rate in RATES.items()}
    clocks["HBM"] = row * KEYS / HBM.amount / blocks
    clocks["L2"] = (per["bytes fetched"] or loaded(k, ctas, blocks, row)) / L2.amount / blocks
    slowest = max((pipe for pipe in clocks if pipe != "L2"), key=lambda pipe: clocks[pipe])
    return Told(form, heads, ctas, per, clocks, slowest)


def loaded(k: Any, ctas: int, blocks: int, row: int) -> float:
    """Bytes that feeders load of 64 keys: each block all rows; of a pair half of them as K, and the
    first 512 columns of all, once more, as V of both."""
    return KEYS * row * blocks if ctas == 1 else KEYS * (row + k.d_v)


def unit(heads: int, ctas: int) -> Any:
    """A block of a B200, or a CTA pair."""
    from mlagen.families.mla_decode.costs import on_b200
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.families.mla_decode.unit import B200_SMS, Unit

    return Unit(64 * ctas, B200_SMS // ctas, on_b200(MlaDecodeConfig(heads), ctas), ctas)


def planned(heads: int, batch: int, keys: int, unit: Any) -> float:
    """Microseconds of the plan."""
    import numpy as np

    from mlagen.families.mla_decode.even_splits import longest_first
    from mlagen.families.mla_decode.plan import plan_work
    from mlagen.families.mla_decode.problem import MlaDecodeConfig

    config = MlaDecodeConfig(heads)
    costs = unit.costs
    work = plan_work(config, [keys] * batch, unit=unit)
    tiles = np.minimum(work.items[:, 6], keys // KEYS) - work.items[:, 5]
    share = min(len(tiles), unit.blocks) / unit.blocks
    pieces = np.array([len(own) for own in work.splits])
    parts = -(-heads // unit.rows) * int((pieces * (1 + (pieces == 2)))[pieces > 1].sum())
    ended = longest_first(costs.item(tiles, share), unit.blocks)
    return float(ended + costs.once(int(tiles.max()), parts))


def several_items(heads: int, batch: int, keys: int) -> float:
    """Microseconds of the plan for pairs that take several items: a start each, further items, and
    the merge."""
    import numpy as np

    from mlagen.families.mla_decode.plan import plan_work
    from mlagen.families.mla_decode.problem import MlaDecodeConfig

    config, pair = MlaDecodeConfig(heads), unit(heads, 2)
    costs = pair.costs
    work = plan_work(config, [keys] * batch, persistent=True, takes_in=False, unit=pair)
    assert work.shares is not None
    tiles = np.minimum(work.items[:, 6], keys // KEYS) - work.items[:, 5]
    share = min(len(tiles), pair.blocks) / pair.blocks
    each = costs.item(tiles, share) - costs.start + costs.further
    ends = [
        costs.start - costs.further + float(each[a:b].sum())
        for a, b in pairwise(work.shares.tolist()) if b > a
    ]  # fmt: skip
    pieces = np.array([len(own) for own in work.splits])
    parts = int((pieces * (1 + (pieces == 2)))[pieces > 1].sum())
    return max(ends) + costs.once(int(tiles.max()), parts)


def by_role(heads: int, persistent: int, lengths: tuple[int, ...]) -> Counter[str]:
    """Executed warp instructions of one block, or pair, with these sequences; "" for what comes
    before roles begin."""
    from mlagen.app.build import build_artifact
    from mlagen.families.mla_decode.kernel import decode_kernel
    from mlagen.families.mla_decode.made_up import mla_decode_inputs
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.families.mla_decode.unit import unit_of
    from mlagen.launch import EmulatedLauncher
    from mlagen.ptx import read_ptx

    artifact = build_artifact(KERNEL, {"num_heads": heads}, {"persistent": persistent})
    made = mla_decode_inputs(MlaDecodeConfig(heads), lengths=lengths, data="randn", seed=0)
    kernel = decode_kernel(artifact, EmulatedLauncher(sanitize=False), build=build_artifact)
    blocks = unit_of(artifact.manifest).ctas
    plan = kernel.plan(lengths, device="cpu", split_keys=UNSPLIT, blocks=blocks)
    report = kernel.run(**made.tensors, **made.scales, plan=plan).reports[0]
    assert report.emulation is not None
    roles = {line.asm_line: line.role for line in artifact.manifest.source}
    found: Counter[str] = Counter()
    for i in read_ptx(artifact.text).entries[0].instructions:
        found[roles.get(i.line, "")] += report.emulation.executions.get(i.index, 0)
    return found


def items() -> str:
    """The table of `--items`."""
    lines, titles = [], {"": "before roles"}
    for heads in (64, 128):
        for persistent in (0, 1):
            one, longer, two = (
                by_role(heads, persistent, lengths)
                for lengths in ((FEWER,), (MORE,), (FEWER, FEWER))
            )
            tiles = {role: (longer[role] - one[role]) * FEWER // (MORE - FEWER) for role in longer}
            counted = [("one item", one)]
            if persistent:
                further = Counter({role: two[role] - one[role] for role in two})
                counted = [("first item", one), ("further item", further)]
            for what, had in counted:
                own = {role: had[role] - tiles[role] for role in sorted(one)}
                lines.append((
                    f"{heads} heads, persistent={persistent}, {what}", f"{sum(own.values()):,}",
                    ", ".join(f"{titles.get(role, role)} {n:,}" for role, n in own.items()),
                ))  # fmt: skip
    return f"Executed warp instructions besides tiles\n\n{table(('', 'all', 'by role'), lines)}"


def plans(heads: int) -> str:
    """The table of `--plans`."""

    lines = []
    for batch, keys in CALLS:
        blocks, pairs = (planned(heads, batch, keys, unit(heads, ctas)) for ctas in (1, 2))
        several = several_items(heads, batch, keys)
        lines.append((
            str(batch), f"{keys:,}", f"{blocks:.1f}", f"{pairs:.1f}", f"{blocks / pairs:.2f}",
            f"{several:.1f}", f"{pairs / several:.2f}",
        ))  # fmt: skip
    head = ("batch", "keys", "blocks", "pairs", "ratio", "several items a pair", "ratio")
    return f"PREDICTION: microseconds, {heads} heads, bf16\n\n{table(head, lines)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, default=128, help="65 to 128 rows share keys")
    parser.add_argument("--forms", nargs="+", default=[*FORMS], choices=FORMS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plans", action="store_true", help="predicted times of calls instead")
    parser.add_argument("--items", action="store_true", help="what items execute instead")
    options = parser.parse_args()
    if not 64 < options.heads <= 128:
        parser.error(f"--heads {options.heads}: a CTA pair takes 65 to 128")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if options.plans or options.items:
        print(plans(options.heads) if options.plans else items())
        return 0
    found = [told(form, options.heads, ctas) for form in options.forms for ctas in (1, 2)]
    rates = {**RATES, "HBM": HBM, "L2": L2}
    if options.json:
        sources = {name: asdict(rate) for name, rate in rates.items()}
        print(json.dumps({"schema": SCHEMA, "rates": sources, "kernels": [*map(asdict, found)]}))
        return 0
    head = ("", *(f"{one.form}, {'pair' if one.ctas == 2 else 'blocks'}" for one in found))
    executed = [
        (TITLES.get(name, name), *(f"{one.work.get(name, 0):,.0f}" for one in found))
        for name in ROWS
    ]
    clocks = [
        (f"{pipe}: {rate.amount:,.0f} {rate.what}", *(f"{one.clocks[pipe]:,.0f}" for one in found))
        for pipe, rate in rates.items()
    ]
    clocks.append(("slowest, L2 apart", *(one.bound for one in found)))
    print(f"Executed for {KEYS} keys of {options.heads} heads, all blocks\n")
    print(table(head, executed))
    print(f"\nPREDICTION: clocks of one SM for {KEYS} keys, each pipe alone\n")
    print(table(head, clocks))
    print("", *(f"{pipe}: {rate.source}" for pipe, rate in rates.items()), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
