"""Trials a minute that `mlagen tune` judges on 1, 2, 4 GPUs of one host.

    python benchmarks/tuning_rates.py [--gpus 4,2,1] [--window 45] [--builders 12] [--json FILE]

Hopper decode, several problems at once, each with a tuner of its own, on one Dask scheduler: a
worker a GPU and `--builders` that build for each. Every worker is started and warmed up once;
between windows those too many are ended, so the most GPUs come first. A window begins with an empty
store and its rate is that of all trials which ended in it, builds and checks included; what runs at
its end is given up. Lines are written as things happen. What does not end within its budget is told
with the stacks of all threads and the ends of the workers' logs.

`--rehearse` needs no GPU: the same processes, but a build and a measurement only take time.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import tuning_rehearsal  # noqa: E402
from tuning_host import TAG, Host, say  # noqa: E402

SCHEMA = "mlagen.benchmark.tuning_rates/1"
KERNEL = "mla_decode_sm90"
ON_GPU = ("context", "verify", "cost")  # stages of a trial
SHAPES: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"num_heads": "128"}, ("batch=128", "keys=8192")),
    ({"num_heads": "128"}, ("batch=128", "keys=4096")),
    ({"num_heads": "16"}, ("batch=128", "keys=8192")),
    ({"num_heads": "64"}, ("batch=128", "keys=8192")),
    ({"num_heads": "128"}, ("batch=1", "keys=131072")),
    ({"num_heads": "128", "q_len": "2"}, ("batch=128", "keys=8192")),
)
LIMIT = 40.0  # seconds of a trial's stage
WARM = 90.0  # seconds until all workers are there and warm
GRACE = 20.0  # seconds for a window to end


class WindowOver(Exception):
    """A tuner's time is up."""


def warm_builder() -> str:
    """What a build loads, so that no window pays for it."""
    import mlagen.codegen  # noqa: F401
    from mlagen.tune import judge  # noqa: F401

    return "builder"


def warm_gpu(rehearsed: bool) -> dict[str, Any]:
    """The device of a worker, its driver and libraries loaded."""
    from mlagen.tune import measured

    return tuning_rehearsal.device() if rehearsed else measured.device(TAG)


def described(options: Any) -> list[Any]:
    """All questions, each kernel built once, while the workers start."""
    from mlagen.tune.judge import describe
    from mlagen.tune.sandbox import Sandbox

    def one(asked: tuple[dict[str, str], tuple[str, ...]]) -> Any:
        sandbox = Sandbox()
        try:
            found = sandbox.call(describe, KERNEL, TAG, asked[0], asked[1], {}, "measured",
                                 limit=WARM)  # fmt: skip
        finally:
            sandbox.close()
        say("described", *asked, f"{found.space.size} variants")
        return found

    shapes = SHAPES[: options.shapes]
    with ThreadPoolExecutor(2 if options.rehearse else len(shapes)) as pool:
        return list(pool.map(one, shapes))


def on(device: dict[str, Any], question: Any) -> Any:
    """What is asked, with the GPU that answers."""
    import msgspec

    asked = msgspec.structs.replace(question.question, device=device)
    return msgspec.structs.replace(question, question=asked)


def warmed(client: Any, host: Host, rehearsed: bool) -> dict[str, Any]:
    """Wait until every worker has loaded what it needs; the device that they have."""
    from mlagen.tune.measured import warm_up
    from mlagen.tune.on_worker import asked

    until = time.monotonic() + WARM
    wanted = len(host.processes) - 1
    while (there := len(client.scheduler_info(n_workers=-1)["workers"])) < wanted:
        if time.monotonic() > until:
            raise TimeoutError(f"{there} of {wanted} workers came within {WARM:g} s")
        time.sleep(0.2)
    say(f"{there} workers are there")
    found, futures = {}, {}
    for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
        gpu = bool(worker["resources"].get(TAG))
        call = (warm_gpu, (rehearsed,)) if gpu else (warm_builder, ())
        warm = warm_up if gpu and not rehearsed else None
        futures[worker["name"]] = client.submit(
            asked, *call, WARM, warm, pure=False, workers=[address]
        )
    for name, future in sorted(futures.items(), key=lambda one: "gpu" not in one[0]):
        found[name] = future.result(timeout=max(1.0, until - time.monotonic()))
        if name.startswith("gpu"):
            say(name, found[name])
    say("all workers are warm")
    return next(told for name, told in found.items() if name.startswith("gpu"))


def connected(questions: list[Any], host: Host, rehearsed: bool) -> list[Any]:
    """Each tuner's way to the workers."""
    from mlagen.tune.cluster import connect
    from mlagen.tune.judge import finish, prepare
    from mlagen.tune.measured import warm_up

    rehearsal = (tuning_rehearsal.slept_build, tuning_rehearsal.slept_measurement)
    stages = rehearsal if rehearsed else (prepare, finish)
    warm = None if rehearsed else warm_up

    def one(question: Any) -> Any:
        return connect(host.address, stages, LIMIT, tag=TAG, warm=warm,
                       code=question.versions["code"])  # fmt: skip

    with ThreadPoolExecutor(len(questions)) as pool:
        return list(pool.map(one, questions))


