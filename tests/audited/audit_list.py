"""Audits the kernels of kernels.toml: fetches or compiles each, runs `mlagen audit`, tells a row.

    python tests/audited/audit_list.py                all that can be had, into out/audited
    python tests/audited/audit_list.py fa3 aiter/mla  kernels with that in name or family
    python tests/audited/audit_list.py --ours         those that need no other repository
    python tests/audited/audit_list.py --page PAGE.md rows of a page's table, too
    python tests/audited/audit_list.py --pin          hashes of what was made, into the list

It ends with 1 when an audit found an error of a rule that the list does not judge, ended without
a verdict, or read a file of another hash than the list's; else with 0. What cannot be had is told,
and counts for nothing. Rows of a page that were not measured now stay; each names its commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from fetching import NotFetchedError
from listed import LIST, Listed, Listing, read_list
from making import Made, make

ROOT = Path(__file__).parents[2]
MOST = 60.0  # seconds of CPU that an audit may take, told or not what it leaves out
_WALL = 30 * 60.0  # seconds after which a process is held to hang, on a machine however busy
_BEGIN, _END = "<!-- list: begin -->", "<!-- list: end -->"
_HEAD = (
    "| kernel | target | errors | unproved | by the letter | unchecked | followed | CPU s | at |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Row:
    """What an audit said. `rules`: of its errors; `followed`: paths of PTX, or `all` and `part` of
    a code object; `code`: the exit code; `wrong`: why the row fails, "" where it does not; `at`:
    the commit that audited."""

    name: str
    family: str
    target: str
    errors: int = 0
    unproved: int = 0
    letter: int = 0
    unchecked: int = 0
    followed: str = ""
    seconds: float = 0.0
    rules: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    code: int = 0
    sha256: str = ""
    wrong: str = ""
    missing: str = ""
    at: str = ""

    def line(self) -> str:
        """Of the table."""
        if self.missing:
            return (
                f"| {self.name} | {self.target} | not had: {self.missing} | | | | | | {self.at} |"
            )
        return (
            f"| {self.name} | {self.target} | {self.errors} | {self.unproved} | {self.letter}"
            f" | {self.unchecked} | {self.followed} | {self.seconds:.1f} | {self.at} |"
        )

    @classmethod
    def told(cls, line: str) -> Row:
        """What a line of the table tells."""
        cells = line.strip("| \n").split(" | ")
        if len(cells) != 9:
            raise ValueError(f"no row of an audit: {line}")
        errors, unproved, letter, unchecked = map(int, cells[2:6])
        return cls(cells[0], "", cells[1], errors, unproved, letter, unchecked, cells[6],
                   float(cells[7]), at=cells[8])  # fmt: skip


def audit(kernel: Listed, made: Made) -> Row:
    """Runs the command on a file as anybody does, and reads its report."""
    command = [sys.executable, "-m", "mlagen", "audit", str(made.path), "--json", *made.options]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
        code, seconds = _waited(process)
        out.seek(0)
        err.seek(0)
        report, said = out.read().decode(), err.read().decode(errors="replace")
    row = Row(kernel.name, kernel.family, kernel.target, seconds=round(seconds, 1), code=code,
              sha256=made.sha256, at=commit())  # fmt: skip
    if code not in (0, 4, 6) or not report.strip():
        why = "hung" if code == -signal.SIGKILL else f"exit code {code}"
        return _with(row, wrong=f"no verdict: {why}: {said.strip()[-200:]}")
    told = _code_object if made.path.suffix == ".co" else _ptx
    return _judged(kernel, _with(row, **told(report)))


def _waited(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """The exit code of a process, killed after _WALL seconds, and its CPU seconds."""
    until = time.monotonic() + _WALL
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        if time.monotonic() > until:
            process.kill()
        time.sleep(0.05)


def _ptx(report: str) -> dict[str, object]:
    entries = json.loads(report)["entries"]
    paths = [0 if one["unfollowed"] else one["facts"].get("paths", 0) for one in entries]
    idle = [one["unfollowed"] for one in entries if one["unfollowed"]]
    return {
        **_counted([finding for one in entries for finding in one["findings"]]),
        "unchecked": sum(len(one["unchecked"]) for one in entries),
        "left_out": tuple(gap for one in entries for gap in one["unchecked"]) + tuple(idle),
        "followed": f"{min(paths, default=0)} paths",
    }


def _code_object(report: str) -> dict[str, object]:
    lines = [json.loads(line) for line in report.splitlines()]
    kernels = [line for line in lines if line["type"] == "kernel"]
    left = tuple(gap for one in kernels for gap in one["unchecked"])
    return {
        **_counted([line for line in lines if line["type"] == "finding"]),
        "unchecked": len(left),
        "left_out": left,
        "followed": "part" if left else "all",
    }


def _counted(findings: list[dict[str, str]]) -> dict[str, object]:
    numbers = Counter(finding["severity"] for finding in findings)
    rules = {finding["rule"] for finding in findings if finding["severity"] == "error"}
    return {
        "errors": numbers["error"],
        "unproved": numbers["unproved"],
        "letter": numbers["letter"],
        "rules": tuple(sorted(rules)),
    }


def _judged(kernel: Listed, row: Row) -> Row:
    """With what makes it fail."""
    wrong = []
    known = {*kernel.judged, *kernel.false}
    if new := sorted(set(row.rules) - known):
        wrong.append(f"errors that nobody judged: {', '.join(new)}")
    # An audit that ends after so many seconds tells what it came to, on a slow machine less.
    if row.unchecked == 0 and (gone := sorted(known - set(row.rules))):
        wrong.append(f"judged, and no error now: {', '.join(gone)}")
    if row.followed == "0 paths" and row.code == 0:
        wrong.append("no path followed, and exit code 0")
    if row.seconds > MOST and not row.unchecked:
        wrong.append(f"{row.seconds} s, and nothing is said to be left out")
    if kernel.sha256 and row.sha256 != kernel.sha256:
        wrong.append(f"another file than the list's: {row.sha256}")
    gaps = row.unproved + row.unchecked
    if kernel.kind == "ours" and bool(gaps) != bool(kernel.reason):
        wrong.append("nothing is left out now" if kernel.reason else f"{gaps} left out, no reason")
    return _with(row, wrong="; ".join(wrong))


def _with(row: Row, **told: object) -> Row:
    return Row(**{**asdict(row), **told})  # type: ignore[arg-type]


def row_of(kernel: Listed, listing: Listing, cache: Path) -> Row:
    """Makes a kernel and audits it."""
    try:
        made = make(kernel, listing, cache)
    except NotFetchedError as error:
        return Row(kernel.name, kernel.family, kernel.target, missing=str(error))
    return audit(kernel, made)


def summary(rows: Iterable[Row]) -> str:
    """Totals of what was audited."""
    had = [row for row in rows if not row.missing]
    seconds = sorted(row.seconds for row in had)
    if not had:
        return "no kernel was had"
    return (
        f"{len(had)} kernels: {sum(row.errors for row in had)} errors in"
        f" {sum(row.errors > 0 for row in had)}, {sum(row.unproved for row in had)} unproved,"
        f" {sum(row.unchecked for row in had)} unchecked;"
        f" median {median(seconds):.1f} s, most {seconds[-1]:.1f} s of CPU"
    )


def commit() -> str:
    """Of this repository, `+` behind it where something that audits was changed since."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "mlagen"], capture_output=True)
    return head.stdout.strip() + "+" * (same.returncode != 0) if not head.returncode else "none"


