"""Trials and their outcomes: claimed before they run, kept when they are judged.

Several tuners may share a store: each variant is judged once for each state of the code.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mlagen.errors import ConfigError
from mlagen.tune.database import explained, open_database
from mlagen.tune.owner import dead, me
from mlagen.tune.space import Knobs, Value, knobs_key
from mlagen.tune.values import Outcome, Question


@dataclass(frozen=True, slots=True)
class Study:
    """A question in a store. `reference`: the knobs that costs are compared with."""

    id: int
    question: Question
    reference: dict[str, Value]
    created: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A judged variant. `code`: of the code that judged it (`versions.code_digest`). `confirmed`:
    what a second look said: "" not looked, "yes", or why not."""

    id: int
    knobs: dict[str, Value]
    code: str
    outcome: Outcome
    finished: float
    confirmed: str = ""

    @property
    def cost(self) -> float | None:
        """What counts: of a variant that passed."""
        return self.outcome.cost if self.outcome.verdict == "passed" else None


_COLUMNS = "id, knobs, code, outcome, finished, confirmed"


class Store:
    """The studies in one file. Methods raise StoreError where the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = open_database(path)
        self.owner = me()

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._database.execute(statement, values).fetchall()

    # ---- studies ----------------------------------------------------------------------------

    def study(self, question: Question, reference: Knobs) -> Study:
        """The study of a question, begun where there is none."""
        with self._changing() as database:
            database.execute(
                "INSERT INTO study (key, question, reference, created) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (key) DO NOTHING",
                (question.key, _json(question), json.dumps(dict(reference)), time.time()),
            )
        return next(study for study in self.studies() if study.question.key == question.key)

    def refer(self, study: Study, reference: Knobs) -> None:
        """Compare with these knobs from now on."""
        with self._changing() as database:
            database.execute(
                "UPDATE study SET reference = ? WHERE id = ?",
                (json.dumps(dict(reference)), study.id),
            )

    def studies(self) -> list[Study]:
        """All of them, the oldest first."""
        rows = self._rows("SELECT id, question, reference, created FROM study ORDER BY id")
        return [
            Study(number, msgspec.json.decode(question, type=Question), json.loads(knobs), created)
            for number, question, knobs, created in rows
        ]

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
                "SELECT id, state, owner, beat FROM trial WHERE study = ? AND knobs = ? "
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
            number, state, owner, beat = row
            if state == "done" or (owner != self.owner and not dead(owner, beat, now)):
                return None
            database.execute(
                "UPDATE trial SET owner = ?, beat = ? WHERE id = ?", (self.owner, now, number)
            )
            return int(number)

    def beat(self) -> None:
        """Say that this process is alive, for those on other machines."""
        with self._changing() as database:
            database.execute(
                "UPDATE trial SET beat = ? WHERE state = 'running' AND owner = ?",
                (time.time(), self.owner),
            )

    def release(self) -> None:
        """Give up what this process has claimed and not finished."""
        with self._changing() as database:
            database.execute(
                "DELETE FROM trial WHERE state = 'running' AND owner = ?", (self.owner,)
            )

    def finish(self, number: int, outcome: Outcome) -> None:
        """Keep an outcome. One that somebody else has taken over meanwhile is theirs to keep."""
        with self._changing() as database:
            database.execute(
                "UPDATE trial SET state = 'done', verdict = ?, cost = ?, outcome = ?, finished = ? "
                "WHERE id = ? AND owner = ? AND state = 'running'",
                (outcome.verdict, outcome.cost, _json(outcome), time.time(), number, self.owner),
            )

    def forget(self, number: int) -> None:
        """Give a trial up, as if nobody had begun it."""
        with self._changing() as database:
            database.execute(
                "DELETE FROM trial WHERE id = ? AND owner = ? AND state = 'running'",
                (number, self.owner),
            )

    def confirm(self, number: int, said: str, outcome: Outcome | None = None) -> None:
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
    ) -> list[Trial]:
        """Judged variants but those `known`, by number; of one state of the code, or of all."""
        rows = self._rows(
            "SELECT id FROM trial WHERE study = ? AND state = 'done' AND (? IS NULL OR code = ?) "
            "ORDER BY id",
            study.id, code, code,
        )  # fmt: skip
        new = [number for (number,) in rows if number not in known]
        return [
            _trial(row)
            for number in new
            for row in self._rows(f"SELECT {_COLUMNS} FROM trial WHERE id = ?", number)
        ]

    def abandoned(self, study: Study, code: str) -> list[dict[str, Value]]:
        """Variants whose tuner died while they ran."""
        now = time.time()
        rows = self._rows(
            "SELECT knobs, owner, beat FROM trial WHERE study = ? AND code = ? "
            "AND state = 'running' ORDER BY id",
            study.id, code,
        )  # fmt: skip
        return [json.loads(knobs) for knobs, owner, beat in rows if dead(owner, beat, now)]

    def pending(self, study: Study, code: str) -> int:
        """Trials that were begun and not finished, whoever has them."""
        ((count,),) = self._rows(
            "SELECT count(*) FROM trial WHERE study = ? AND code = ? AND state = 'running'",
            study.id, code,
        )  # fmt: skip
        return int(count)

    def running(self, study: Study) -> int:
        """Trials that somebody is at."""
        now = time.time()
        rows = self._rows(
            "SELECT owner, beat FROM trial WHERE study = ? AND state = 'running'", study.id
        )
        return sum(not dead(owner, beat, now) for owner, beat in rows)

    def winner(self, study: Study) -> Trial | None:
        """The confirmed variant of the least cost, of the newest code that has one."""
        confirmed = [trial for trial in self.trials(study) if trial.confirmed == "yes"]
        costed = [trial for trial in confirmed if trial.cost is not None]
        if not costed:
            return None
        newest = max(costed, key=lambda trial: trial.finished).code
        return best_of([trial for trial in costed if trial.code == newest])


def best_of(trials: list[Trial]) -> Trial | None:
    """The least cost; of equals, the first."""
    costed = [(trial.cost, trial.id, trial) for trial in trials if trial.cost is not None]
    return min(costed, key=lambda one: one[:2])[2] if costed else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _trial(row: tuple[Any, ...]) -> Trial:
    number, knobs, code, outcome, finished, confirmed = row
    decoded = msgspec.json.decode(outcome, type=Outcome)
    return Trial(number, json.loads(knobs), code, decoded, finished, confirmed or "")
