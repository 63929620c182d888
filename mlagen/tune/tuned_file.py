"""Winners as a file to review: what ships with mlagen, and what goes between stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from mlagen.disk import read_file, write_file
from mlagen.errors import ConfigError
from mlagen.tune.space import Value, differing
from mlagen.tune.store import Store, Study, reference_of
from mlagen.tune.values import Positive, Question, TrialOutcome
from mlagen.untrusted import decode_json

SCHEMA = "mlagen.tuned/2"
_SHIPPED = "shipped.json"


class Winner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One winner. `text`: the hash of the kernel's text: what builds to another one is not this
    winner. `reference`: the knobs that it was compared with; `gain`: how many times less it costs.
    `judged`: variants that it was chosen among."""

    question: Question
    knobs: dict[str, Value]
    reference: dict[str, Value]
    text: str
    artifact: str
    cost: Positive
    reference_cost: Positive | None
    judged: int
    versions: dict[str, str]

    @property
    def gain(self) -> float | None:
        return self.reference_cost / self.cost if self.reference_cost else None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    winners: tuple[Winner, ...]


def winner_of(store: Store, study: Study) -> Winner | None:
    """The study's confirmed winner."""
    winner = store.winner(study)
    if winner is None or winner.cost is None:
        return None
    trials = store.trials(study, code=winner.code)
    reference, outcome = reference_of(study, trials), winner.outcome
    return Winner(
        study.question, winner.knobs, study.reference, outcome.text, outcome.artifact,
        winner.cost, reference.cost if reference else None, len(trials), outcome.versions,
    )  # fmt: skip


def read(path: Path) -> tuple[Winner, ...]:
    """The winners in a file. MissingError: it cannot be read; ConfigError: it is no such file."""
    return decode(read_file(path), str(path))


def decode(data: bytes, name: str) -> tuple[Winner, ...]:
    """The winners in a file's bytes."""
    try:
        head = decode_json(data)
        schema = head.get("schema") if isinstance(head, dict) else None
        if schema != SCHEMA:
            raise ConfigError(
                f"{name} has schema {schema!r:.60}, this mlagen knows {SCHEMA!r}",
                hint="mlagen tune export writes such a file",
            )
        winners: tuple[Winner, ...] = decode_json(data, _File).winners
        return winners
    except ValueError as error:
        raise ConfigError(f"{name} is no file of winners: {error}") from None


def shipped() -> tuple[Winner, ...]:
    """The winners that come with mlagen."""
    data = resources.files("mlagen.tune").joinpath(_SHIPPED).read_bytes()
    return decode(data, _SHIPPED)


def write(path: Path, entries: Iterable[Winner]) -> None:
    """Write winners, sorted by what they are of, the file whole or not at all."""
    ordered = sorted(entries, key=lambda entry: (entry.question.name, entry.question.key))
    data = msgspec.json.format(msgspec.json.encode(_File(SCHEMA, tuple(ordered))), indent=1)
    write_file(path, data + b"\n")


def merged(old: Iterable[Winner], new: Iterable[Winner]) -> list[Winner]:
    """`old` with the winners of the same questions replaced."""
    return list({entry.question.key: entry for entry in (*old, *new)}.values())


def keep(store: Store, entry: Winner) -> bool:
    """Put a winner into the store as one. False: it holds that variant, of that code, already."""
    study = store.study(entry.question, entry.reference)
    code = entry.versions.get("code", "")
    number = store.claim(study, entry.knobs, code)
    if number is None:
        return False
    outcome = TrialOutcome("passed", cost=entry.cost, artifact=entry.artifact, text=entry.text,
                           message="imported", versions=entry.versions,
                           device=entry.question.device)  # fmt: skip
    store.finish(number, outcome)
    store.confirm(number, "yes")
    return True


def export_to(store: Store, studies: Sequence[str], path: str) -> list[str]:
    """Write the winners of studies (by key; all, where none is named) beside what the file holds.
    Returns what was done, one line each. ConfigError where there is nothing to write."""
    chosen = [store.find(key) for key in studies] or store.studies()
    entries, lines = [], []
    for study in chosen:
        entry = winner_of(store, study)
        if entry is None:
            lines.append(f"{study.question.key}: no confirmed winner ({study.question.title})")
            continue
        entries.append(entry)
        gain = f"{entry.gain:.4f}x" if entry.gain else "gain unknown"
        lines.append(f"{study.question.key}: {gain}, {differing(entry.knobs, entry.reference)}")
    if not entries:
        raise ConfigError(
            f"{store.path} has no confirmed winner to export",
            hint="mlagen tune KERNEL .. confirms one when it ends",
        )
    target = Path(path)
    write(target, merged(read(target) if target.exists() else (), entries))
    return lines


def import_from(store: Store, path: str) -> list[str]:
    """Put a file's winners into the store. Returns what was done, one line each."""
    return [
        f"{entry.question.key}: {'kept' if keep(store, entry) else 'there already'}, "
        f"{entry.question.title}"
        for entry in read(Path(path))
    ]
