"""The store: claims, owners that die, damaged, foreign and newer files, a disk that is full."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from toy_judges import cost_of
from toy_question import question

from mlagen.errors import ConfigError
from mlagen.tune import owner
from mlagen.tune.database import VERSION, StoreError
from mlagen.tune.store import Store, Study
from mlagen.tune.values import TrialOutcome

KNOBS = {"a": 1, "b": "x", "c": 8}


def begun(store: Store) -> Study:
    return store.study(question(), {"a": 0, "b": "x", "c": 8})


def finished(store: Store, study: Study, knobs: dict, outcome: TrialOutcome | None = None) -> int:
    number = store.claim(study, knobs, "now")
    assert number is not None
    store.finish(number, outcome or TrialOutcome("passed", cost=cost_of(knobs)))
    return number


def test_what_is_kept_comes_back(store: Store, own_store: Path) -> None:
    study = begun(store)
    told = TrialOutcome(
        "passed", cost=1.5, estimate=1.25, message="m", artifact="a", text="t",
        samples={"corner": [1.5]}, seconds={"build": 1.0}, versions={"code": "now"},
        device={"name": "d"}, worker="w",
    )  # fmt: skip
    number = finished(store, study, KNOBS, told)
    with closing(Store(own_store)) as again:
        (found,) = again.studies()
        assert found == study
        (trial,) = again.trials(found)
        assert (trial.id, trial.knobs, trial.code, trial.outcome) == (number, KNOBS, "now", told)
        assert again.trials(found, known=[number]) == []
        assert again.trials(found, code="then") == []


def test_studies_are_found_by_the_beginning_of_their_key(store: Store) -> None:
    study = begun(store)
    other = store.study(question(shape={"n": 65}), {})
    assert store.find(study.question.key[:8]) == study
    assert store.study(question(), {"other": 1}) == study  # its reference stays
    with pytest.raises(ConfigError, match="2 studies"):
        store.find("")
    with pytest.raises(ConfigError, match=other.question.key):
        store.find("nothing")


def test_a_variant_is_judged_once_a_state_of_the_code(store: Store, own_store: Path) -> None:
    study = begun(store)
    with closing(Store(own_store)) as other:
        other.owner = other.owner.replace(str(os.getpid()), "1", 1)
        number = store.claim(study, KNOBS, "now")
        assert number is not None
        # Process 1 lives, but did not start when this owner says it did: it counts as gone.
        assert other.claim(study, KNOBS, "now") is None
        store.finish(number, TrialOutcome("passed", cost=1.0))
        assert store.claim(study, KNOBS, "now") is None
        assert store.claim(study, KNOBS, "then") is not None


def test_what_a_dead_owner_claimed_is_free(store: Store, own_store: Path) -> None:
    study = begun(store)
    code = (
        "import sys; from mlagen.tune.store import Store; from pathlib import Path\n"
        "s = Store(Path(sys.argv[1])); study = s.studies()[0]\n"
        "print(s.claim(study, {'a': 1, 'b': 'x', 'c': 8}, 'now'), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(own_store)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as tuner:  # fmt: skip
        assert tuner.stdout is not None
        number = int(tuner.stdout.readline())
        assert store.claim(study, KNOBS, "now") is None
        assert store.running(study) == 1
        assert store.abandoned(study, "now") == []
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
    assert store.running(study) == 0
    assert store.abandoned(study, "now") == [KNOBS]
    assert store.claim(study, KNOBS, "now") == number


def test_an_owner_elsewhere_is_dead_when_its_beats_stop() -> None:
    now = time.time()
    assert not owner.dead("elsewhere:1:2", now - owner.STALE + 1, now)
    assert owner.dead("elsewhere:1:2", now - owner.STALE - 1, now)
    assert not owner.dead(owner.me(), 0.0, now)


def test_who_lost_a_trial_does_not_write_it(store: Store) -> None:
    study = begun(store)
    number = store.claim(study, KNOBS, "now")
    assert number is not None
    mine, store.owner = store.owner, "elsewhere:1:1"
    store.finish(number, TrialOutcome("passed", cost=0.1))
    assert store.trials(study) == []
    store.owner = mine
    store.finish(number, TrialOutcome("passed", cost=2.0))
    assert [trial.cost for trial in store.trials(study)] == [2.0]


def test_only_confirmed_and_passed_variants_win(store: Store) -> None:
    study = begun(store)
    assert store.winner(study) is None
    fast = finished(store, study, {"a": 3, "b": "y", "c": 2})
    slow = finished(store, study, {"a": 4, "b": "y", "c": 2})
    wrong = finished(store, study, KNOBS, TrialOutcome("wrong", cost=None))
    assert store.winner(study) is None
    store.confirm(slow, "yes")
    store.confirm(wrong, "yes")
    assert store.winner(study).id == slow  # type: ignore[union-attr]
    store.confirm(fast, "yes")
    assert store.winner(study).id == fast  # type: ignore[union-attr]
    store.confirm(fast, "a second look", TrialOutcome("wrong"))
    assert store.winner(study).id == slow  # type: ignore[union-attr]


# ---- files that cannot be used ---------------------------------------------------------------


def filled(path: Path, count: int = 200) -> None:
    with closing(Store(path)) as store:
        study = begun(store)
        for number in range(count):
            finished(store, study, {"a": number}, TrialOutcome("error", message="m" * 400))


def refused(path: Path, message: str) -> StoreError:
    before = path.read_bytes()
    with pytest.raises(StoreError, match=message) as error:
        Store(path)
    assert path.read_bytes() == before, "a file that cannot be used was written to"
    assert error.value.hint
    return error.value


def test_a_file_that_is_no_database_is_left_alone(own_store: Path) -> None:
    own_store.write_bytes(b"tuning results, one would think\n" * 100)
    refused(own_store, "is damaged: file is not a database")


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_damaged_store_is_told_before_it_is_used(own_store: Path, where: float) -> None:
    filled(own_store)
    data = bytearray(own_store.read_bytes())
    start = int(len(data) * where) // 4096 * 4096
    data[start : start + 4096] = b"\xa5" * 4096
    own_store.write_bytes(data)
    error = refused(own_store, "damaged")
    assert error.hint is not None
    assert "mv " in error.hint


def test_a_store_cut_short_is_told(own_store: Path) -> None:
    filled(own_store)
    own_store.write_bytes(own_store.read_bytes()[: own_store.stat().st_size // 2])
    refused(own_store, "damaged")


@pytest.mark.parametrize(("apart", "whose"), [(1, "a newer"), (-1, "an older")])
def test_a_store_of_another_mlagen_is_left_alone(own_store: Path, apart: int, whose: str) -> None:
    """The questions of format 1 have tiles among the problem's fields."""
    filled(own_store, 1)
    with closing(sqlite3.connect(own_store)) as database:
        database.execute(f"PRAGMA user_version = {VERSION + apart}")
        database.execute("PRAGMA journal_mode = DELETE")
    refused(own_store, rf"{whose} mlagen \(format {VERSION + apart}")


