"""The examples that are no matrix product: each is proved, right by its oracle, and judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mlagen
from mlagen.app.build import build_artifact
from mlagen.cli.main import run
from mlagen.errors import ConfigError, FindingsError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GFX950 = ["column_sums.py", "row_sums.py", "rmsnorm.py"]


@pytest.mark.parametrize("name", GFX950)
def test_on_gfx950_all_instructions_are_right(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", str(EXAMPLES / name), "--target", "gfx950"]) == 0
    said = capsys.readouterr().out
    assert "outputs    right by the exact oracle" in said and "sanitizer  clean" in said
    reached, of = said.split("reached ")[1].split(" instructions")[0].split(" of ")
    assert reached == of


@pytest.mark.parametrize(("name", "shape"), [("rmsnorm.py", "m=5,n=264"), ("row_sums_sm90.py", "")])
def test_on_hopper_a_call_is_right(
    name: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [word for size in shape.split(",") if size for word in ("--shape", size)]
    sizes = sizes or ["--shape", "m=40", "--shape", "k=100"]
    assert run(["verify", str(EXAMPLES / name), "--target", "sm_90a", *sizes]) == 0
    said = capsys.readouterr().out
    assert "outputs    right by the exact oracle" in said and "sanitizer  clean" in said


@pytest.mark.parametrize(
    ("name", "target"),
    [*((name, "gfx950") for name in GFX950), ("rmsnorm.py", "sm_90a"),
     ("row_sums_sm90.py", "sm_90a")],
)  # fmt: skip
def test_each_is_proved(name: str, target: str) -> None:
    built = build_artifact(str(EXAMPLES / name), {}, {}, target=target)
    assert built.manifest.proof.status == "proved"


def changed(folder: Path, **edits: tuple[str, str]) -> Path:
    """The RMSNorm with another text in one of its templates."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    for name, (old, new) in edits.items():
        path = folder / "templates" / "gfx950" / "norms" / f"{name}.s.j2"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return folder / "rmsnorm.py"


@pytest.mark.parametrize(
    "edit",
    [
        {"total": ("{{ root }}, {{ inverse }}, {{ waves[0] }}", "{{ root }}, {{ inverse }}, 0")},
        {"square": ("row_bcast:31 row_mask:0xc", "row_bcast:31 row_mask:0x4")},
        {"square": ('"row_shr:4", ', "")},
        {"total": ("v_rsq_f32", "v_rcp_f32")},
    ],
)
def test_what_is_computed_otherwise_is_wrong(tmp_path: Path, edit: dict, capsys) -> None:
    """Without epsilon only rows near zero show it: that is what `data` of a call is for."""
    file = changed(tmp_path, **edit)
    assert run(["verify", str(file), "--target", "gfx950"]) == 3
    said = capsys.readouterr().out
    assert "WRONG by the exact oracle" in said
    if "total" in edit and "0" in edit["total"][1][-1]:
        assert "near zero" in said


def test_without_the_data_near_zero_epsilon_is_not_seen(tmp_path: Path, capsys) -> None:
    file = changed(tmp_path, total=("{{ inverse }}, {{ waves[0] }}", "{{ inverse }}, 0"))
    args = ["verify", str(file), "--target", "gfx950", "--shape", "m=5"]
    assert run(args) == 0 and run([*args, "--data", "near zero"]) == 3
    capsys.readouterr()


def test_the_norm_is_a_function_of_arrays() -> None:
    kernel = mlagen.build(str(EXAMPLES / "rmsnorm.py"), target="gfx950")
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(n).astype(ml_dtypes.bfloat16) for n in ((3, 64), 64))
    out = np.empty((3, 64), ml_dtypes.bfloat16)
    assert kernel(x, w, out=out) is out
    wide = x.astype(np.float64)
    right = w * wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-6)
    assert np.abs(out - right).max() <= 2.0**-8 * np.abs(right).max()
    with pytest.raises(ConfigError, match=r"out is bf16 \[3, 64\], not bf16 \[2, 64\]"):
        kernel(x[:2], w, out=out)


def test_what_the_sanitizer_finds_is_raised_by_a_call(tmp_path: Path) -> None:
    file = changed(tmp_path, setup=("v_mov_b32 {{ place[1] }}, 0", ""))
    x = np.ones((9, 64), ml_dtypes.bfloat16)
    with pytest.raises(FindingsError, match="undefined-register"):
        mlagen.build(str(file), target="gfx950")(x, x[0])
