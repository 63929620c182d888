"""Trials and their outcomes: claimed before they run, kept when they are judged.

Several tuners may share a store: each variant is judged once for each state of the code. What a row
holds is checked when it is read: one that cannot be used is passed over with a warning.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mlagen.errors import ConfigError
from mlagen.tune.database import explained, open_database
from mlagen.tune.owner import dead, me
from mlagen.tune.space import Knobs, Value, knobs_key
from mlagen.tune.values import Question, TrialOutcome
from mlagen.untrusted import decode_json, printable

_LOG = logging.getLogger("mlagen.tune")
_Row = TypeVar("_Row")
_AHEAD = 3600.0  # seconds that another machine's clock may be ahead


@dataclass(frozen=True, slots=True)
class Study:
    """A question in a store. `reference`: the knobs that costs are compared with."""

    id: int
    question: Question
    reference: dict[str, Value]
    created: float


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """A judged variant. `code`: of the code that judged it (`versions.code_digest`). `confirmed`:
    what a second look said: "" not looked, "yes", or why not."""

    id: int
    knobs: dict[str, Value]
    code: str
    outcome: TrialOutcome
    finished: float
    confirmed: str = ""

    @property
    def cost(self) -> float | None:
        """What counts: of a variant that passed."""
        return self.outcome.cost if self.outcome.verdict == "passed" else None


_COLUMNS = "id, knobs, code, outcome, finished, confirmed"


class Store:
    """The studies in one file, which is made when the first one is kept. Methods raise StoreError
    where the file cannot be used. `skipped`: rows that were passed over because they cannot be
    read, and why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path):
            self._database = open_database(path) if path.exists() else None
        self.owner = me()
        self.skipped: dict[str, None] = {}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path):
            if self._database is None:
                self._database = open_database(self.path)
            database = self._database
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def _change(self, statement: str, *values: Any) -> None:
        with self._changing() as database:
            database.execute(statement, values)

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._database is None:
            return []
        with explained(self.path):
            return self._database.execute(statement, values).fetchall()

    def _read(self, table: str, row: tuple[Any, ...], read: Callable[..., _Row]) -> _Row | None:
        """What `read` makes of a row, its number first; None, and a warning, where that fails."""
        try:
            return read(*row)
        except (ValueError, TypeError) as error:
            said = printable(f"{self.path}: {table} {row[0]} is passed over: {error}")
        if said not in self.skipped:
            self.skipped[said] = None
            _LOG.warning("%s", said)
        return None

    # ---- studies ----------------------------------------------------------------------------

    def study(self, question: Question, reference: Knobs) -> Study:
        """The study of a question, begun where there is none."""
        told = (_json(question), json.dumps(dict(reference)), time.time(), question.key)
        self._change(
            "INSERT INTO study (question, reference, created, key) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (key) DO NOTHING",
            *told,
        )
        if (found := self._of(question)) is None:  # its row cannot be read; the key says what it is
            self._change(
                "UPDATE study SET question = ?, reference = ?, created = ? WHERE key = ?", *told
            )
            found = self._of(question)
        assert found is not None
        return found

    def _of(self, question: Question) -> Study | None:
        return next((s for s in self.studies() if s.question.key == question.key), None)

    def refer(self, study: Study, reference: Knobs) -> None:
        """Compare with these knobs from now on."""
        self._change(
            "UPDATE study SET reference = ? WHERE id = ?", json.dumps(dict(reference)), study.id
        )

    def studies(self) -> list[Study]:
        """All of them, the oldest first."""
        rows = self._rows("SELECT id, key, question, reference, created FROM study ORDER BY id")
        return [study for row in rows if (study := self._read("study", row, _study)) is not None]

    def find(self, beginning: str) -> Study:
        """The study whose key begins so. ConfigError: none does, or several."""
        found = [s for s in self.studies() if s.question.key.startswith(beginning)]
        if len(found) != 1:
            keys = ", ".join(study.question.key for study in found or self.studies())
            what = "no study's key begins" if not found else f"{len(found)} studies' keys begin"
            raise ConfigError(f"{what} with {beginning!r}", hint=f"keys: {keys or 'none'}")
        return found[0]

    # ---- trials -----------------------------------------------------------------------------

    def claim(self, study: Study, knobs: Knobs, code: str) -> int | None:
        """A trial's number, where it is this process's to judge; None where it was judged, or
        somebody is at it."""
        now = time.time()
        with self._changing() as database:
            row = database.execute(
                f"SELECT {_COLUMNS}, state, owner, beat FROM trial WHERE study = ? AND knobs = ? "
                "AND code = ?",
                (study.id, knobs_key(knobs), code),
            ).fetchone()
            if row is None:
                made = database.execute(
                    "INSERT INTO trial (study, knobs, code, state, owner, beat) "
                    "VALUES (?, ?, ?, 'running', ?, ?)",
                    (study.id, knobs_key(knobs), code, self.owner, now),
                )
                return made.lastrowid
            *told, state, owner, beat = row
            if state == "done":
                if self._read("trial", tuple(told), _trial) is not None:
                    return None
            elif owner != self.owner and not _dead(owner, beat, now):
                return None
            database.execute(
                "UPDATE trial SET state = 'running', owner = ?, beat = ? WHERE id = ?",
                (self.owner, now, told[0]),
            )
            return int(told[0])

    def beat(self) -> None:
        """Say that this process is alive, for those on other machines."""
        self._change(
            "UPDATE trial SET beat = ? WHERE state = 'running' AND owner = ?",
            time.time(), self.owner,
        )  # fmt: skip

    def release(self) -> None:
        """Give up what this process has claimed and not finished."""
        self._change("DELETE FROM trial WHERE state = 'running' AND owner = ?", self.owner)

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        """Keep an outcome. One that somebody else has taken over meanwhile is theirs to keep."""
        self._change(
            "UPDATE trial SET state = 'done', verdict = ?, cost = ?, outcome = ?, finished = ? "
            "WHERE id = ? AND owner = ? AND state = 'running'",
            outcome.verdict, outcome.cost, _json(outcome), time.time(), number, self.owner,
        )  # fmt: skip

    def forget(self, number: int) -> None:
        """Give a trial up, as if nobody had begun it."""
        self._change(
            "DELETE FROM trial WHERE id = ? AND owner = ? AND state = 'running'",
            number, self.owner,
        )  # fmt: skip

    def confirm(self, number: int, said: str, outcome: TrialOutcome | None = None) -> None:
        """Keep what a second look said, and the outcome where that changed it."""
        with self._changing() as database:
            database.execute("UPDATE trial SET confirmed = ? WHERE id = ?", (said, number))
            if outcome is not None:
                database.execute(
                    "UPDATE trial SET verdict = ?, cost = ?, outcome = ? WHERE id = ?",
                    (outcome.verdict, outcome.cost, _json(outcome), number),
                )

    def trials(
        self, study: Study, *, code: str | None = None, known: Collection[int] = ()
    ) -> list[KeptTrial]:
        """Judged variants but those `known`, by number; of one state of the code, or of all."""
        rows = self._rows(
            "SELECT id FROM trial WHERE study = ? AND state = 'done' AND (? IS NULL OR code = ?) "
            "ORDER BY id",
            study.id, code, code,
        )  # fmt: skip
        new = [number for (number,) in rows if number not in known]
        return [
            trial
            for number in new
            for row in self._rows(f"SELECT {_COLUMNS} FROM trial WHERE id = ?", number)
            if (trial := self._read("trial", row, _trial)) is not None
        ]

    def abandoned(self, study: Study, code: str) -> list[dict[str, Value]]:
        """Variants whose tuner died while they ran."""
        return [knobs for knobs, gone in self._begun(study, code) if gone]

    def pending(self, study: Study, code: str) -> int:
        """Trials that were begun and not finished, whoever has them."""
        return len(self._begun(study, code))

    def _begun(self, study: Study, code: str) -> list[tuple[dict[str, Value], bool]]:
        """The knobs of each trial that was begun and not finished, and whether its owner died."""
        rows = self._rows(
            "SELECT id, knobs, owner, beat FROM trial WHERE study = ? AND code = ? "
            "AND state = 'running' ORDER BY id",
            study.id, code,
        )  # fmt: skip
        read = [self._read("trial", row, _claimed) for row in rows]
        return [one for one in read if one is not None]

    def running(self, study: Study) -> int:
        """Trials that somebody is at."""
        now = time.time()
        rows = self._rows(
            "SELECT owner, beat FROM trial WHERE study = ? AND state = 'running'", study.id
        )
        return sum(not _dead(owner, beat, now) for owner, beat in rows)

    def winner(self, study: Study) -> KeptTrial | None:
        """The confirmed variant of the least cost, of the newest code that has one."""
        confirmed = [trial for trial in self.trials(study) if trial.confirmed == "yes"]
        costed = [trial for trial in confirmed if trial.cost is not None]
        return best_of(newest(costed))


