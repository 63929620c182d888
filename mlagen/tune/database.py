"""The file that trials are kept in: SQLite on a local disk, opened with care.

A file that is damaged, of another program or of a newer mlagen is never written to; nor is one
whose tables are not these, which might make SQLite run what somebody put there (views, triggers).
What the disk refuses is refused as a whole: SQLite's journal brings back the state before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mlagen.errors import MissingError

VERSION = 2
_APPLICATION = 0x6D6C7475  # "mltu", in the file's header
_MAGIC, _PLACE = b"SQLite format 3\0", 68  # a file's first bytes; where that number is in it
_PATIENCE = 30.0  # seconds that a writer waits for another one
_LARGEST = 16 << 20  # bytes of a cell
_ELSEWHERE = "name another file: --store FILE"
_TABLES = """
CREATE TABLE study (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    question TEXT NOT NULL,
    reference TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    study INTEGER NOT NULL REFERENCES study(id),
    knobs TEXT NOT NULL,
    code TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done')),
    verdict TEXT,
    cost REAL,
    outcome TEXT,
    owner TEXT NOT NULL,
    beat REAL NOT NULL,
    finished REAL,
    confirmed TEXT,
    UNIQUE (study, knobs, code)
);
CREATE INDEX trial_cost ON trial (study, code, verdict, cost);
"""
_STATEMENTS = tuple(statement.strip() for statement in _TABLES.split(";") if statement.strip())


class StoreError(MissingError):
    """The store of tuning results cannot be used. What it holds was not touched."""


def open_database(path: Path) -> sqlite3.Connection:
    """A connection to the store at `path`, made where there is none. StoreError."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise StoreError(f"{path} is no file", hint=_ELSEWHERE)
        if path.exists() and path.stat().st_size:
            _check(path)
        database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None,
                                   check_same_thread=False)  # fmt: skip
        try:
            _restrain(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA foreign_keys = ON")
            _create(database)
        except BaseException:
            database.close()
            raise
        return database


def is_store(path: Path) -> bool:
    """Whether a file is a store of ours, of any version, or one that nothing was written into."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_PLACE + 4)
    if not head or head[_PLACE:] == _APPLICATION.to_bytes(4, "big"):
        return not head or head.startswith(_MAGIC)
    log = path.with_name(f"{path.name}-wal")
    if not head.startswith(_MAGIC) or not log.is_file() or not log.stat().st_size:
        return False
    try:  # what a killed process wrote is still in the log
        with closing(_read_only(path)) as database:
            (application,) = database.execute("PRAGMA application_id").fetchone()
            return bool(application == _APPLICATION)
    except sqlite3.Error:
        return False


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)


def _check(path: Path) -> None:
    """Before anything is written."""
    database = _read_only(path)
    try:
        _restrain(database)
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != _APPLICATION:
            raise StoreError(f"{path} is a database of another program", hint=_ELSEWHERE)
        if version > VERSION:
            raise StoreError(
                f"{path} was made by a newer mlagen (format {version}; this one knows {VERSION})",
                hint="use that mlagen, or another file: --store FILE",
            )
        if tables and version < VERSION:
            raise StoreError(
                f"{path} was made by an older mlagen (format {version}; this one knows {VERSION})",
                hint=f"its trials are of other code: tune again, in a new file (mv {path} "
                f"{path}.{version}, or --store FILE)",
            )
        made = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master") if sql}
        if tables and made != set(_STATEMENTS):
            raise StoreError(f"{path} has other tables than a store of mlagen", hint=_ELSEWHERE)
        (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise StoreError(f"{path} is damaged: {state}", hint=_aside(path))
    finally:
        database.close()


def _restrain(database: sqlite3.Connection) -> None:
    """What a file cannot make SQLite do: call functions from its schema, hold large cells, hand out
    text that is none."""
    database.execute("PRAGMA trusted_schema = OFF")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
    database.text_factory = lambda data: data.decode(errors="replace")


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _STATEMENTS:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as one that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise StoreError(
                f"{path} cannot be written: {error}; the trials in it are as they were",
                hint="make room on its disk and tune again: it goes on where it stopped",
            ) from None
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreError(f"{path} is damaged: {error}", hint=_aside(path)) from None
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreError(
                f"{path} has been locked by another process for {_PATIENCE:.0f} s",
                hint="a store lies on a local disk, and is written for moments only",
            ) from None
        raise StoreError(f"{path}: {error}", hint=_ELSEWHERE) from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}", hint=_ELSEWHERE) from None


def _aside(path: Path) -> str:
    return f"move it away (mv {path} {path}.damaged): tuning begins a new one"
