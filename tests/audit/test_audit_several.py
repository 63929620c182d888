"""Several PTX files at once: a line each, and one exit code."""

import json
from pathlib import Path

import pytest

from mlagen.cli.main import run

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture
def files(tmp_path):
    text = (KERNELS / "handoff.ptx").read_text()
    (tmp_path / "good.ptx").write_text(text)
    (tmp_path / "raced.ptx").write_text(
        "\n".join(line for line in text.splitlines() if "fence.proxy.async" not in line)
    )
    (tmp_path / "cut.ptx").write_text(text[: len(text) // 2])
    return [str(tmp_path / f"{name}.ptx") for name in ("good", "raced", "cut")]


def test_each_file_has_a_line(files, capsys):
    good, raced, cut = files
    for jobs in ("1", "2"):
        assert run(["audit", good, raced, "--jobs", jobs]) == 4
        told = capsys.readouterr()
        lines = told.out.splitlines()
        assert lines[0].startswith(f"{good}: nothing found, not all covered; 1 unproved, 0 advice")
        assert lines[1].startswith(f"{raced}: ") and " proxy-fence" in lines[1]
        assert f"of {raced}" in told.err and "2 files, first: proxy-fence" in told.err
    assert run(["audit", good, cut]) == 5
    told = capsys.readouterr()
    assert f"{good}: " in told.out and f"{cut}: line" in told.err
    assert run(["audit", good, good]) == 0
    assert run(["audit", good, good, "--strict"]) == 6


def test_json_is_a_line_a_file(files, capsys):
    good, raced, _ = files
    assert run(["audit", good, raced, "--json"]) == 4
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["file"] for report in reports] == [good, raced]
    assert {report["schema"] for report in reports} == {"mlagen.audit.ptx/3"}
