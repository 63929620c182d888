"""Attacks 97 to 117: kills, several at once, full and read-only places, odd environments and names,
damaged caches, evil modules in the current folder. Each is a process of its own."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from scale_kernel import write_case
from small_kernel import make

from mlagen.artifact import read_artifact, write_artifact

ROOT = Path(__file__).resolve().parents[2]
BUILD = ("build", "mla_prefill_reduce", "--set", "num_heads=4")
GEMM = str(ROOT / "examples" / "gemm_bf16.py")
MLAGEN = ("-P", "-m", "mlagen")
WAIT = 300  # seconds; a machine may be busy


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with an artifact, a code object, and places of its own for all that is kept."""
    folder = tmp_path / "here"
    (folder / "tmp").mkdir(parents=True)
    write_artifact(make(), folder / "art")
    write_case(folder)
    return folder


def environment(here: Path, **changes: str | None) -> dict[str, str]:
    own = {
        "MLAGEN_CACHE_DIR": f"{here}/cache",
        "TMPDIR": f"{here}/tmp",
        "MLAGEN_TUNING": f"{here}/t",
    }
    found: dict[str, str | None] = {**os.environ, **own, **changes}
    return {name: value for name, value in found.items() if value is not None}


STREAMS = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}


def start(here: Path, arguments: Sequence[str], *, python: Sequence[str] = MLAGEN, **changes):
    """A process; keyword arguments in capitals are of its environment, others of Popen."""
    names = {name: value for name, value in changes.items() if name.isupper()}
    more = {name: value for name, value in changes.items() if not name.isupper()}
    return subprocess.Popen(
        [sys.executable, *python, *arguments], cwd=here, env=environment(here, **names),
        **STREAMS | more,
    )  # fmt: skip


def called(here: Path, *arguments: str, **changes) -> tuple[int, str]:
    """Exit code and all that was said: no traceback, no defect."""
    process = start(here, arguments, **changes)
    out, err = process.communicate(timeout=WAIT)
    text = ((out or b"") + (err or b"")).decode(errors="replace")
    assert "Traceback" not in text and "a defect of mlagen" not in text, text[-3000:]
    if "simulate" in arguments and "has no loop of" in text:
        return 0, text  # all of the model has run: the small kernel here walks no tiles
    return process.returncode, text


# ---- 97 to 101: several at once, kills ----------------------------------------------------------


def test_97_builds_into_one_folder_at_once(here: Path) -> None:
    heads = ("4", "8", "16")
    for _ in range(2):
        running = [start(here, [*BUILD[:-1], f"num_heads={n}", "-o", "same"]) for n in heads]
        for process in running:
            process.communicate(timeout=WAIT)
        codes = [process.returncode for process in running]
        assert set(codes) <= {0, 5}
        read_artifact(here / "same")  # whole


def test_98_equal_builds_into_the_store(here: Path) -> None:
    running = [start(here, BUILD) for _ in range(4)]
    assert [process.wait(WAIT) for process in running] == [0] * 4
    (manifest,) = (here / "cache").rglob("manifest.json")
    read_artifact(manifest.parent)


@pytest.mark.parametrize("moment", range(35))
def test_99_a_build_is_killed(here: Path, moment: int) -> None:
    """10 moments into a new folder, 25 over an artifact."""
    out = here / "k"
    if moment >= 10:
        assert called(here, *BUILD, "-o", "k")[0] == 0
        before = read_artifact(out)
    process = start(here, [*BUILD[:-1], "num_heads=8", "-o", "k"])
    time.sleep(random.Random(moment).uniform(0.3, 2.5))
    process.kill()
    process.communicate()
    if moment >= 10:
        found = read_artifact(out)
        assert found.key == before.key or found.manifest.problem["num_heads"] == 8
    assert called(here, *BUILD, "-o", "k")[0] == 0
    assert read_artifact(out).manifest.problem["num_heads"] == 4
    for folder in (here / "tmp").iterdir():  # what the kill left is as old as that
        os.utime(folder, (0, 0))
    assert called(here, *BUILD, "-o", "k")[0] == 0
    assert list((here / "tmp").iterdir()) == []


slow = pytest.mark.skipif(
    "MLAGEN_ACCEPTANCE" not in os.environ, reason="takes half a minute; MLAGEN_ACCEPTANCE=1 runs it"
)


