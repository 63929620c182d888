"""Whether two revisions make the same code of a fixed list of problems.

    compare_code.py --base REV [--every N --first K] [--jobs 2] [-o out/same_code] [--keep]

`make same-code BASE=REV` runs it. gfx950: `.text`, descriptor and arguments; PTX: the text without
names and comments, and the machine code of 20 cubins; all: proved pairs, grid, resources. The
base's snapshot is kept by its commit. Exit code 4: a difference that wanted.toml does not have.
`--keep` writes the base's digests to base.jsonl, which tests compare samples with.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from code_differences import Difference, differences, read_snapshot, wanted  # noqa: E402
from kept_base import write_base  # noqa: E402

FORMS = HERE / "forms.txt"
CUBINS = 20


def listed(every: int = 1, first: int = 0) -> list[str]:
    """Forms of the fixed list, each `every`th of them."""
    lines = [x for x in FORMS.read_text().splitlines() if x and not x.startswith("#")]
    return lines[first % every :: every]


def snapshots(checkout: Path, forms: list[str], output: Path, jobs: int) -> list[Path]:
    """Snapshots of the forms as `checkout` builds them, a file a job."""
    output.mkdir(parents=True, exist_ok=True)
    todo = output / "forms.txt"
    todo.write_text("\n".join(forms))
    environ = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    made = [output / f"{n}.jsonl" for n in range(jobs)]
    running = [
        subprocess.Popen(
            [sys.executable, HERE / "code_snapshot.py", todo, "-o", path, "--shard", f"{n}/{jobs}"],
            cwd=checkout, env=environ,
        )
        for n, path in enumerate(made)
    ]  # fmt: skip
    if failed := [one.args for one in running if one.wait()]:
        raise SystemExit(f"{len(failed)} of {jobs} snapshots of {checkout} ended with an error")
    return made


def of_base(commit: str, forms: list[str], output: Path, jobs: int) -> list[Path]:
    """Snapshots of another commit, in a checkout of its own."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "base"
        _git("worktree", "add", "--quiet", "--detach", str(checkout), commit)
        try:
            _linked(checkout)
            return snapshots(checkout, forms, output, jobs)
        finally:
            _git("worktree", "remove", "--force", str(checkout))


def _linked(checkout: Path) -> None:
    """Schedules and templates lie in the package, as an installation has them."""
    for name in ("schedules", "templates"):
        (checkout / "mlagen" / name).symlink_to(f"../{name}", target_is_directory=True)


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def snapshot_of_base(commit: str, forms: list[str], output: Path, jobs: int) -> dict[str, Any]:
    """Of another commit, by form: what is kept of it, and the rest of the forms as it builds
    them."""
    kept = output / commit
    old = read_snapshot(*kept.glob("*.jsonl")) if kept.is_dir() else {}
    if missing := [form for form in forms if form not in old]:
        made = of_base(commit, missing, output / f"{commit}.new", jobs)
        old |= read_snapshot(*made)
        kept.mkdir(parents=True, exist_ok=True)
        for path in made:
            path.rename(kept / f"{time.time_ns()}_{path.name}")
    return old


def compared(base: str, forms: list[str], output: Path, jobs: int) -> list[Difference]:
    commit = _git("rev-parse", "--verify", f"{base}^{{commit}}")
    old = snapshot_of_base(commit, forms, output, jobs)
    with tempfile.TemporaryDirectory() as folder:
        new = read_snapshot(*snapshots(ROOT, forms, Path(folder), jobs))
    nvidia = [form for form in forms if new[form].get("sass")]
    sass = frozenset(nvidia[:: max(1, len(nvidia) // CUBINS)])
    return differences({form: old[form] for form in forms}, new, sass)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", required=True, metavar="REV")
    parser.add_argument("--every", type=int, default=1, help="one of so many forms")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/same_code"))
    parser.add_argument("--keep", action="store_true", help="write base.jsonl, compare nothing")
    given = parser.parse_args()
    started = time.monotonic()
    forms = listed(given.every, given.first)
    if given.keep:
        commit = _git("rev-parse", "--verify", f"{given.base}^{{commit}}")
        old = snapshot_of_base(commit, forms, given.output.resolve(), given.jobs)
        write_base(commit, [old[form] for form in forms])
        return 0
    found = compared(given.base, forms, given.output.resolve(), given.jobs)
    left, idle = wanted(HERE / "wanted.toml", found)
    for one in left:
        print(f"{one.form}\n  {one.kind}: {one.told}")
    for reason in idle if given.every == 1 else ():
        print(f"wanted.toml has a row that nothing fits: {reason}")
    took = time.monotonic() - started
    print(f"{len(forms)} forms, {len(found)} differences, {len(left)} not wanted; {took:.0f} s")
    return 4 if left else 0


if __name__ == "__main__":
    sys.exit(main())
