"""`mlagen simulate`: a launch file in, a prediction out; what it refuses."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gfx950_assembler import assemble

_MFMA = "  v_mfma_f32_32x32x16_bf16 v[{r}:{e}], v[52:55], v[56:59], v[{r}:{e}]\n"
_LOOP = (
    "  s_mov_b32 s8, 8\nhead:\n"
    + _MFMA.format(r=0, e=15)
    + _MFMA.format(r=16, e=31)
    + "  s_sub_u32 s8, s8, 1\n  s_cmp_lg_u32 s8, 0\n  s_cbranch_scc1 head\n  s_endpgm\n"
)
_LAUNCH = "grid = [300, 1, 1]\nblock = [256, 1, 1]\n"


@pytest.fixture
def case(tmp_path: Path) -> tuple[Path, Path]:
    code, launch = tmp_path / "k.co", tmp_path / "launch.toml"
    code.write_bytes(assemble(_LOOP))
    launch.write_text(_LAUNCH)
    return code, launch


def test_facts_tables_and_what_was_assumed(mlagen, case: tuple[Path, Path]) -> None:
    done = mlagen("simulate", case[0], "--launch", case[1])
    assert (done.code, done.err) == (0, "")
    for part in ("a tile       32 cycles", "matrix units busy for 100.0%", "roles: one wave",
                 "where waves stood longest", "sensitivity", "mfma_port 16",
                 "300 workgroups (3 simulated)", "us under load",
                 "us: instruction issue at 2.40 GHz, ", "2.40 GHz, the maximum, at", "of 1400 W",
                 "assumed: 3 of 300 workgroups"):  # fmt: skip
        assert part in done.out, part


def test_as_json(mlagen, case: tuple[Path, Path]) -> None:
    done = mlagen("simulate", case[0], "--launch", case[1], "--json", "--workgroups", "7,0,0",
                  "--constant", "exp=16", "--constant", "power_limit=400", "--no-grid")  # fmt: skip
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.simulate/2"
    assert report["estimate"]["simulated"] == 1 and report["corners"] == []
    assert report["constants"]["exp"] == 16
    assert report["roles"][0]["cycles"] == 32.0
    e = report["estimate"]
    assert e["clock"] < 2.4 and e["bound_seconds"] < e["seconds"]["value"]
    assert e["bound_tflops"] > e["tflops"]["value"] and e["watts"] == pytest.approx(400)


def test_two_of_them(mlagen, case: tuple[Path, Path], tmp_path: Path) -> None:
    slower = tmp_path / "slower.co"
    slower.write_bytes(assemble(_LOOP.replace("s8, 8\n", "s8, 800\n")))
    done = mlagen("simulate", case[0], "--launch", case[1], "--against", slower)
    assert done.code == 0
    assert "counts  in every plausible corner, by more than the error of ratios" in done.out


def test_page_and_trace(mlagen, case: tuple[Path, Path], tmp_path: Path) -> None:
    page, trace = tmp_path / "t.html", tmp_path / "t.json"
    done = mlagen("simulate", case[0], "--launch", case[1], "--no-grid", "--timeline", page,
                  "--trace", trace)  # fmt: skip
    assert done.code == 0 and f"trace: {trace}" in done.out
    assert page.stat().st_size > 3000 and json.loads(trace.read_text())["traceEvents"]


def test_the_constants_with_their_sources(mlagen) -> None:
    done = mlagen("simulate", "--constants")
    assert done.code == 0 and "dependent f32 FMA chain" in done.out
    listed = json.loads(mlagen("simulate", "--constants", "--json").out)
    assert {c["name"] for c in listed["constants"]} >= {"exp", "power_limit", "e_bf16", "lds_bytes"}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "nothing to simulate"),
        (("CODE",), 2, "--launch is missing"),
        (("CODE", "--launch", "LAUNCH", "--shape", "batch=1"), 2, "--shape is for artifacts"),
        (("CODE", "--launch", "LAUNCH", "--constant", "exq=1"), 2, "unknown constant 'exq'"),
        (("CODE", "--launch", "LAUNCH", "--constant", "exp=fast"), 2, "is not a number"),
        (("CODE", "--launch", "LAUNCH", "--workgroups", "300,0,0"), 2, "outside the grid"),
        (("CODE", "--launch", "LAUNCH", "--window", "0:9"), 2, "--timeline and --trace"),
        (("CODE", "--launch", "LAUNCH", "--timeline", "t.html", "--window", "9"), 2, "FIRST:LAST"),
        (("mha_prefill_v2", "--launch", "LAUNCH"), 2, "--launch is for a code object"),
    ],
)
def test_refusals(
    mlagen, case: tuple[Path, Path], options: tuple[str, ...], code: int, message: str
) -> None:
    named = {"CODE": str(case[0]), "LAUNCH": str(case[1])}
    done = mlagen("simulate", *(named.get(option, option) for option in options))
    assert (done.code, message in done.err) == (code, True), done.err


def test_code_for_another_gpu_is_refused(mlagen, case: tuple[Path, Path]) -> None:
    data = bytearray(case[0].read_bytes())
    data[0x30] = 0x4C  # e_flags: gfx942
    case[0].write_bytes(data)
    done = mlagen("simulate", case[0], "--launch", case[1])
    assert done.code == 5 and "another target" in done.err


def test_a_kernel_without_a_loop(mlagen, case: tuple[Path, Path]) -> None:
    case[0].write_bytes(assemble("  v_nop\n  s_endpgm\n"))
    done = mlagen("simulate", case[0], "--launch", case[1])
    assert done.code == 5 and "no loop of 3 alike iterations" in done.err


def test_steps_are_told_on_request_and_quiet_leaves_the_time(
    mlagen, case: tuple[Path, Path]
) -> None:
    done = mlagen("simulate", case[0], "--launch", case[1], "-v")
    assert re.search(r"^recording: \d+\.\d\d s$", done.err, re.M)
    assert re.search(r"^simulating, in every corner of the model: \d+\.\d\d s$", done.err, re.M)
    done = mlagen("simulate", case[0], "--launch", case[1], "-q", "--no-grid")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"time  .* us under load\n", done.out)


@pytest.mark.parametrize("other", [False, True])
def test_corners_are_counted(
    mlagen, case: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    counted: list[tuple[int, int]] = []

    @contextmanager
    def noted(title: str, *, long: bool = False) -> Iterator[object]:
        yield lambda done, total: counted.append((done, total))

    monkeypatch.setattr("mlagen.cli.simulate.progress_bar", noted)
    against = ("--against", case[0]) if other else ()
    assert mlagen("simulate", case[0], "--launch", case[1], *against).code == 0
    corners = list(range(1, counted[-1][1] + 1))
    assert len(corners) > 2
    assert counted == [(done, len(corners)) for done in corners]


# ---- what is not shipped: an example, an artifact of one's own, a very large call ---------------

GEMM = str(Path(__file__).parents[2] / "examples" / "gemm_bf16.py")
SMALL = ("--shape", "m=256", "--shape", "n=256", "--shape", "k=1024", "--no-grid")


def test_the_example_and_its_artifact(mlagen, tmp_path: Path) -> None:
    done = mlagen("simulate", GEMM, "--target", "gfx950", *SMALL)
    assert done.code == 0 and "a tile" in done.out, done.err
    assert mlagen("build", GEMM, "--target", "gfx950", "-o", tmp_path / "k").code == 0
    again = mlagen("simulate", tmp_path / "k", *SMALL, "--problem", GEMM)
    assert again.code == 0 and again.out.splitlines()[:8] == done.out.splitlines()[:8]
    short = mlagen("simulate", GEMM, "--target", "gfx950", *SMALL[:4], "--shape", "k=64")
    assert short.code == 2 and "tiles of 64" in short.err and "hint: k=" in short.err


def test_a_large_call_of_a_family_of_arrays_takes_no_more_than_its_workgroups(
    mlagen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "first_kernel.md").read_text()
    for name, body in re.findall(r"[Ii]n `([\w./]+)`:\n\n```\w+\n(.*?)```", page, re.S):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sums = tmp_path / "column_sums.py"
    done = mlagen("simulate", sums, "--shape", "m=60", "--shape", "n=16000000", "--no-grid")
    assert done.code == 0, done.err
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 1 << 20, f"{taken} KiB for three workgroups; x alone has 3.6 GiB"
    huge = mlagen("simulate", sums, "--shape", "m=100000000", "--shape", "n=1000000000000")
    assert huge.code == 2 and "no array has these sizes" in huge.err