@slow
@pytest.mark.parametrize("delay", [1.0, 2.5, 4.0, 6.0, 8.0, 10.0])
def test_100_an_emulator_is_killed_while_it_compiles(here: Path, delay: float) -> None:
    code = ("emulate", "k.co", "--launch", "launch.toml")
    process = start(here, code, NUMBA_CACHE_DIR=f"{here}/numba")
    time.sleep(delay)
    process.kill()
    process.communicate()
    (here / "y.npy").unlink(missing_ok=True)
    assert called(here, *code, NUMBA_CACHE_DIR=f"{here}/numba")[0] == 0


TUNE = ("tune", GEMM, "--target", "gfx950", "--shape", "m=64", "--shape", "n=64", "--shape", "k=64",
        "--trials", "2", "--jobs", "1")  # fmt: skip


@slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_101_a_search_is_ended(here: Path, number: signal.Signals) -> None:
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    asked = [*TUNE[:-4], "--trials", "50", "--jobs", "1"]
    process = start(here, asked, start_new_session=True, preexec_fn=heard)
    time.sleep(8)
    process.send_signal(number)
    process.communicate(timeout=60)
    until = time.monotonic() + 20
    while _of_session(process.pid) and time.monotonic() < until:
        time.sleep(0.2)
    assert not _of_session(process.pid), "processes outlive the search"
    assert called(here, *TUNE)[0] == 0  # goes on