def test_a_database_of_another_program_is_left_alone(own_store: Path) -> None:
    with closing(sqlite3.connect(own_store)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
        database.commit()
    refused(own_store, "another program")


def test_a_folder_that_cannot_be_made_is_told(own_store: Path) -> None:
    own_store.write_text("a file")
    with pytest.raises(StoreError, match=r"Not a directory|File exists"):
        begun(Store(own_store / "deeper" / "store.sqlite"))


def test_a_store_that_is_only_read_is_not_made(own_store: Path) -> None:
    store = Store(own_store / "deeper" / "store.sqlite")
    assert store.studies() == []
    assert list(own_store.parent.iterdir()) == []


def test_a_full_database_loses_nothing(own_store: Path) -> None:
    filled(own_store, 20)
    with closing(Store(own_store)) as store:
        assert store._database is not None
        store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (pages,) = store._database.execute("PRAGMA page_count").fetchone()
        store._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        study = begun(store)
        kept = 20
        with pytest.raises(StoreError, match="cannot be written: database or disk is full"):
            for number in range(100, 200):
                finished(store, study, {"a": number}, TrialOutcome("error", message="m" * 4000))
                kept += 1
        assert len(store.trials(study)) == kept
    with closing(Store(own_store)) as again:  # room again: it goes on
        assert len(again.trials(study)) == kept
        finished(again, study, {"a": 1000}, TrialOutcome("error"))


def test_a_disk_that_takes_no_more_loses_nothing(own_store: Path) -> None:
    """The limit of a process for its files' size: real writes that the kernel refuses."""
    filled(own_store, 20)
    size = max(file.stat().st_size for file in own_store.parent.glob(f"{own_store.name}*"))
    with closing(Store(own_store)) as store:
        study = begun(store)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20000, hard))
        try:
            kept = 20
            with pytest.raises(StoreError, match="cannot be written"):
                for number in range(100, 400):
                    finished(store, study, {"a": number}, TrialOutcome("error", message="m" * 4000))
                    kept += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert len(store.trials(study)) == kept
    with closing(Store(own_store)) as again:
        assert len(again.trials(study)) == kept
        finished(again, study, {"a": 1000}, TrialOutcome("error"))
