"""`mlagen verify`: the report, and an exit code for each way to fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = ROOT / "tests" / "codegen" / "schedules"
ONE_HEAD = ("--set", "num_heads=1", "--set", "num_kv_heads=1")
SMALL = ("--shape", "seq_len=40", "--shape", "num_keys=111", "--shape", "start_pos=71")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of the shipped kernel with one head."""
    from mlagen.app.build import keep
    from mlagen.app.texts import BuildTexts, build_from_text

    fields = ONE_HEAD[1::2]
    return keep(
        build_from_text("mha_prefill_v2", BuildTexts(fields)), tmp_path_factory.mktemp("k") / "k"
    )


def test_a_good_kernel_passes(mlagen, built: Path) -> None:
    done = mlagen("verify", built, *SMALL)
    assert (done.code, done.err) == (0, "")
    for part in ("errors", "latest", "earliest", "exact", "right by both oracles", "clean"):
        assert part in done.out
    assert "verdict    passed" in done.out


def test_strict_asks_for_all_of_the_code(mlagen, built: Path) -> None:
    done = mlagen("verify", built, *SMALL, "--mode", "latest", "--strict")
    assert done.code == 6
    assert "nothing is wrong, and not all is shown: 0 unproved, " in done.err


def test_the_json_twin_says_the_same(mlagen, built: Path) -> None:
    done = mlagen("verify", built, *SMALL, "--mode", "random", "--seed", "3", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.verify/2"
    assert report["passed"] is True
    assert (report["seq_len"], report["num_keys"], report["start_pos"]) == (40, 111, 71)
    assert [run["mode"] for run in report["runs"]] == ["random"]
    assert report["runs"][0]["findings"] == []


def test_a_sample_says_so(mlagen, built: Path) -> None:
    done = mlagen("verify", built, "--shape", "seq_len=600", "--sample", "1", "--mode", "latest")
    assert done.code == 0
    assert "1 of 3 workgroups were run" in done.out


def test_a_ragged_paged_kernel_passes(mlagen) -> None:
    fields = [f"--set={field}" for field in ("ragged=true", "page_size=16", "sink=yes", "lse=1")]
    shape = ["--shape", "lengths=70,0,1", "--shape", "num_keys=100,5,64", "--mode", "latest"]
    done = mlagen("verify", "mha_prefill_v2", *ONE_HEAD, *fields, *shape)
    assert (done.code, done.err) == (0, "")
    for part in ("lengths 70,0,1", "num_keys 100,5,64", "rounding LSE", "passed"):
        assert part in done.out


def test_a_kernel_name_is_built_first(mlagen) -> None:
    done = mlagen("verify", "mha_prefill_v2", *ONE_HEAD, *SMALL, "--mode", "latest")
    assert done.code == 0
    assert "verdict    passed" in done.out


def test_a_wrong_result_is_exit_code_3(mlagen, tmp_path: Path) -> None:
    shipped = (ROOT / "templates" / "gfx950" / "prefill" / "prescale.s.j2").read_text()
    wrong = tmp_path / "gfx950" / "prefill" / "prescale.s.j2"
    wrong.parent.mkdir(parents=True)
    wrong.write_text(shipped.replace("0xffff0000", "0xff000000"))
    assert wrong.read_text() != shipped
    done = mlagen("verify", "mha_prefill_v2", *ONE_HEAD, *SMALL, "--templates", tmp_path)
    assert done.code == 3
    assert "WRONG by both oracles" in done.out
    assert "elements are outside the" in done.err


@pytest.mark.parametrize("mode", ["latest", "earliest"])
def test_an_unproved_race_is_found_with_both_instructions(mlagen, mode: str) -> None:
    schedule = SCHEDULES / "no_dma_waits.py"
    refused = mlagen("verify", schedule, *ONE_HEAD)
    assert refused.code == 2
    assert refused.err.startswith("error[wait-missing] schedules/no_dma_waits.py:")
    done = mlagen(
        "verify", schedule, *ONE_HEAD, "--allow-unproved", "--shape", "seq_len=256", "--mode", mode
    )
    assert done.code in (3, 4)
    races = [line for line in done.out.splitlines() if line.startswith("error[race-raw]")]
    assert any(
        " cluster D, read(K, i+1): wave " in line
        and ", written by wave " in line
        and "(cluster B, copy(K, i+2))." in line
        for line in races
    )
    assert "Needs vmcnt(" in done.out
    assert "buffer_load_dwordx4" in done.out
    assert "verdict    FAILED" in done.out


def test_findings_alone_are_exit_code_4(mlagen) -> None:
    schedule = SCHEDULES / "no_dma_waits.py"
    arguments = (schedule, *ONE_HEAD, "--allow-unproved", "--shape", "seq_len=256")
    done = mlagen("verify", *arguments, "--mode", "earliest", "--json")
    assert done.code == 4  # at once completed transfers give the right numbers all the same
    report = json.loads(done.out)
    assert (report["right"], report["clean"], report["passed"]) == (True, False, False)
    texts = [finding["text"] for finding in report["runs"][0]["findings"]]
    assert any(text.startswith("error[race-raw] schedules/no_dma_waits.py:") for text in texts)
    assert "the sanitizer found" in done.err


def test_max_limits_what_is_spelled_out(mlagen) -> None:
    schedule = SCHEDULES / "no_dma_waits.py"
    arguments = (schedule, *ONE_HEAD, "--allow-unproved", "--shape", "seq_len=256", "--max", 1)
    done = mlagen("verify", *arguments, "--mode", "earliest")
    assert sum(line.startswith("error[") for line in done.out.splitlines()) == 1
    assert "more pairs of lines (--max " in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--shape", "seqlen=4"], 2, ["unknown size 'seqlen'", "did you mean 'seq_len'?"]),
        (["--shape", "seq_len=four"], 2, ["seq_len='four' is not an integer"]),
        (["--shape", "seq_len=-4"], 2, ["seq_len"]),
        (["--shape", "num_keys=-1"], 2, ["num_keys"]),
        (["--shape", "lengths=4,5"], 2, ["lengths=4,5", "dense"]),
        (["--shape", "num_keys=4,5"], 2, ["num_keys=4,5", "one number"]),
        (["--sample", "0"], 2, ["sample=0"]),
        (["--shape", "start_pos=-1"], 2, ["start_pos"]),
        (["--data", "imaginary"], 2, ["imaginary", "realistic"]),
        (["--mode", "sometimes"], 2, ["sometimes", "latest"]),
        (["--set", "depth=64"], 2, ["--set is for building"]),
        (["--target", "gfx942"], 2, ["gfx942"]),
    ],
)
def test_bad_input_is_one_clear_error(
    mlagen, built: Path, arguments: list[str], code: int, parts: list[str]
) -> None:
    done = mlagen("verify", built, *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    for part in parts:
        assert part in done.err


def test_a_damaged_artifact_is_refused(mlagen, tmp_path: Path) -> None:
    assert mlagen("build", "mha_prefill_v2", *ONE_HEAD, "-o", tmp_path / "k").code == 0
    code = tmp_path / "k" / "kernel.co"
    code.write_bytes(code.read_bytes()[:-100])
    done = mlagen("verify", tmp_path / "k")
    assert (done.code, done.out) == (5, "")
    assert "truncated or altered" in done.err
    (tmp_path / "k" / "manifest.json").unlink()
    done = mlagen("verify", tmp_path / "k")
    assert (done.code, done.out) == (5, "")
    assert "has no manifest.json" in done.err
