"""Trials over loopback: a real scheduler, workers as processes of their own, and their deaths."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import toy_judges
from toy_question import HERE, SPACE
from toy_tuner import toy

from mlagen.errors import MissingError, MlagenError
from mlagen.tune import cluster
from mlagen.tune.cluster import ClusterWorkers, connect, local_cluster
from mlagen.tune.session import TuneRequest, usual_workers
from mlagen.tune.store import Store
from mlagen.tune.values import TrialJob, TrialOutcome
from mlagen.tune.versions import code_of

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"}
# Without it Dask gives an idle worker the trials of a busy one, as it should; on a busy machine the
# worker that measures is then given something to build, and a test cannot tell that from a fault.
NO_STEALING = {"DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}


def dask(role: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """What `dask scheduler` and `dask worker` run."""
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{role}", "--no-dashboard", *arguments],
        env=ENVIRONMENT | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Machines:
    """A scheduler, and what tests start beside it."""

    address: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        made = dask("worker", self.address, "--nthreads", "1", "--no-nanny", *arguments)
        self.workers.append(made)
        return made

    def connect(
        self, judge: Callable[[TrialJob], TrialOutcome], limit: float = 20.0, **more: str
    ) -> ClusterWorkers:
        return connect(self.address, (judge,), limit, **{"code": code_of("toy"), **more})

    @contextmanager
    def with_room(self, count: int) -> Iterator[None]:
        """Until so many workers are there."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=30)
        yield


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """A worker with gfx950=1, and one that only builds."""
    port = free_port()
    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", str(port), **NO_STEALING)
    made = Machines(f"tcp://127.0.0.1:{port}")
    made.worker("--resources", "gfx950=1")
    made.worker()
    try:
        with made.with_room(2):
            yield made
    finally:
        for process in (*made.workers, scheduler):
            process.kill()
            process.wait()


def test_all_workers_judge(machines: Machines, store: Store) -> None:
    result = toy(store, "", workers=machines.connect(toy_judges.slow_honest))
    assert result.winner is not None
    assert result.winner.knobs == {"a": 3, "b": "y", "c": 2}
    assert len(result.trials) == SPACE.size
    assert len({trial.outcome.worker for trial in result.trials}) == 2


def test_a_bad_variant_costs_its_process_and_not_the_worker(
    machines: Machines, store: Store
) -> None:
    result = toy(store, "", workers=machines.connect(toy_judges.planted, limit=1.0))
    verdicts: dict[int, set[str]] = {}
    for trial in result.trials:
        verdicts.setdefault(trial.knobs["a"], set()).add(trial.outcome.verdict)  # type: ignore[arg-type]
    assert verdicts == {0: {"passed"}, 1: {"timeout"}, 2: {"crashed"}, 3: {"wrong"}, 4: {"error"}}
    assert result.winner is not None
    assert result.winner.knobs["a"] == 0
    assert [worker.poll() for worker in machines.workers] == [None, None]


def test_a_lost_workers_trials_are_done_by_another(machines: Machines, store: Store) -> None:
    victim = machines.worker("--name", "victim")
    with machines.with_room(3):
        workers = machines.connect(toy_judges.slow_honest)
    (address,) = (a for a, w in cluster._workers(workers._client).items() if w["id"] == "victim")

    class Killing:
        """Kills the victim while it has a trial, after its first."""

        submit, close, slots = workers.submit, workers.close, 6

        def finished(self, timeout: float) -> Iterator[tuple[int, TrialOutcome]]:
            for number, outcome in workers.finished(timeout):
                if outcome.worker == address and victim.poll() is None:
                    victim.send_signal(signal.SIGKILL)
                    victim.wait()
                yield number, outcome

    result = toy(store, "", workers=Killing())  # type: ignore[arg-type]
    assert victim.poll() == -signal.SIGKILL, "the victim did nothing"
    machines.workers.remove(victim)
    assert len(result.trials) == SPACE.size, result.progress.verdicts
    assert {trial.outcome.verdict for trial in result.trials} == {"passed"}
    assert len({trial.outcome.worker for trial in result.trials}) == 3


def test_measuring_takes_the_tag_and_building_goes_elsewhere(
    machines: Machines, store: Store
) -> None:
    workers = connect(machines.address, (toy_judges.built, toy_judges.measured_where), 20.0,
                      tag="gfx950", code=code_of("toy"))  # fmt: skip
    result = toy(store, "", workers=workers, trials=12)
    measured_by = {trial.outcome.worker for trial in result.trials}
    assert len(measured_by) == 1, "a worker without the resource measured"
    (processes,) = {trial.outcome.message for trial in result.trials}
    assert len(set(processes.split())) == 2, "who measures built as well"


