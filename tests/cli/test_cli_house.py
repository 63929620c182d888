"""The group of verbs, `list` and `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

from mlagen.cli.verbs import VERBS
from mlagen.extras import install


def test_help_names_every_verb(mlagen) -> None:
    done = mlagen("--help")
    assert done.code == 0
    for verb in ("list", "build", "verify", "doctor"):
        assert f"  {verb} " in done.out


@pytest.mark.parametrize("verb", [*VERBS, "tune run", "tune show", "tune export", "tune plot"])
def test_help_names_only_what_a_wheel_brings(mlagen, verb: str) -> None:
    done = mlagen(*verb.split(), "--help")
    assert done.code == 0
    for folder in ("docs/", "tests/", "benchmarks/", "examples/", ".md"):
        assert folder not in done.out


@pytest.mark.parametrize("arguments", [["buidl"], ["list", "--no-such"], ["build", "--out"]])
def test_wrong_usage_is_exit_code_2(mlagen, arguments: list[str]) -> None:
    done = mlagen(*arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")


def test_no_verb_prints_the_help(mlagen) -> None:
    done = mlagen()
    assert done.code == 2
    assert "Commands:" in done.err


def test_the_script_and_the_module_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlagen", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"mlagen, version {metadata.version('mlagen')}"


def test_the_exit_code_reaches_the_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlagen", "build", "nowhere.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert done.stderr.startswith("error: ")


def test_list_shows_kernels_fields_and_knobs(mlagen) -> None:
    listed = mlagen("list")
    assert listed.code == 0
    for part in ("mha_prefill_v2", "gfx950", "MhaProblem", "pv_priority"):
        assert part in listed.out
    shown = mlagen("list", "mha_prefill_v2")
    for part in ("num_heads", "required", "bf16", "pv_pattern", "even"):
        assert part in shown.out
    kernel = json.loads(mlagen("list", "mha_prefill_v2", "--json").out)
    assert kernel["schema"] == "mlagen.list/1"
    (entry,) = kernel["kernels"]
    assert entry["name"] == "mha_prefill_v2"
    fields = {field.pop("name"): field for field in entry["fields"]}
    assert fields["num_heads"] == {
        "type": "int",
        "default": "required",
        "legal": "1 .. 65535, a multiple of num_kv_heads",
        "meaning": "query heads",
    }
    assert "sliding_window_causal[W]" in fields["mask"]["legal"]
    assert fields["depth"]["legal"] == "64 or 128"
    priority = next(knob for knob in entry["knobs"] if knob["name"] == "pv_priority")
    assert priority["choices"] == ["1", "0", "2", "3"]


def test_list_of_an_unknown_kernel_is_refused(mlagen) -> None:
    done = mlagen("list", "mha_prefil_v2")
    assert done.code == 2
    assert "did you mean 'mha_prefill_v2'?" in done.err


def test_doctor_finds_what_this_machine_has(mlagen) -> None:
    done = mlagen("doctor", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.doctor/1"
    assert "gfx950" in report["builds"] and report["can_verify"]
    checks = {c["name"]: c for group in report["groups"] for c in group["checks"]}
    assert checks["numpy"]["version"] == metadata.version("numpy")
    assert checks["the ziglang wheel"]["found"]
    assert {"ROCm in /opt/rocm", "HIP runtime", "NVIDIA driver", "$MLAGEN_CLANG"} <= checks.keys()
    text = mlagen("doctor").out
    assert "and mlagen verify works." in text


def test_doctor_names_the_command_for_a_missing_package(
    mlagen, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = metadata.distribution

    def without_numba(name: str) -> metadata.Distribution:
        if name == "numba":
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata, "distribution", without_numba)
    done = mlagen("doctor")
    assert done.code == 5
    assert f"missing numba: {install('emulator')}" in done.out
    assert "but mlagen verify does not work." in done.out


def test_a_decoder_of_another_version_is_not_taken(mlagen, monkeypatch: pytest.MonkeyPatch) -> None:
    find = metadata.distribution

    class Newer:
        version = "99.0"

        def locate_file(self, path: str) -> str:
            return path

    monkeypatch.setattr(
        metadata, "distribution", lambda name: Newer() if name == "tinygrad" else find(name)
    )
    done = mlagen("doctor")
    assert done.code == 5
    assert f"needs 0.14.0: {install('emulator')}" in done.out