def newest(trials: Sequence[KeptTrial]) -> list[KeptTrial]:
    """Those that were judged by the code that judged last."""
    code = max(trials, key=lambda trial: trial.finished).code if trials else ""
    return [trial for trial in trials if trial.code == code]


def reference_of(study: Study, trials: Sequence[KeptTrial]) -> KeptTrial | None:
    """The trial of the reference's knobs."""
    key = knobs_key(study.reference)
    return next((trial for trial in trials if knobs_key(trial.knobs) == key), None)


def best_of(trials: list[KeptTrial]) -> KeptTrial | None:
    """The least cost; of equals, the first."""
    costed = [(trial.cost, trial.id, trial) for trial in trials if trial.cost is not None]
    return min(costed, key=lambda one: one[:2])[2] if costed else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _study(number: int, key: Any, question: Any, reference: Any, created: Any) -> Study:
    decoded: Question = decode_json(_text(question), Question)
    if decoded.key != key:
        raise ValueError("its question is not that of its key")
    return Study(number, decoded, _knobs(reference), _number(created))


def _trial(
    number: int, knobs: Any, code: Any, outcome: Any, finished: Any, confirmed: Any
) -> KeptTrial:
    decoded: TrialOutcome = decode_json(_text(outcome), TrialOutcome)
    return KeptTrial(number, _knobs(knobs), _text(code), decoded, _number(finished),
                     _text(confirmed or ""))  # fmt: skip


def _claimed(number: int, knobs: Any, owner: Any, beat: Any) -> tuple[dict[str, Value], bool]:
    return _knobs(knobs), _dead(owner, beat, time.time())


def _knobs(cell: Any) -> dict[str, Value]:
    found: dict[str, Value] = decode_json(_text(cell), dict[str, Value])
    return found


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"a cell holds {_kind(cell)}, not text")
    return cell


def _number(cell: Any) -> float:
    if not isinstance(cell, int | float):
        raise ValueError(f"a cell holds {_kind(cell)}, not a number")
    return float(cell)


def _kind(cell: Any) -> str:
    return "nothing" if cell is None else type(cell).__name__


def _dead(owner: Any, beat: Any, now: float) -> bool:
    """An owner that nobody can make out has gone."""
    try:
        return _number(beat) > now + _AHEAD or dead(_text(owner), _number(beat), now)
    except ValueError:
        return True
