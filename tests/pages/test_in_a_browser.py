"""Pages in a headless browser, where one is installed: scripts run, and all is drawn."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlagen.cli.main import run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
KERNEL = ("mha_prefill_v2", "--set", "num_heads=1", "--set", "num_kv_heads=1")
SHAPE = ("--shape", "seq_len=1280", "--shape", "num_keys=1280", "--no-grid")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A timeline, an inspection, a difference and a picture of one kernel."""
    folder = tmp_path_factory.mktemp("pages")
    built, other = str(folder / "k"), str(folder / "other")
    for words in (
        ("build", *KERNEL, "-o", built),
        ("build", *KERNEL, "--knob", "qk_pattern=16x1:4", "-o", other),
        ("simulate", built, *SHAPE, "--timeline", str(folder / "timeline.html")),
        ("simulate", built, *SHAPE, "--timeline", str(folder / "timeline.svg")),
        ("inspect", built, "--html", str(folder / "inspect.html")),
        ("diff", built, other, "--html", str(folder / "diff.html")),
    ):
        assert run(words) == 0, words
    return folder


def _browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000")
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [BROWSER, *common, profile, "--enable-logging=stderr", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.parametrize("name", ["timeline.html", "inspect.html", "diff.html"])
def test_scripts_run_without_an_error(pages: Path, name: str) -> None:
    done = _browse(pages / name, "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "<h1>" in done.stdout and 'class="legend"' in done.stdout


@pytest.mark.parametrize("name", ["timeline.html", "timeline.svg", "inspect.html", "diff.html"])
def test_light_and_dark(pages: Path, name: str) -> None:
    """The page is as light as it is asked to be, and not empty."""
    images = pytest.importorskip(
        "PIL.Image", reason="Pillow, which matplotlib brings, is not installed"
    )
    mean = {}
    for scheme, number in (("light", 1), ("dark", 0)):
        shot = pages / f"{name}.{scheme}.png"
        setting = f"--blink-settings=preferredColorScheme={number}"
        _browse(pages / name, "--window-size=1200,800", f"--screenshot={shot}", setting)
        pixels = np.asarray(images.open(shot).convert("RGB"))
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
        mean[scheme] = float(np.median(pixels))
    assert mean["light"] > 200 and mean["dark"] < 60, (mean, sys.platform)
