"""Trials on many machines, through a Dask scheduler.

What runs on a worker is in `mlagen.tune.on_worker`. A worker that goes away is Dask's to notice; it
begins its trials again on another one, a few times.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from mlagen.errors import ConfigError, MissingError, MlagenError, required
from mlagen.extras import install
from mlagen.processes import SAFE, safe_path
from mlagen.tune.on_worker import asked, itself, on_worker
from mlagen.tune.values import TrialJob, TrialOutcome
from mlagen.tune.workers import drained

_CONNECT = 10.0  # seconds for a scheduler to answer
_ARRIVE = 30.0  # seconds for its first suitable worker
_BUILDERS = 8  # workers that only build, for each that measures
_AHEAD = 4  # variants that are built while one is measured: ptxas takes 9 s, a measurement 2
_ASKED = 3  # times, for the versions of all
_FRESH = 1.0  # seconds that what the scheduler said of its workers is taken for true
_QUIET: dict[str, Any] = {"dashboard": False, "silence_logs": logging.ERROR}


class ClusterWorkers:
    """The workers of a scheduler. `tag`: the resource that a trial's last stage takes one of; "":
    none. `stages`: of judging; those before the last are done by workers without the resource,
    where there are any."""

    def __init__(
        self,
        client: Any,
        stages: Sequence[Callable[..., Any]],
        limit: float,
        *,
        tag: str = "",
        warm: Callable[[], Any] | None = None,
        code: str = "",
        cluster: Any = None,
    ) -> None:
        self._client, self._cluster, self._tag = client, cluster, tag
        self._stages, self._limit, self._warm, self._code = stages, limit, warm, code
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._futures: dict[int, list[Any]] = {}
        self._run = uuid.uuid4().hex[:8]
        self._seen: tuple[float, dict[str, dict[str, Any]]] = (-_FRESH, {})
        self._held: tuple[tuple[Any, ...], Any] | None = None

    @property
    def slots(self) -> int:
        """Places to work at. Where a device measures: each, and a few variants for it to be built
        meanwhile; more would wait for it, chosen before what they could have learned from."""
        rooms = [(_room(w, self._tag), _room(w, "")) for w in self._workers().values()]
        places = sum(room for room, _ in rooms)
        if not self._tag:
            return places
        return places + min(_AHEAD * places, sum(whole for room, whole in rooms if not room))

    def ask(self, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
        resources = {self._tag: 1} if self._tag else None
        future = self._client.submit(asked, function, arguments, limit, self._warm, pure=False,
                                     resources=resources)  # fmt: skip
        return future.result()

    def submit(self, number: int, job: TrialJob) -> None:
        before, chain = None, []
        artifacts = self._artifacts(job)
        job = msgspec.structs.replace(job, reference_artifact=None, beside=())
        for stage in self._stages:
            last = stage is self._stages[-1]
            before = self._client.submit(
                on_worker, stage, job, before, artifacts if last else None, self._limit,
                self._warm if last else None, self._code,
                key=f"mlagen-{self._run}-{number}-{job.seed}-{stage.__name__}", pure=False,
                **(self._place() if last else self._builders()),
            )  # fmt: skip
            chain.append(before)
        self._futures[number] = chain
        chain[-1].add_done_callback(lambda ended: self._done.put((number, ended)))

    def _artifacts(self, job: TrialJob) -> Any:
        """The megabytes that all jobs share, sent once: a task, so that Dask makes them anew should
        the worker go that holds them. None: the jobs have none."""
        if job.reference_artifact is None:
            return None
        shared = (job.reference_artifact, *job.beside)
        if self._held is None or self._held[0] != shared:
            future = self._client.submit(itself, *shared, pure=False)
            self._held = (shared, future)
        return self._held[1]

    def _workers(self) -> dict[str, dict[str, Any]]:
        when, found = self._seen
        if not found or time.monotonic() - when > _FRESH:
            found = _workers(self._client)
            self._seen = (time.monotonic(), found)
        return found

    def _place(self) -> dict[str, Any]:
        return {"resources": {self._tag: 1}} if self._tag else {}

    def _builders(self) -> dict[str, Any]:
        """Workers without the resource go first, so that those with it are free to measure."""
        workers = self._workers().items()
        names = [name for name, worker in workers if not _room(worker, self._tag)]
        return {"workers": names, "allow_other_workers": True} if names and self._tag else {}

    def finished(self, timeout: float) -> Iterator[tuple[int, TrialOutcome]]:
        for number, future in drained(self._done, timeout):
            yield self._outcome(number, future)
        if self._client.status not in ("running", "connecting"):
            raise MissingError(
                "the Dask scheduler has gone",
                hint="start it and tune again: what was judged is in the store",
            )

    def _outcome(self, number: int, future: Any) -> tuple[int, TrialOutcome]:
        self._futures.pop(number, None)
        try:
            outcome: TrialOutcome = future.result(timeout=_CONNECT)
            return number, outcome
        except Exception as error:  # KilledWorker, a cancelled future: not the variant's fault
            what = str(error).partition("\n")[0]
            return number, TrialOutcome("lost", message=f"{type(error).__name__}: {what}")

    def close(self) -> None:
        for future in (future for chain in self._futures.values() for future in chain):
            with contextlib.suppress(Exception):
                future.cancel(force=True)
        for thing in (self._client, self._cluster):
            with contextlib.suppress(Exception):
                if thing is not None:
                    thing.close()


def _workers(client: Any) -> dict[str, dict[str, Any]]:
    """The scheduler's workers by address; none while it does not answer."""
    return dict(client.scheduler_info(n_workers=-1).get("workers", {}))