def test_artifacts_go_once_and_to_the_last_stage_only(
    machines: Machines, described: Callable
) -> None:
    stages = (toy_judges.without_artifacts, toy_judges.with_artifacts)
    workers = connect(machines.address, stages, 20.0, code=code_of("toy"))
    question = described().question
    jobs = [
        TrialJob(question, SPACE.variant(number), SPACE.default, (), reference_artifact=reference,
                 beside=("merge",))
        for number, reference in enumerate(("one", "one", "other"))
    ]  # fmt: skip
    try:
        held = []
        for number, job in enumerate(jobs):
            workers.submit(number, job)
            held.append(workers._held)
        assert held[0] is held[1]
        found: dict[int, str] = {}
        until = time.monotonic() + 30
        while len(found) < len(jobs) and time.monotonic() < until:
            found |= {n: outcome.message for n, outcome in workers.finished(1.0)}
    finally:
        workers.close()
    assert found == {
        number: f"(None,) ('{job.reference_artifact}', 'merge')" for number, job in enumerate(jobs)
    }


def test_no_worker_with_the_tag_is_told(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_ARRIVE", 0.5)
    with pytest.raises(MissingError, match="no worker with sm_90a") as error:
        machines.connect(toy_judges.honest, tag="sm_90a")
    assert error.value.hint is not None
    assert '--resources "sm_90a=1"' in error.value.hint


def test_a_worker_with_other_code_judges_nothing(machines: Machines, store: Store) -> None:
    result = toy(store, "", workers=machines.connect(toy_judges.honest, code="older"), trials=4)
    assert result.winner is None
    assert result.trials == ()
    assert result.progress.verdicts == {"lost": 4}
    assert store.pending(result.study, "now") == 0  # nothing of it stays: a later run judges them


def test_a_scheduler_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 0.5)
    with pytest.raises(MissingError, match=r"no Dask scheduler of this version .* answers"):
        connect(f"tcp://127.0.0.1:{free_port()}", (toy_judges.honest,), 20.0)
    with pytest.raises(MissingError, match="no Dask scheduler"):
        connect("gibberish://nowhere", (toy_judges.honest,), 20.0)


def test_something_else_that_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(MissingError, match="no Dask scheduler of this version"):
            connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", (toy_judges.honest,), 20.0)


def test_another_version_of_dask_is_told(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    monkeypatch.setattr(distributed, "__version__", "1999.1.0")
    with pytest.raises(MlagenError, match=r"scheduler runs distributed .*, here is 1999\.1\.0"):
        machines.connect(toy_judges.honest)


def test_a_scheduler_that_goes_away_ends_the_run_and_keeps_what_was_judged(
    store: Store, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> int:
        with closing(Store(own_store)) as other:
            return sum(len(other.trials(study)) for study in other.studies())

    def kill_when_some_are_judged() -> None:
        until = time.monotonic() + 60
        while not kept() and time.monotonic() < until:
            time.sleep(0.1)
        scheduler.kill()
        killed.append(time.monotonic())

    killed: list[float] = []
    monkeypatch.setattr(cluster, "_CONNECT", 3.0)
    port = free_port()
    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", str(port))
    machines = Machines(f"tcp://127.0.0.1:{port}")
    worker = machines.worker()
    try:
        with machines.with_room(1):
            workers = machines.connect(toy_judges.slow_honest)
        killer = threading.Thread(target=kill_when_some_are_judged)
        killer.start()
        with pytest.raises(MissingError, match="the Dask scheduler has gone"):
            toy(store, "", workers=workers)
        killer.join()
        assert time.monotonic() - killed[0] < 30
        (study,) = store.studies()
        assert 0 < len(store.trials(study)) < SPACE.size
        assert store.pending(study, "now") == 0
        assert len(toy(store, "honest").trials) == SPACE.size
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def test_local_workers_need_no_scheduler_of_ones_own(store: Store) -> None:
    workers = local_cluster(2, (toy_judges.honest,), 20.0, code=code_of("toy"))
    assert workers.slots == 2
    result = toy(store, "", workers=workers)
    assert result.winner is not None
    assert result.winner.cost == 10
    assert len({trial.outcome.worker for trial in result.trials}) == 2


def test_trials_run_in_one_place(described: Callable) -> None:
    request = TuneRequest("toy", {}, jobs=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(MlagenError, match="trials run in one place"):
        usual_workers(request, described())
