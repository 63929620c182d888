"""Stores and files of winners that strangers made: a row that cannot be read is passed over and
named, a file is refused as a whole, and no build fails for either."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from toy_question import question
from toy_tuner import toy

from mlagen.errors import ConfigError
from mlagen.tune.database import StoreError
from mlagen.tune.lookup import build_best, candidates
from mlagen.tune.store import Store
from mlagen.tune.text import row_of
from mlagen.tune.tuned_file import SCHEMA, import_from
from mlagen.tune.values import TrialOutcome

KNOBS = {"a": 1, "b": "x", "c": 8}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def won(own_store: Path) -> Path:
    """A store with a winner of the toy's question, and a study of another shape that has one."""
    with closing(Store(own_store)) as store:
        for shape in ({"n": 64}, {"n": 65}):
            study = store.study(question(shape=shape), {"a": 0, "b": "x", "c": 8})
            number = store.claim(study, KNOBS, "now")
            assert number is not None
            store.finish(number, TrialOutcome("passed", cost=2.0, text="t", artifact="a"))
            store.confirm(number, "yes")
    return own_store


def put(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement, values)
        database.commit()


def found(notes: list[str]) -> Iterator[dict]:
    for winner in candidates("toy", "gfx950", {"size": 1}, {"n": 64}, notes):
        assert winner.told
        yield winner.entry.question.shape


def outcome(**changes: object) -> str:
    return json.dumps({"verdict": "passed", "cost": 2.0, **changes})


def asked(**changes: object) -> str:
    fields = msgspec.to_builtins(question(shape={"n": 65}))
    return json.dumps({**fields, **changes})


CELLS = [
    ("study", "question", "no JSON"),
    ("study", "question", asked(shape={"n": "x"})),
    ("study", "question", asked(shape={"n": 10**400})),
    ("study", "question", asked(problem={"size": [[1]]})),
    ("study", "question", asked(shape={"n": 66})),  # of another key
    ("study", "question", f'{{"problem": {{"size": {DEEP}}}}}'),
    ("study", "question", b"\x00\xff"),
    ("study", "question", 7),
    ("study", "reference", "[1]"),
    ("study", "reference", DEEP),
    ("study", "created", "yesterday"),
    ("trial", "knobs", '{"a": [1]}'),
    ("trial", "knobs", "\x00"),
    ("trial", "outcome", "{}"),
    ("trial", "outcome", None),
    ("trial", "outcome", outcome(cost=0)),
    ("trial", "outcome", outcome(cost="cheap")),
    ("trial", "outcome", '{"verdict": "passed", "cost": 1e999}'),
    ("trial", "outcome", f'{{"verdict": "passed", "device": {DEEP}}}'),
    ("trial", "code", b"now"),
    ("trial", "finished", None),
    ("trial", "finished", "late"),
    ("trial", "confirmed", b"yes"),
]


@pytest.mark.parametrize(("table", "column", "cell"), CELLS)
def test_a_row_that_cannot_be_read_is_passed_over_and_named(
    won: Path, table: str, column: str, cell: object, caplog: pytest.LogCaptureFixture
) -> None:
    put(won, f"UPDATE {table} SET {column} = ? WHERE id = 2", cell)
    notes: list[str] = []
    assert list(found(notes)) == [{"n": 64}]
    assert len(notes) == 1
    assert notes[0].startswith(f"{won}: {table} 2 is passed over: ")
    assert notes[0] in [record.getMessage() for record in caplog.records]
    with closing(Store(won)) as store:  # what `mlagen tune show` prints
        assert all(row_of(store, study) for study in store.studies())


def test_bytes_that_are_no_text_in_a_cell(won: Path) -> None:
    put(won, "UPDATE trial SET outcome = CAST(x'80ff' AS TEXT) WHERE id = 2")
    notes: list[str] = []
    assert list(found(notes)) == [{"n": 64}]
    assert "trial 2" in notes[0]


def test_what_cannot_be_read_is_judged_again(won: Path) -> None:
    put(won, "UPDATE trial SET outcome = '{' WHERE id = 2")
    put(won, "UPDATE study SET question = '{' WHERE id = 2")
    with closing(Store(won)) as store:
        study = store.study(question(shape={"n": 65}), KNOBS)
        assert (study.id, study.reference) == (2, KNOBS)  # the key said which question it was
        assert store.trials(study) == []
        assert store.claim(study, KNOBS, "now") == 2
        store.finish(2, TrialOutcome("passed", cost=3.0))
        assert [trial.cost for trial in store.trials(study)] == [3.0]