def _of_session(leader: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(stat.parent.name)
    return found


# ---- 102 to 104: full, read-only ----------------------------------------------------------------


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


@pytest.mark.parametrize("command", ["build", "inspect", "emulate"])
def test_102_no_room(here: Path, command: str) -> None:
    if command == "build":
        assert called(here, *BUILD, "-o", "k")[0] == 0
    before = {p.name: p.read_bytes() for p in (here / "k").glob("*")}
    asked = {
        "build": (*BUILD[:-1], "num_heads=8", "-o", "k"),
        "inspect": ("inspect", "art", "--html", "page.html"),
        "emulate": ("emulate", "k.co", "--launch", "launch.toml", "--out", "deep/er"),
    }[command]
    code, said = called(here, *asked, preexec_fn=_small_files, NUMBA_CACHE_DIR=None)
    assert code in ((0, 5) if command == "emulate" else (5,)) and (
        code == 0 or "File too large" in said
    )
    assert {p.name: p.read_bytes() for p in (here / "k").glob("*")} == before
    assert not (here / "page.html").exists() and not list(here.rglob(".mlagen.*"))


@pytest.mark.parametrize(
    "out", ["/proc/k", "/dev/full", "/dev/null/k", "art/kernel.co", "", "-", "/"]
)
def test_103_places_that_take_nothing(here: Path, out: str) -> None:
    code, said = called(here, *BUILD, "-o", out)
    if out == "-":  # a folder of that name
        assert code == 0 and (here / "-").is_dir()
        return
    if out == "/":
        for name in ("kernel.co", "kernel.s", "manifest.json"):
            Path("/", name).unlink(missing_ok=True)
        assert code in (0, 5)
        return
    assert code in (2, 5) and "error: " in said


UNWRITABLE = """
import sys
import numba.core.caching as caching
def refused(self):
    raise OSError("read-only")
for name in dir(caching):
    kind = getattr(caching, name)
    if isinstance(kind, type) and issubclass(kind, caching._CacheLocator):
        kind.ensure_cache_path = refused
from mlagen.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "command",
    [("cache",), ("cache", "--clean"), ("simulate", "k.co", "--launch", "launch.toml", "--no-grid"),
     ("emulate", "k.co", "--launch", "launch.toml")],
    ids=lambda command: " ".join(command[:2]),
)  # fmt: skip
def test_104_neither_home_nor_packages_can_be_written(here: Path, command: tuple[str, ...]) -> None:
    code, said = called(here, *command, python=("-P", "-c", UNWRITABLE))
    assert code == 0, said
    assert said.count("NUMBA_CACHE_DIR") >= 1
    if command[0] != "cache":
        assert said.count("each run compiles again") == 1


# ---- 105 to 112: environments, streams, names ---------------------------------------------------

ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "no HOME": {"HOME": None, "MLAGEN_CACHE_DIR": None},
    "HOME is nowhere": {"HOME": "/nonexistent", "MLAGEN_CACHE_DIR": None, "XDG_CACHE_HOME": None},
    "HOME is empty": {"HOME": "", "MLAGEN_CACHE_DIR": None, "XDG_CACHE_HOME": None},
    "HOME is relative": {"HOME": "rel", "MLAGEN_CACHE_DIR": None, "XDG_CACHE_HOME": None},
    "XDG is relative": {"XDG_CACHE_HOME": "rel", "MLAGEN_CACHE_DIR": None},
    "LC_ALL=C": {"LC_ALL": "C"},
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "no UTF-8": {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
    "COLUMNS=0": {"COLUMNS": "0"},
    "COLUMNS=5": {"COLUMNS": "5"},
    "COLUMNS=abc": {"COLUMNS": "abc"},
    "TERM=dumb": {"TERM": "dumb"},
    "PYTHONOPTIMIZE=2": {"PYTHONOPTIMIZE": "2"},
    "no PATH": {"PATH": ""},
    "TMPDIR is nowhere": {"TMPDIR": "/nonexistent"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_105_environments(here: Path, name: str) -> None:
    changes = ENVIRONMENTS[name]
    if changes.get("HOME", "x") in (None, "/nonexistent", "") and "MLAGEN_CACHE_DIR" in changes:
        for command in (("list",), ("inspect", "art"), (*BUILD, "-o", "k")):
            assert called(here, *command, **changes)[0] == 0
        return
    for command in (BUILD, ("inspect", "art"), ("cache",), ("nothing",)):
        code, said = called(here, *command, **changes)
        assert code == (2 if command == ("nothing",) else 0), said


@pytest.mark.parametrize(
    "python",
    [("-I", "-m", "mlagen"), ("-W", "error", "-P", "-m", "mlagen"),
     ("-bb", "-X", "dev", "-P", "-m", "mlagen"), ("-OO", "-P", "-m", "mlagen")],
    ids=" ".join,
)  # fmt: skip
def test_110_interpreters(here: Path, python: tuple[str, ...]) -> None:
    for command in (("list",), (*BUILD, "-o", "k"), ("audit", "art")):
        code, said = called(here, *command, python=python)
        assert code == 0 and "Warning" not in said, said


@pytest.mark.parametrize("now", [31_536_000, 4_070_908_800])
def test_111_clocks(here: Path, now: int) -> None:
    """1971 and 2099."""
    clock = f"import time; time.time = lambda: {now}.0; import runpy; "
    clock += "runpy.run_module('mlagen', run_name='__main__')"
    for command in (
        (*BUILD, "-o", "k"),
        BUILD,
        ("list", "--built"),
        ("cache", "--clean", "kernels"),
    ):
        assert called(here, *command, python=("-P", "-c", clock))[0] == 0


@pytest.mark.parametrize(
    "shell", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "| head -1", "| true", "> /dev/full"]
)
def test_108_streams(here: Path, shell: str) -> None:
    line = f"'{sys.executable}' -P -m mlagen list {shell}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=here, env=environment(here), capture_output=True, timeout=WAIT
    )
    assert done.returncode in (0, 5) and b"Traceback" not in done.stderr + done.stdout


NAMES = ["a blank", "ümläut", "中文", "new\nline", "\udcff\udcfe", "-dash", "x" * 200, "a'b\"c$`"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_112_names(here: Path, name: str, more: tuple[str, ...]) -> None:
    shutil.copytree(ROOT / "examples" / "gemm", here / "gemm")
    shutil.copytree(ROOT / "examples" / "templates", here / "templates")
    shutil.copy(GEMM, here / f"{name}.py")
    folder = f"./{name}"
    assert called(here, *BUILD, "-o", folder, *more)[0] == 0
    assert called(here, "inspect", folder, *more)[0] == 0
    built = called(here, "build", f"./{name}.py", "--target", "gfx950", "-o", f"{folder}/k", *more)
    assert built[0] in (0, 2), built[1]
    assert called(here, "cache", *more, MLAGEN_CACHE_DIR=f"{here}/{name}")[0] == 0


def test_112_a_path_of_6000_characters(here: Path) -> None:
    for command in (("inspect", "./" + "x" * 6000), (*BUILD, "-o", "x" * 6000)):
        code, said = called(here, *command)
        assert code == 5 and ("File name too long" in said or "nothing at" in said)


# ---- 113 to 117: caches, stores, evil modules ---------------------------------------------------

DAMAGE: dict[str, Callable[[Path], object]] = {
    "an empty index": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "flipped": lambda file: file.write_bytes(bytes(b ^ 0x55 for b in file.read_bytes())),
    "random": lambda file: file.write_bytes(random.Random(1).randbytes(5000)),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a link to nothing": lambda file: (file.unlink(), file.symlink_to("nothing")),
    "of the future": lambda file: os.utime(file, (4e9, 4e9)),
}


@slow
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("end", [".nbi", ".nbc"])
def test_113_kept_code_is_damaged(here: Path, damage: str, end: str) -> None:
    asked = ("simulate", "k.co", "--launch", "launch.toml", "--no-grid")
    numba = here / "numba"
    assert called(here, *asked, NUMBA_CACHE_DIR=str(numba))[0] == 0
    for file in [*numba.rglob(f"*{end}")]:
        DAMAGE[damage](file)
    assert called(here, *asked, NUMBA_CACHE_DIR=str(numba))[0] == 0
    assert called(here, "cache", "--clean", "model", NUMBA_CACHE_DIR=str(numba))[0] == 0


@slow
@pytest.mark.parametrize("place", ["/proc", "/dev/null", "launch.toml"])
def test_113_a_cache_in_an_odd_place(here: Path, place: str) -> None:
    for command in (
        ("cache",),
        ("cache", "--clean"),
        ("simulate", "k.co", "--launch", "launch.toml", "--no-grid"),
    ):
        assert called(here, *command, NUMBA_CACHE_DIR=place)[0] == 0


STORES: dict[str, Callable[[Path], object]] = {
    "5 kB random": lambda path: path.write_bytes(random.Random(2).randbytes(5000)),
    "cut": lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(50)),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "of 1 TB": lambda path: path.touch() or os.truncate(path, 1 << 40),
}


@pytest.mark.parametrize("kind", STORES)
def test_114_a_store_of_tuning_results(here: Path, kind: str) -> None:
    STORES[kind](here / "t")
    for command in (("tune", "show"), ("cache",), ("cache", "--clean", "tuning")):
        code, _ = called(here, *command)
        assert code in (0, 5)
    build = "import mlagen; print(mlagen.build('mla_prefill_reduce', num_heads=4).choice)"
    code, said = called(here, build, python=("-P", "-c"))
    assert code == 0 and "default" in said
    assert os.path.lexists(here / "t")


def test_115_artifacts_of_other_versions(here: Path) -> None:
    assert called(here, *BUILD)[0] == 0
    key = "ab" + 62 * "0"
    for number, text in enumerate(('{\n "schema": "mlagen.manifest/4"\n}', "garbage", "")):
        folder = here / "cache" / "artifacts" / "ab" / f"{key[:-1]}{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(text)
    code, said = called(here, "list", "--built")
    assert code == 0 and "mla_prefill_reduce" in said and "of another version" in said
    cleaned = json.loads(called(here, "cache", "--clean", "kernels", "--json")[1])["removed"][0]
    assert cleaned["count"] == 2 and len(cleaned["left"]) == 2


EVIL = ("struct", "pickle", "numpy", "json", "msgspec", "click", "multiprocessing", "runpy", "site",
        "sitecustomize", "numba", "mlagen")  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [("audit", "k.co"), ("inspect", "k.co"), ("doctor",), (*BUILD, "-o", "out"),
     ("emulate", "k.co", "--launch", "launch.toml"), TUNE,
     ("mutate", GEMM, "--target", "gfx950", "--sample", "2"),
     ("simulate", "k.co", "--launch", "launch.toml", "--no-grid"),
     ("tune", GEMM, "--target", "gfx950", "--shape", "m=64", "--shape", "n=64", "--shape", "k=64",
      "--trials", "2", "--local-workers", "1")],
    ids=lambda command: f"{command[0]} {command[-1]}",
)  # fmt: skip
def test_117_modules_of_the_current_folder_are_not_run(
    here: Path, command: tuple[str, ...]
) -> None:
    if "--local-workers" in command:
        pytest.importorskip("distributed")
    for name in EVIL:
        (here / f"{name}.py").write_text("import sys; sys.stderr.write('EXECUTED'); sys.exit(99)\n")
    code, said = called(here, *command)
    assert "EXECUTED" not in said and code in (0, 4), said[-2000:]
