"""Hopper decode tuned on its GPU: default, best and other libraries, side by side in one run.

    python benchmarks/tuning_hopper.py [--trials 12] [--store FILE] [--json FILE]
    python benchmarks/tuning_hopper.py --found [--like STORE] [--json FILE]

Needs a Hopper GPU, torch and ptxas. All shapes are tuned at once, by as many tuners on one store,
on the workers of `--scheduler ADDRESS` or on some that are started (a GPU, and those that build).
Searches begin with the default and the best that stores named by `--like` have of the call. Then
the default, the best other variants and every peer that is there are timed interleaved on the same
tensors with a flushed L2, as `mlagen bench` does; who is wrong is not timed. The default has a
second turn among the others: how far its two times are apart is what a difference is worth.

`--found` searches nothing: the best others are those of the stores named by `--like`, and where
they have none, the default with one knob changed, choices that a search leaves out as well (those
that change what the kernel is called with). Lines are written as things happen.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mlagen.codegen.target import schedule_of

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from tuning_host import Host, say  # noqa: E402

SCHEMA = "mlagen.benchmark.tuning_hopper/1"
SHAPES: tuple[tuple[dict[str, str], dict[str, int]], ...] = (
    ({"num_heads": "128"}, {"batch": 128, "keys": 8192}),
    ({"num_heads": "128"}, {"batch": 128, "keys": 4096}),
    ({"num_heads": "16"}, {"batch": 128, "keys": 8192}),
    ({"num_heads": "64"}, {"batch": 128, "keys": 8192}),
    ({"num_heads": "128"}, {"batch": 1, "keys": 131072}),
    ({"num_heads": "128", "cache_dtype": "fp8_e4m3"}, {"batch": 128, "keys": 8192}),
    ({"num_heads": "128", "q_len": "2"}, {"batch": 128, "keys": 8192}),
)

LOADING = threading.Lock()  # of a schedule: its operations are recorded where all threads see
AGAIN = "default again"


def liked(paths: list[Path], fields: dict[str, str], shape: dict[str, int]) -> list[Any]:
    """The best knobs of a call in some stores, whatever code they were judged with."""
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.tune.space import knobs_key
    from mlagen.tune.store import Store

    problem = MlaDecodeConfig.from_fields(fields)
    found = []
    for path in paths:
        store = Store(path)
        for study in store.studies():
            asked = study.question
            if (asked.name, asked.target, asked.shape) != ("mla_decode_sm90", "sm_90a", shape):
                continue
            if MlaDecodeConfig.from_fields(asked.problem) == problem:
                found += [t for t in store.trials(study) if t.cost is not None]
        store.close()
    found.sort(key=lambda trial: trial.cost)
    unique = {knobs_key(trial.knobs): trial.knobs for trial in found}
    return list(unique.values())


def built(fields: dict[str, str], variants: list[Any]) -> dict[str, Any]:
    """Artifacts by what differs from the first, each built in a process of its own. What cannot be
    built is said and left out, but for the first, which raises."""
    from mlagen.app.build import build_artifact
    from mlagen.errors import MlagenError
    from mlagen.tune.sandbox import Sandbox
    from mlagen.tune.space import differing

    def one(knobs: Any) -> Any:
        sandbox = Sandbox()
        try:
            return sandbox.call(build_artifact, "mla_decode_sm90", fields, knobs, limit=60)
        except MlagenError as error:
            if knobs is variants[0]:
                raise
            say(fields, differing(knobs, variants[0]), "not built:", error.message)
            return None
        finally:
            sandbox.close()

    with ThreadPoolExecutor(len(variants)) as pool:
        artifacts = list(pool.map(one, variants))
    names = [differing(knobs, variants[0]) for knobs in variants]
    return {n: made for n, made in zip(names, artifacts, strict=True) if made is not None}


def remembered(
    fields: dict[str, str], shape: dict[str, int], *, options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The default and the best others that stores know, without a search."""
    from mlagen.codegen.schedules import load
    from mlagen.families.mla_decode.problem import MlaDecodeConfig
    from mlagen.tune.space import knobs_key

    problem = MlaDecodeConfig.from_fields(fields)
    with LOADING:
        knobs = schedule_of(load("mla_decode_sm90", None), problem, {}).declared
    default = {knob.name: knob.default for knob in knobs.values()}
    # Older ones may lack knobs: with the defaults of those, two may be the same.
    filled = [default | knobs for knobs in liked(options.like, fields, shape)]
    known = {knobs_key(knobs): knobs for knobs in filled}.values()
    others = [k for k in known if k != default and k.keys() == default.keys()]
    others = others[: options.others] or [
        default | {knob.name: choice}
        for knob in knobs.values()
        for choice in knob.choices
        if choice != knob.default
    ]
    kernels = built(fields, [default, *others])
    say(fields, shape, "built", list(kernels))
    return {"fields": fields, "shape": shape, "judged": 0}, kernels


