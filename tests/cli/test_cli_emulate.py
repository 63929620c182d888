"""`mlagen emulate`: a launch file in, outputs, findings and origins of NaN out."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from scale_kernel import LAUNCH, write_case

from mlagen.cli.main import run

X = np.arange(128, dtype=np.float32)


def emulated(mlagen, folder: Path, *options: object, launch: str = LAUNCH, **kernel: object):
    code, file = write_case(folder, launch, **kernel)
    return mlagen("emulate", code, "--launch", file, *options)


def test_a_clean_run_prints_outputs_counts_and_facts(mlagen, tmp_path: Path) -> None:
    done = emulated(mlagen, tmp_path)
    assert (done.code, done.err) == (0, "")
    for part in ("outputs", "f32", "2x64", "317.5", "v_mul_f32", "wave-instructions in"):
        assert part in done.out
    assert "findings    0" in done.out
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").reshape(-1), 2.5 * X)


def test_the_same_as_json(mlagen, tmp_path: Path) -> None:
    done = emulated(mlagen, tmp_path, "--json", "--out", tmp_path / "out")
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.emulate/2"
    assert (report["kernel"], report["workgroups"]) == ("k", 2)
    assert report["counts"]["v_mul_f32"] == 2
    assert report["wave_instructions"] == sum(report["counts"].values())
    (output,) = report["outputs"]
    assert output["path"] == str(tmp_path / "out" / "y.npy")
    assert (output["nans"], output["unwritten"], output["maximum"]) == (0, 0, 317.5)
    assert report["findings"] == report["guard_damage"] == report["nonfinite"] == []


def test_findings_show_code_around_both_places_and_end_with_4(mlagen, tmp_path: Path) -> None:
    done = emulated(mlagen, tmp_path, wait="s_nop 0")
    assert done.code == 4
    assert done.out.startswith("error[missing-wait]: wave 0: v_mul_f32 v3, s8, v2")
    marked = [line for line in done.out.splitlines() if line.startswith("    > ")]
    assert ["global_load_dword" in marked[0], "v_mul_f32" in marked[1]] == [True, True]
    assert "needs vmcnt(0)" in done.out and "s_nop 0" in done.out
    assert "error: one defect" in done.err


MASKED = """s_waitcnt vmcnt(0) lgkmcnt(0)
  v_mov_b32 v10, 0
  v_mov_b32 v11, 0
  s_mov_b64 s[20:21], exec
  {}
  s_nop 4
  {}
  s_waitcnt lgkmcnt(0)
  s_mov_b64 exec, s[20:21]
  s_nop 4"""
UNPROVED = MASKED.format(
    "v_cmpx_gt_f32 vcc, 1.0, v2", "ds_swizzle_b32 v10, v2 offset:swizzle(SWAP,1)"
)
LETTER = MASKED.format("s_mov_b64 exec, 1", "v_permlane32_swap_b32 v10, v11")


@pytest.mark.parametrize(
    ("wait", "plain", "letter", "strict"), [(UNPROVED, 0, 0, 6), (LETTER, 0, 4, 0)]
)
def test_what_findings_that_are_no_errors_make_of_the_exit_code(
    mlagen, tmp_path: Path, wait, plain, letter, strict
) -> None:
    for options, code in (((), plain), (("--fail-on", "letter"), letter), (("--strict",), strict)):
        done = emulated(mlagen, tmp_path, "--force", *options, wait=wait)
        assert done.code == code, (options, done.err)
        assert "[off-lane]" in done.out


def test_no_sanitizer_no_findings(mlagen, tmp_path: Path) -> None:
    done = emulated(mlagen, tmp_path, "--no-sanitizer", wait="s_nop 0")
    assert done.code == 0 and "findings    0" in done.out


def test_mode_seed_threads_and_workgroups(mlagen, tmp_path: Path) -> None:
    options = ("--mode", "random", "--seed", 3, "--threads", 1, "--workgroups", "1,0,0", "--json")
    done = emulated(mlagen, tmp_path, *options)
    report = json.loads(done.out)
    assert report["workgroups"] == 1
    assert report["outputs"][0]["unwritten"] == 64


def test_guard_damage_is_a_finding(mlagen, tmp_path: Path) -> None:
    guarded = LAUNCH.replace('output = "y.npy"', 'output = "y.npy"\nguard = 64')
    done = emulated(mlagen, tmp_path, launch=guarded, offset=16)
    assert done.code == 4
    assert "guard-zone: 16 bytes after buffer y were written, the nearest 0 bytes" in done.out


def test_trace_nan_tells_the_origin(mlagen, tmp_path: Path) -> None:
    launch = LAUNCH.replace("value = 2.5", "value = 3e38")
    done = emulated(mlagen, tmp_path, "--trace-nan", launch=launch)
    assert done.code == 0  # what an overflow means is for the reader to say
    assert "y[0, 2] is Inf (and 125 more), stored by global_store_dword" in done.out
    assert "it comes from v_mul_f32 v3, s8, v2 at 0x" in done.out
    assert "made: v_mul_f32 v3, s8, v2" in done.out
    report = json.loads(emulated(mlagen, tmp_path, "--trace-nan", "--json", launch=launch).out)
    assert report["nonfinite"][0]["values"] == ["inf"]
    assert report["nonfinite_outputs"][0]["index"] == [0, 2]
    clean = emulated(mlagen, tmp_path, "--trace-nan")
    assert "no NaN or Inf" in clean.out


def test_the_template_is_for_this_object(mlagen, tmp_path: Path) -> None:
    code, _ = write_case(tmp_path)
    done = mlagen("emulate", code, "--template")
    assert done.code == 0
    (tmp_path / "new.toml").write_text(done.out)
    assert 'name = "factor"' in done.out
    again = mlagen("emulate", code, "--launch", tmp_path / "new.toml")
    assert again.code == 0


def test_the_limit_on_instructions(mlagen, tmp_path: Path) -> None:
    done = emulated(mlagen, tmp_path, "--max-instructions", 5)
    assert done.code == 5
    assert "has not ended" in done.err and "limit is 5" in done.err


@pytest.mark.parametrize(
    ("options", "code", "parts"),
    [
        (["--workgroups", "a"], 2, ["--workgroups a is no workgroup", "X,Y,Z"]),
        (["--workgroups", "2"], 2, ["(2, 0, 0)", "outside the grid"]),
        (["--mode", "soon"], 2, ["soon", "latest"]),
        (["--threads", "0"], 2, ["--threads", "0"]),
        (["--max-instructions", "0"], 2, ["--max-instructions"]),
        (["--kernel", "k"], 2, ["--kernel goes with --template"]),
    ],
)
def test_wrong_options(mlagen, tmp_path: Path, options: list[str], code: int, parts) -> None:
    done = emulated(mlagen, tmp_path, *options)
    assert (done.code, done.out) == (code, "")
    for part in parts:
        assert part in done.err


def test_missing_and_wrong_files(mlagen, tmp_path: Path) -> None:
    code, file = write_case(tmp_path)
    assert "--launch is missing" in mlagen("emulate", code).err
    absent = mlagen("emulate", tmp_path / "absent.co", "--launch", file)
    assert absent.code == 5 and "absent.co cannot be read" in absent.err
    absent = mlagen("emulate", code, "--launch", tmp_path / "absent.toml")
    assert absent.code == 5 and "absent.toml cannot be read" in absent.err
    wrong = mlagen("emulate", file, "--launch", file)
    assert wrong.code == 5 and wrong.out == ""
    file.write_text("grid = [1, 1, 1]\nblock = [64, 1, 1]\nspeed = 3\n")
    unknown = mlagen("emulate", code, "--launch", file)
    assert unknown.code == 2 and "unknown key 'speed'" in unknown.err and "hint" in unknown.err


def test_what_takes_long_is_said_on_stderr(capsys):
    """The emulator's notes: no line of standard output, which `--json` has to itself."""
    assert run(["doctor", "--help"]) == 0
    capsys.readouterr()
    logging.getLogger("mlagen.emulator.gfx950.starting").info("translating")
    assert run(["doctor", "--help"]) == 0  # and once, however often the program was entered
    logging.getLogger("mlagen.emulator.gfx950.starting").info("and again")
    done = capsys.readouterr()
    assert done.err.splitlines() == ["translating", "and again"]
    assert "translating" not in done.out
