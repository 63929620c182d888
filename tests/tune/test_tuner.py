"""The loop: what wins, what a kill leaves, tuners side by side, budgets."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from toy_judges import cost_of
from toy_question import HERE, SPACE, question
from toy_tuner import toy

from mlagen.tune.space import knobs_key
from mlagen.tune.store import Store
from mlagen.tune.values import TrialJob, TrialOutcome


def test_the_least_cost_wins_and_is_looked_at_twice(store: Store) -> None:
    result = toy(store, "honest")
    assert result.winner is not None
    assert result.winner.knobs == {"a": 3, "b": "y", "c": 2}
    assert result.winner.confirmed == "yes"
    assert result.progress.gain == pytest.approx(cost_of(SPACE.default) / 10)
    # Hopeless ones are judged all the same: their cost is known in no other way.
    assert len(result.trials) == SPACE.size


def test_faults_cost_their_own_process_and_never_win(store: Store) -> None:
    result = toy(store, "planted", limit=0.4)
    verdicts = {}
    for trial in result.trials:
        verdicts.setdefault(trial.knobs["a"], set()).add(trial.outcome.verdict)
    assert verdicts == {0: {"passed"}, 1: {"timeout"}, 2: {"crashed"}, 3: {"wrong"}, 4: {"error"}}
    assert len(result.trials) == SPACE.size
    assert result.winner is not None
    assert result.winner.knobs["a"] == 0  # what would have cost less was wrong


def test_what_fails_the_second_look_does_not_win(store: Store) -> None:
    result = toy(store, "second_thoughts")
    assert result.winner is not None
    assert result.winner.knobs["a"] in (2, 4)
    failed = [t for t in result.trials if t.outcome.message.startswith("planted for the second")]
    assert failed
    assert all(trial.outcome.verdict == "wrong" for trial in failed)


def test_a_variant_with_the_text_of_another_has_its_verdict(store: Store) -> None:
    class Twins:
        """Knob c does nothing."""

        slots = 1

        def __init__(self) -> None:
            self.done: list[tuple[int, TrialOutcome]] = []

        def submit(self, number: int, job: TrialJob) -> None:
            text = f"{job.knobs['a']} {job.knobs['b']}"
            if text in job.known:
                outcome = TrialOutcome("passed", text=text, same_as=job.known[text])
            elif job.knobs["b"] == "z":
                outcome = TrialOutcome("wrong", text=text, message="planted")
            else:
                cost = cost_of({**job.knobs, "c": 2})
                outcome = TrialOutcome("passed", cost=cost, text=text)
            self.done.append((number, outcome))

        def finished(self, timeout: float) -> list[tuple[int, TrialOutcome]]:
            done, self.done = self.done, []
            return done

        def close(self) -> None:
            pass

    result = toy(store, "", workers=Twins())  # type: ignore[arg-type]
    by_text: dict[str, set] = {}
    for trial in result.trials:
        told = (trial.outcome.verdict, trial.cost)
        by_text.setdefault(trial.outcome.text, set()).add(told)
    assert len(result.trials) == SPACE.size
    assert all(len(told) == 1 for told in by_text.values())
    assert sum(trial.outcome.same_as is not None for trial in result.trials) == SPACE.size - 15


def test_budgets_end_a_run_and_the_next_goes_on(store: Store) -> None:
    first = toy(store, "honest", trials=10)
    assert first.progress.judged == 10
    second = toy(store, "honest", trials=10)
    assert len(second.trials) == 20
    started = time.monotonic()
    third = toy(store, "slow_honest", seconds=0.5)
    assert time.monotonic() - started < 6
    assert 20 < len(third.trials) < SPACE.size
    assert toy(store, "honest", trials=0).progress.judged == 0


def run_toy(path: Path, judge: str, jobs: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "toy_tuner.py"), str(path), judge, str(jobs)]
    )


def judgements(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().splitlines()) if notes.exists() else Counter()


def test_a_tuner_killed_in_mid_trial_loses_nothing_and_resumes(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("TOY_NOTES", str(notes))
    Store(own_store).close()
    known = 0
    for _ in range(3):
        tuner = run_toy(own_store, "noted", 2)
        enough = judgements(notes).total() + 5
        until = time.monotonic() + 20
        while judgements(notes).total() < enough and time.monotonic() < until:
            time.sleep(0.02)
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        with closing(Store(own_store)) as store:
            (study,) = store.studies()
            done = len(store.trials(study))
            assert done > known, "a run that was killed had kept nothing"
            assert store.running(study) == 0
            known = done
    with closing(Store(own_store)) as store:
        result = toy(store, "noted", 4)
        assert len(result.trials) == SPACE.size
        assert result.winner is not None
        assert result.winner.cost == 10
        assert store.pending(result.study, "now") == 0
    counted = judgements(notes)
    assert len(counted) == SPACE.size
    # At most the two that ran at each kill were judged again, and the winner for its second look.
    assert counted.total() <= SPACE.size + 3 * 2 + 1


def test_two_tuners_on_one_store_share_the_work(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("TOY_NOTES", str(notes))
    Store(own_store).close()
    tuners = [run_toy(own_store, "noted", 2) for _ in range(2)]
    assert [tuner.wait(timeout=60) for tuner in tuners] == [0, 0]
    with closing(Store(own_store)) as store:
        study = store.study(question(), {})
        assert len(store.trials(study)) == SPACE.size
        assert store.winner(study).cost == 10  # type: ignore[union-attr]
        owners = store._rows("SELECT owner, count(*) FROM trial GROUP BY owner")
    assert len(owners) == 2, "one of them had nothing to do"
    # Each once, and the winner's second look by one tuner or by both.
    counted = judgements(notes)
    assert len(counted) == SPACE.size
    assert counted.total() <= SPACE.size + 2


def test_a_killed_worker_process_costs_one_attempt(store: Store, monkeypatch: pytest.MonkeyPatch,
                                                   tmp_path: Path) -> None:  # fmt: skip
    """The process that forks trials is killed while the tuner runs: its trial is begun again."""
    notes = tmp_path / "notes"
    monkeypatch.setenv("TOY_NOTES", str(notes))
    import toy_judges

    from mlagen.tune.workers import LocalWorkers

    workers = LocalWorkers(2, toy_judges.noted, 20)

    class Killing:
        slots, submit, close = 2, workers.submit, workers.close
        killed = False

        def finished(self, timeout: float) -> list[tuple[int, TrialOutcome]]:
            process = workers._sandboxes[0]._process
            if not self.killed and process is not None and judgements(notes).total() > 4:
                process.kill()
                self.killed = True
            return list(workers.finished(timeout))

    killing = Killing()
    result = toy(store, "", workers=killing)  # type: ignore[arg-type]
    assert killing.killed
    assert Counter(t.outcome.verdict for t in result.trials) == {"passed": SPACE.size}
    assert result.winner is not None
    assert result.winner.cost == 10


def test_records_of_other_code_are_kept_and_judged_again(store: Store) -> None:
    from mlagen.tune.judge import Described
    from mlagen.tune.session import TuneRequest, search_described

    class Direct:
        slots = 1

        def __init__(self, shift: float) -> None:
            self.shift, self.done, self.order = shift, [], []

        def submit(self, number: int, job: TrialJob) -> None:
            self.order.append(knobs_key(job.knobs))
            cost = cost_of(dict(job.knobs)) + self.shift
            self.done.append((number, TrialOutcome("passed", cost=cost)))

        def finished(self, timeout: float) -> list:
            done, self.done = self.done, []
            return done

        def close(self) -> None:
            pass

    def run(code: str, shift: float, trials: int | None) -> tuple:
        described = Described(question(), SPACE, SPACE.default, (), {"code": code})
        workers = Direct(shift)
        request = TuneRequest("toy", {}, trials=trials)
        return search_described(described, request, store, workers), workers.order

    first, _ = run("then", 0, None)
    assert store.winner(first.study).cost == 10  # type: ignore[union-attr]
    second, order = run("now", 5, 3)
    # The reference and what was best before come first: three trials are enough to know it.
    assert order[1] == knobs_key({"a": 3, "b": "y", "c": 2})
    assert second.winner is not None
    assert second.winner.cost == 15
    assert store.winner(second.study).code == "now"  # type: ignore[union-attr]
    assert len(store.trials(second.study)) == SPACE.size + 3


def test_the_reference_is_the_default_of_today(store: Store) -> None:
    """A schedule that has other knobs than when the study began is compared with its default."""
    store.study(question(), {"old": 1})
    result = toy(store, "honest", trials=3)
    assert result.study.reference == SPACE.default
    assert result.progress.reference is not None