def tuned(
    fields: dict[str, str], shape: dict[str, int], *, options: Any, path: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Search one shape: what was found, and the default and the best as artifacts."""
    from mlagen.tune import TuneRequest, open_store, tune
    from mlagen.tune.space import differing
    from mlagen.tune.text import facts

    started = time.perf_counter()
    last = [started]

    def watch(progress: Any) -> None:
        if time.perf_counter() - last[0] > 10:
            last[0] = time.perf_counter()
            say(fields, shape, f"{progress.judged} judged, {progress.running} in work",
                f"gain {progress.gain}")  # fmt: skip

    request = TuneRequest(
        "mla_decode_sm90", fields, [f"{name}={size}" for name, size in shape.items()],
        target="sm_90a", sampler="descent", seconds=options.seconds, seed=options.seed,
        trials=options.trials, limit=60, scheduler=options.scheduler,
    )  # fmt: skip
    first = liked(options.like, fields, shape)
    result = tune(request, open_store(path), watch=watch, first=first)
    say(fields, shape, f"{result.progress.judged} judged", facts(
        result.study, result.trials, result.winner)[3:])  # fmt: skip
    winner, reference = result.winner, result.study.reference
    costed = sorted((t for t in result.trials if t.cost is not None), key=lambda t: t.cost)
    others = [trial.knobs for trial in costed if trial.knobs != reference]
    kernels = built(fields, [reference, *others[: options.others]])
    verdicts: dict[str, int] = {}
    for trial in result.trials:
        verdicts[trial.outcome.verdict] = verdicts.get(trial.outcome.verdict, 0) + 1
    seconds = result.progress.seconds
    row = {
        "fields": fields, "shape": shape, "judged": result.progress.judged,
        "known": len(result.trials), "verdicts": verdicts,
        "space": result.described.space.size, "search_seconds": seconds,
        "trials_per_minute": 60 * result.progress.judged / max(seconds, 1e-9),
        "seconds": time.perf_counter() - started,
        "winner": differing(winner.knobs, reference) if winner else "nothing right",
        "costs": {differing(trial.knobs, reference): trial.cost for trial in costed},
        "messages": sorted({t.outcome.message for t in result.trials if t.cost is None}),
        "stages": [trial.outcome.seconds for trial in result.trials],
        "workers": sorted({trial.outcome.worker for trial in result.trials}),
    }  # fmt: skip
    return row, kernels


def beside(
    found: dict[str, Any], kernels: dict[str, Any], peers: list[Any], repeats: int
) -> dict[str, Any]:
    """Default, others, peers and, among them, the default again, on one set of tensors."""
    from mlagen.app.build import callable_of
    from mlagen.bench.timing import interleaved
    from mlagen.families.mla_decode.benchmark import DecodeBenchmark

    benchmark = DecodeBenchmark()
    work = benchmark.work(found["fields"], found["shape"], 0)
    labs = {name: benchmark.lab(callable_of(kernel)) for name, kernel in kernels.items()}
    lab = labs["default"]
    case = lab.case(work)
    judge = lab.judge(case)
    calls, wrong = {}, {}
    for name, one in labs.items():
        ours = one.ours(case)
        output = ours()
        one.wait()
        verdict = judge.ours(output)
        if verdict.wrong:
            wrong[name] = verdict.wrong
        else:
            calls[name] = ours
    for peer in peers:
        try:
            call = peer.prepare(case)
            verdict = judge.peer(call())
        except Exception as error:  # whatever a library does with a workload that it does not know
            wrong[peer.name] = f"{type(error).__name__}: {str(error)[:120]}"
            continue
        if verdict.wrong:
            wrong[peer.name] = verdict.wrong
        else:
            calls[peer.name] = call
    if "default" in calls:
        # Not next to its first turn, the last one's neighbour: its code would be in the caches.
        turns = list(calls.items())
        turns.insert(len(turns) // 2 + 1, (AGAIN, calls["default"]))
        calls = dict(turns)
    times = interleaved(calls, lab.clock, repeats=repeats)
    return {
        "us": {name: taken.median * 1e6 for name, taken in times.items()},
        "sustained_us": {name: taken.sustained * 1e6 for name, taken in times.items()},
        "TFLOP/s": {name: work.flop / taken.median / 1e12 for name, taken in times.items()},
        "not_timed": wrong,
        "facts": lab.facts(),
    }


def loaded() -> tuple[list[Any], dict[str, str], dict[str, str]]:
    """Peers that are there, their versions, and why the others are not there."""
    from mlagen.families.mla_decode.benchmark import DecodeBenchmark
    from mlagen.family.peers import PeerAbsent

    peers, versions, absent = [], {}, {}
    for peer in DecodeBenchmark().chosen(["flash_mla", "flashinfer", "fa3"]):
        try:
            versions[peer.name] = peer.load()
            peers.append(peer)
        except PeerAbsent as error:
            absent[peer.name] = error.message
    say(f"peers: {versions}, absent: {absent}")
    return peers, versions, absent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", metavar="ADDRESS")
    parser.add_argument("--builders", type=int, default=12, help="without a scheduler")
    parser.add_argument("--seconds", type=float, help="of search")
    parser.add_argument("--trials", type=int, help="of each shape")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--no-peers", action="store_true", help="tune only; with --found, time ours only"
    )
    parser.add_argument("--store", type=Path)
    parser.add_argument("--others", type=int, default=1, help="variants beside the default")
    parser.add_argument("--found", action="store_true", help="search nothing")
    parser.add_argument("--like", type=Path, action="append", default=[], metavar="STORE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    path = options.store or folder / "tuning.sqlite"
    shapes = SHAPES[: options.shapes]
    host = Host(folder)
    started = time.perf_counter()
    try:
        if options.scheduler is None and not options.found:
            host.start(1, options.builders)
            options.scheduler = host.address
        with ThreadPoolExecutor(len(shapes)) as pool:
            way: Any = remembered if options.found else partial(tuned, path=path)
            searches = pool.map(lambda one: way(*one, options=options), shapes)
            peers, versions, absent = ([], {}, {}) if options.no_peers else loaded()
            rows, kernels = zip(*searches, strict=True)
            seconds = time.perf_counter() - started
    finally:
        host.close()  # its GPU worker must not share the GPU with what follows
    judged = sum(row["judged"] for row in rows)
    rate = 60 * judged / seconds
    report = {
        "schema": SCHEMA, "peers": versions, "absent": absent, "repeats": options.repeats,
        "judged": judged, "seconds": seconds, "trials_per_minute": rate, "rows": rows,
    }  # fmt: skip
    say(f"{len(rows)} calls; {judged} trials in {seconds:.1f} s, {rate:.1f} a minute")
    for number, row in enumerate(rows):
        if options.found or not options.no_peers:
            row |= beside(row, kernels[number], peers, options.repeats)
        names = ("fields", "shape", "verdicts", "winner", "costs", "us", "sustained_us",
                 "not_timed")  # fmt: skip
        say({name: row[name] for name in names if name in row})
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