def window(gpus: int, questions: list[Any], host: Host, options: Any) -> dict[str, Any]:
    """All searches at once for so long; what they judged."""
    from mlagen.tune.session import TuneRequest, search_described
    from mlagen.tune.store import Store

    path = host.folder / f"{gpus}.sqlite"
    Store(path).close()
    workers = connected(questions, host, options.rehearse)
    say(f"{gpus} GPUs: {len(workers)} tuners, {workers[0].slots} slots each")
    begun, until = time.time(), time.monotonic() + options.window
    latest: dict[int, tuple[int, int]] = {}

    def tuner(number: int) -> str:
        def watch(progress: Any) -> None:
            latest[number] = (progress.judged, progress.running)
            if time.monotonic() > until:
                raise WindowOver

        request = TuneRequest(KERNEL, {}, sampler="descent", seed=options.seed)
        store = Store(path)
        try:
            search_described(questions[number], request, store, workers[number], watch=watch)
            return "searched through"
        except WindowOver:
            return "time is up"
        finally:
            store.close()

    with ThreadPoolExecutor(len(questions)) as pool:
        futures = [pool.submit(tuner, number) for number in range(len(questions))]
        while not all(future.done() for future in futures):
            time.sleep(5)
            judged, running = (sum(p[i] for p in list(latest.values())) for i in (0, 1))
            say(f"{gpus} GPUs: {judged} judged, {running} in work")
            if time.monotonic() > until + GRACE:
                raise TimeoutError(f"the window of {gpus} GPUs did not end")
        endings = Counter(future.result() for future in futures)
    return told(gpus, path, begun, options.window, endings)


def told(
    gpus: int, path: Path, begun: float, seconds: float, endings: Counter[str]
) -> dict[str, Any]:
    """What the store says of a window."""
    from mlagen.tune.store import Store

    store = Store(path)
    trials = [trial for study in store.studies() for trial in store.trials(study)]
    store.close()
    trials = [trial for trial in trials if trial.finished <= begun + seconds]
    ends = sorted(trial.finished - begun for trial in trials)
    verdicts = Counter(trial.outcome.verdict for trial in trials)
    stages: dict[str, list[float]] = {}
    for trial in trials:
        for name, took in trial.outcome.seconds.items():
            stages.setdefault(name, []).append(took)
    measuring = {trial.outcome.worker for trial in trials if trial.outcome.worker}
    row = {
        "gpus": gpus, "seconds": seconds, "judged": len(ends), "verdicts": dict(verdicts),
        "a_minute": 60 * len(ends) / seconds,
        "first_after": ends[0] if ends else None,
        "a_minute_after_the_first": 60 * (len(ends) - 1) / (seconds - ends[0]) if ends else None,
        # The part of the time that GPUs' workers were at a trial.
        "occupied": sum(sum(stages.get(name, [])) for name in ON_GPU) / (gpus * seconds),
        "stage_seconds": {name: statistics.median(took) for name, took in stages.items()},
        "measured_by": len(measuring), "tuners": dict(endings),
        "messages": sorted({t.outcome.message for t in trials if t.outcome.message})[:5],
        "at": [round(end, 2) for end in ends],
    }  # fmt: skip
    say({name: value for name, value in row.items() if name != "at"})
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="4,2,1", help="of each window, falling")
    parser.add_argument("--window", type=float, default=45.0, help="seconds")
    parser.add_argument("--builders", type=int, default=12, help="for each GPU")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    parser.add_argument("--budget", type=float, default=360.0, help="seconds in all, then stacks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--stores", type=Path, help="a folder that gets each window's store")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    counts = [int(text) for text in options.gpus.split(",")]
    if counts != sorted(counts, reverse=True):
        parser.error("--gpus must fall: workers are only ended")
    faulthandler.dump_traceback_later(options.budget, exit=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        host = Host(options.stores or Path(folder))
        host.folder.mkdir(parents=True, exist_ok=True)
        over = threading.Timer(options.budget, lambda: os.kill(os.getpid(), signal.SIGTERM))
        over.daemon = True
        over.start()
        rows: list[dict[str, Any]] = []
        try:
            host.start(counts[0], options.builders)
            say(f"started {len(host.processes) - 1} workers")
            questions = described(options)
            with Client(host.address, timeout=30, set_as_default=False) as client:
                device = warmed(client, host, options.rehearse)
                questions = [on(device, question) for question in questions]
                for gpus in counts:
                    host.keep(gpus)
                    wanted = len(host.processes) - 1
                    while len(client.scheduler_info(n_workers=-1)["workers"]) > wanted:
                        time.sleep(0.1)
                    say(f"{gpus} GPUs, {wanted - gpus} workers that build")
                    rows.append(window(gpus, questions, host, options))
                    if options.json:
                        machine = {"cpu": platform.machine(), "cores": os.cpu_count(), **device}
                        report = {"schema": SCHEMA, "machine": machine, "rows": rows}
                        options.json.write_text(json.dumps(report, indent=1))
        except BaseException as error:
            say(f"{type(error).__name__}: {error}")
            faulthandler.dump_traceback(all_threads=True)
            for line in host.told():
                print(line, flush=True)
            host.close()
            os._exit(1)  # threads may wait for what does not come
        host.close()


if __name__ == "__main__":
    import tuning_rates  # workers find its functions by that name, not by __main__

    tuning_rates.main()