def test_claims_that_nobody_can_make_out_do_not_hold_a_tuner_up(won: Path) -> None:
    with closing(Store(won)) as store:
        (study, _) = store.studies()
        for number, (knobs, owner, beat) in enumerate(
            (("{", "elsewhere:1:1", 0.0), ('{"a": 2}', "nobody", 0.0), ('{"a": 3}', "e:1:1", 9e99))
        ):
            put(won, "INSERT INTO trial (study, knobs, code, state, owner, beat) "
                "VALUES (1, ?, 'now', 'running', ?, ?)", knobs, owner, beat)  # fmt: skip
            assert store.pending(study, "now") == number
        assert store.abandoned(study, "now") == [{"a": 2}, {"a": 3}]
        assert store.running(study) == 0


def test_a_store_that_brings_code_is_refused(own_store: Path) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    with closing(Store(own_store)) as store:
        store.study(question(), {})
    put(own_store, f"CREATE TRIGGER t BEFORE INSERT ON study BEGIN {endless}; END")
    with pytest.raises(StoreError, match="has other tables"):
        Store(own_store)


def test_a_build_takes_no_harm_from_the_store(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a launch sees of a store with a bad cell."""
    fields = {"num_heads": 2}
    artifact, choice = build_best("mla_prefill_reduce", fields)
    assert choice.origin == "default"
    problem = artifact.manifest.problem
    shape = {"seq_len": 64}
    asked = question(
        kernel="mla_prefill_reduce", name="mla_prefill_reduce", problem=problem, shape=shape
    )
    with closing(Store(own_store)) as store:
        study = store.study(asked, {})
        assert store.claim(study, {}, "now") == 1
        store.finish(1, TrialOutcome("passed", cost=1.0, text=artifact.manifest.text_sha256))
        store.confirm(1, "yes")
    again, choice = build_best("mla_prefill_reduce", fields, shape=shape)
    assert (again, choice.origin) == (artifact, "local")
    put(own_store, "UPDATE study SET question = replace(question, '64', '\"x\"')")
    again, choice = build_best("mla_prefill_reduce", fields, shape=shape)
    assert (again, choice.origin) == (artifact, "default")
    assert "study 1 is passed over" in str(choice)
    assert "Expected `int" in str(choice)


# ---- files of winners ------------------------------------------------------------------------


def winner(**changes: object) -> dict:
    return {
        "question": msgspec.to_builtins(question()), "knobs": KNOBS, "reference": KNOBS,
        "text": "t", "artifact": "a", "cost": 2.0, "reference_cost": 4.0, "judged": 3,
        "versions": {"code": "now"}, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (winner(question=json.loads(asked(shape={"num_keys": "x"}))), "Expected `int"),
        (winner(question=json.loads(asked(shape={"num_keys": 1 << 64}))), "<= 9223372036854775807"),
        (winner(question=json.loads(asked(device={"name": {"a": 1}}))), "device"),
        (winner(cost=0), "> 0"),
        (winner(reference_cost=-1.0), "> 0"),
        (winner(knobs={"a": None}), "knobs"),
    ],
)
def test_a_file_with_one_bad_winner_is_refused_whole(
    store: Store, tmp_path: Path, entry: dict, told: str
) -> None:
    path = tmp_path / "winners.json"
    path.write_text(json.dumps({"schema": SCHEMA, "winners": [winner(), entry]}))
    with pytest.raises(ConfigError, match=told) as error:
        import_from(store, str(path))
    assert "winners[" in error.value.message
    assert store.studies() == []


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (DEEP.encode(), "nested too deeply"),
        (f'{{"schema": "{SCHEMA}", "winners": {DEEP}}}'.encode(), "nested too deeply"),
        (b'{"schema": "\xff"}', "no UTF-8"),
        (b'{"schema": "' + b"x" * 1_000_000 + b'"}', "this mlagen knows"),
    ],
)
def test_a_file_that_is_no_list_of_winners(
    store: Store, tmp_path: Path, data: bytes, told: str
) -> None:
    path = tmp_path / "winners.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=told) as error:
        import_from(store, str(path))
    assert len(error.value.message) < 1000


# ---- trials that somebody kills --------------------------------------------------------------


def test_a_trial_that_is_killed_is_begun_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_NOTES", str(tmp_path / "notes"))
    result = toy(store, "killed_once")
    assert len(result.trials) == result.described.space.size
    assert {trial.outcome.verdict for trial in result.trials} == {"passed"}
    assert (tmp_path / "notes").read_text().splitlines() == ["killed"]


@pytest.mark.parametrize("judge", ["always_killed", "out_of_memory"])
def test_a_trial_that_is_killed_each_time_is_no_record_of_its_variant(
    store: Store, judge: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = toy(store, judge)
    lost = 9  # of 45 variants, those with a=1
    assert result.progress.verdicts == {"passed": 36, "lost": lost}
    assert {trial.knobs["a"] for trial in result.trials} == {0, 2, 3, 4}
    assert sum("another run tries it again" in text for text in caplog.messages) == lost
    again = toy(store, "honest")  # with more memory
    assert again.progress.judged == lost
    assert len(again.trials) == again.described.space.size