def _room(worker: dict[str, Any], tag: str) -> int:
    if tag:
        return min(int(worker["resources"].get(tag, 0)), int(worker["nthreads"]))
    return int(worker["nthreads"])


def connect(
    address: str, stages: Sequence[Callable[..., Any]], limit: float, *, tag: str = "", **more: Any
) -> ClusterWorkers:
    """The workers of the scheduler at `address`, `tcp://HOST:8786`. MissingError: nothing answers
    there, or it has no worker with the resource. ConfigError: it is another version of Dask's."""
    distributed = _distributed()
    client = _client(distributed, address)
    try:
        _check_versions(client, distributed)
        _wait(client, address, tag)
    except BaseException:
        client.close()
        raise
    return ClusterWorkers(client, stages, limit, tag=tag, **more)


def _client(distributed: Any, address: str) -> Any:
    """A connection. The first handshake may fail on a busy machine: a second one tells."""
    what = ""
    for _ in range(2):
        try:
            return distributed.Client(address, timeout=_CONNECT, set_as_default=False)
        except Exception as error:  # whatever the network, and what answers there, bring about
            what = str(error).partition("\n")[0] or type(error).__name__
        # What came to nothing goes here: collected in a thread of the next client's, it waits for a
        # lock that the one who starts that thread holds.
        gc.collect()
    raise MissingError(
        f"no Dask scheduler of this version ({distributed.__version__}) answers at {address}: "
        f"{what}",
        hint="dask scheduler  starts one, and prints its address",
    )


def _check_versions(client: Any, distributed: Any) -> None:
    found: dict[str, Any] = {}
    for attempt in range(_ASKED):  # a worker that dies while it is asked is no reason to refuse
        try:
            found = client.get_versions()
            break
        except Exception as error:
            if attempt + 1 == _ASKED:
                raise ConfigError(f"the scheduler does not say its version: {error}") from None
            time.sleep(0.5)
    others = {"scheduler": found["scheduler"], **found["workers"]}
    for name, told in others.items():
        if not told or "packages" not in told:  # it has gone
            continue
        version = told["packages"].get("distributed")
        if version != distributed.__version__:
            raise ConfigError(
                f"{name} runs distributed {version}, here is {distributed.__version__}",
                hint="install the same version of mlagen[cluster] on all machines",
            )


def _wait(client: Any, address: str, tag: str) -> None:
    """Until there is a worker that may take a trial."""
    until = time.monotonic() + _ARRIVE
    while not any(_room(worker, tag) for worker in _workers(client).values()):
        if time.monotonic() > until:
            option = f' --resources "{tag}=1"' if tag else ""
            raise MissingError(
                f"the scheduler at {address} has no worker" + (f" with {tag}" if tag else ""),
                hint=f"dask worker {address} --nthreads 1{option}",
            )
        time.sleep(0.2)


def local_cluster(
    count: int,
    stages: Sequence[Callable[..., Any]],
    limit: float,
    *,
    tag: str = "",
    gpus: str = "",
    **more: Any,
) -> ClusterWorkers:
    """A scheduler and `count` workers on this machine. `gpus`: the environment variable that gives
    each worker its GPU; beside them some workers then only build."""
    distributed = _distributed()
    from distributed.deploy.spec import SpecCluster

    def worker(gpu: str, **more: Any) -> dict[str, Any]:
        env = SAFE | ({gpus: gpu} if gpus else {})
        return {"cls": distributed.Nanny, "options": {"nthreads": 1, "env": env, **more, **_QUIET}}

    resources = {tag: 1} if tag else {}
    workers = [worker(str(number), resources=resources) for number in range(count)]
    if tag:
        spare = len(os.sched_getaffinity(0)) - count
        workers += [worker("") for _ in range(min(spare, _BUILDERS * count))]
    try:
        with safe_path():
            cluster = SpecCluster(
                workers=dict(enumerate(workers)),
                scheduler={
                    "cls": distributed.Scheduler,
                    "options": {"dashboard": False, "host": "127.0.0.1", "port": 0},
                },
                silence_logs=50,
            )
            client = distributed.Client(cluster, timeout=_CONNECT, set_as_default=False)
    except MlagenError:
        raise
    except Exception as error:
        raise MissingError(f"no local Dask cluster: {error}") from None
    _wait(client, "this machine", tag)
    return ClusterWorkers(client, stages, limit, tag=tag, cluster=cluster, **more)


def _distributed() -> Any:
    why = "tuning on several machines goes through Dask, which is not installed"
    return required("distributed", why, install("cluster"))