def machine() -> str:
    """What was measured on, and what else it did: the load average of the last 15 minutes."""
    return (
        f"{datetime.now(UTC).date().isoformat()}, {os.cpu_count()} cores, {platform.machine()},"
        f" Python {platform.python_version()}, load average {os.getloadavg()[2]:.1f}"
    )


def write_page(page: Path, rows: Iterable[Row], listed: Iterable[Listed], told: str) -> None:
    """Puts rows into the table between the marks of a page, in the list's order. Rows that were
    not measured or not had now stay as they are, with the line that says of their commit what it
    was measured on. `told`: that of these rows' commit."""
    text = page.read_text()
    before, begin, rest = text.partition(_BEGIN)
    old, end, after = rest.partition(_END)
    if not (begin and end):
        raise SystemExit(f"{page}: no {_BEGIN} … {_END}")
    had = [row for row in rows if not row.missing]
    by_name = {row.name: row for row in (*_rows(old), *had)}
    kept = [by_name[one.name] for one in listed if one.name in by_name]
    lines = dict(re.findall(r"^\* (\w+\+?): (.*)$", old, re.M))
    lines |= dict.fromkeys((row.at for row in had), told)
    used = {row.at for row in kept}
    said = "".join(f"* {at}: {line}\n" for at, line in lines.items() if at in used)
    body = _HEAD + "\n".join(row.line() for row in kept)
    page.write_text(f"{before}{_BEGIN}\n{summary(kept)}.\n\n{said}\n{body}\n{_END}{after}")


def _rows(table: str) -> list[Row]:
    return [Row.told(line) for line in table.splitlines() if re.match(r"\| \S+ \| (sm|gfx)", line)]


def pin(rows: Iterable[Row], kernels: Iterable[Listed]) -> None:
    """Writes hashes of foreign kernels into the list, below their names."""
    ours = {kernel.name for kernel in kernels if kernel.from_pypi}
    text = LIST.read_text()
    for row in rows:
        if row.sha256 and row.name not in ours:
            name = re.escape(f'name = "{row.name}"\n')
            text = re.sub(rf'({name})(?:sha256 = "\w*"\n)?', rf'\1sha256 = "{row.sha256}"\n', text)
    LIST.write_text(text)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="of names or families; all without any")
    parser.add_argument("--cache", type=Path, default=ROOT / "out" / "audited")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ours", action="store_true", help="only what needs no other repository")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--pin", action="store_true")
    asked = parser.parse_args()
    listing, cache = read_list(), asked.cache.resolve()
    kernels = [one for one in listing.named(tuple(asked.parts)) if one.from_pypi or not asked.ours]
    if not kernels:
        raise SystemExit(f"no kernel of the list is called {', '.join(asked.parts)}")
    cache.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda kernel: row_of(kernel, listing, cache), kernels):
            print(row.line() + (f" {row.wrong}" if row.wrong else ""), flush=True)
            rows.append(row)
    (cache / "rows.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(summary(rows))
    if asked.pin:
        pin(rows, kernels)
    if asked.page:
        write_page(asked.page, rows, listing.kernels, machine())
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
