"""Bad calls of the Python API: a deliberate error that says what would fit, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mlagen
from mlagen.app.build import build_artifact
from mlagen.app.cycle_jobs import job_of_artifact
from mlagen.artifact import ArtifactStore, read_artifact, write_artifact
from mlagen.binary import read_code_object
from mlagen.disk import checked_output, read_file, write_file
from mlagen.emulator.launching import parse_launch, read_launch_file
from mlagen.errors import MlagenError
from mlagen.inspect import inspect_path
from mlagen.mutation import ArtifactSource, mutate
from mlagen.ops import MhaConfigV2
from mlagen.tune import TuneRequest, open_store, tune
from mlagen.verify import verify, verify_thoroughly

GEMM = Path(__file__).resolve().parents[2] / "examples" / "gemm_bf16.py"
HEADS = {"num_heads": 2, "num_kv_heads": 1}
LONG = "a" * 300
BF16 = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def mha() -> Any:
    return mlagen.build("mha_prefill_v2", knobs={}, **HEADS)


def build(*arguments: Any, **named: Any) -> Callable[..., Any]:
    return lambda mha: mlagen.build(*arguments, **named)


def called(**changed: Any) -> Callable[..., Any]:
    """The kernel on good arrays but for those that are `changed`."""
    q, kv = np.zeros((1, 64, 2, 128), BF16), np.zeros((1, 64, 1, 128), BF16)
    return lambda mha: mha(**{"q": q, "k": kv, "v": kv, **changed})


def bits(*shape: int) -> Any:
    return np.zeros(shape, np.uint16)


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no name": (build(""), "no schedule is named"),
    "unknown": (build("nope"), "schedules: mha_prefill_v2"),
    "None": (build(None), "a kernel is a name, a path or a config, not NoneType"),
    "number": (build(3), "not int"),
    "bytes": (build(b"mha"), "not bytes"),
    "path": (build(Path("nope.py")), "schedule file nope.py does not exist"),
    "long path": (build(Path(LONG + ".py")), "does not exist"),
    "path of a name": (build(Path("nope")), "no schedule is named 'nope'"),
    "long": (build(LONG), "no schedule is named"),
    "no fields": (build("mha_prefill_v2"), "needs num_heads and num_kv_heads"),
    "unknown field": (build("mha_prefill_v2", x=1, **HEADS), "has no field 'x'"),
    "float": (build("mha_prefill_v2", num_heads=2.5, num_kv_heads=1), "num_heads"),
    "none": (build("mha_prefill_v2", num_heads=None, num_kv_heads=1), "num_heads"),
    "list": (build("mha_prefill_v2", num_heads=[2], num_kv_heads=1), "num_heads"),
    "negative": (build("mha_prefill_v2", num_heads=-1, num_kv_heads=1), "not in 1 .. 65535"),
    "uneven": (build("mha_prefill_v2", num_heads=3, num_kv_heads=2), "num_kv_heads"),
    "depth": (build("mha_prefill_v2", depth=7, **HEADS), "one of 64 or 128"),
    "mask": (build("mha_prefill_v2", mask="foo", **HEADS), "unknown mask"),
    "dtype": (build("mha_prefill_v2", dtype="int3", **HEADS), "dtype"),
    "knob": (build("mha_prefill_v2", knobs={"x": 1}, **HEADS), "has no knob 'x'"),
    "choice": (build("mha_prefill_v2", knobs={"kv_block": 7}, **HEADS), "choices: 64"),
    "target": (build("mha_prefill_v2", target="sm_90a", **HEADS), "is for gfx950, not for sm_90a"),
    "no target": (build("mha_prefill_v2", target="x", **HEADS), "unknown target 'x'"),
    "target's type": (build("mha_prefill_v2", target=5, **HEADS), "target=5: target is a name"),
    "knobs' type": (build("mha_prefill_v2", knobs=3, **HEADS), "knobs=3: knobs is a mapping"),
    "knobs' pairs": (build("mha_prefill_v2", knobs=[1], **HEADS), "knobs=[1]: knobs is a mapping"),
    "templates' type": (
        build("mha_prefill_v2", templates=5, **HEADS),
        "templates is the path of a folder",
    ),
    "launcher": (
        build("mha_prefill_v2", launcher=5, **HEADS),
        "launcher=5: it has no method launch",
    ),
    "launcher's class": (
        build("mha_prefill_v2", launcher="hip", **HEADS),
        "it has no method launch",
    ),
    "shape": (build("mha_prefill_v2", shape=7, **HEADS), "shape=7: shape is a mapping"),
    "a size": (build("mha_prefill_v2", shape={"bach": 128}, **HEADS), "did you mean 'batch'?"),
    "a size's type": (build("mha_prefill_v2", shape={"batch": "x"}, **HEADS), "not an integer"),
    "a size's sign": (build("mha_prefill_v2", shape={"batch": -1}, **HEADS), "is below 0"),
    "two choices": (
        build("mha_prefill_v2", shape={"batch": 1}, knobs={}, **HEADS),
        "leave out one of the two",
    ),
    "templates": (build("mha_prefill_v2", templates="nope", **HEADS), "no template folder"),
    "long templates": (build("mha_prefill_v2", templates=LONG, **HEADS), "no template folder"),
    "config": (lambda _: MhaConfigV2(num_heads=0, num_kv_heads=1), "not in 1 .. 65535"),
    "bits": (called(q=bits(1, 64, 2, 128)), "q.view(ml_dtypes.bfloat16), if these are its bits"),
    "float32": (called(k=np.zeros((1, 64, 1, 128), "f4")), "k.astype(ml_dtypes.bfloat16)"),
    "a list": (called(q=[1, 2]), "q is a list"),
    "a shape": (called(q=np.zeros((64, 2, 128), BF16)), "q has shape (64, 2, 128)"),
    "heads": (called(v=np.zeros((1, 64, 2, 128), BF16)), "v has shape"),
    "batch": (called(k=np.zeros((2, 64, 1, 128), BF16)), "has shape"),
    "empty": (called(q=np.zeros((1, 0, 2, 128), BF16)), "q"),
    "read": (lambda _: read_artifact("nope"), "no artifact at nope"),
    "read a long name": (lambda _: read_artifact(LONG), "no artifact at"),
    "read a device": (lambda _: read_artifact("/dev/null"), "/dev/null is no artifact"),
    "read a folder": (lambda _: read_artifact("folder"), "folder has no manifest.json"),
    "an artifact's knobs": (lambda _: build_artifact("nope", {}, {}), "no schedule is named"),
    "store": (lambda _: ArtifactStore("folder").get("ab" * 32), "has no artifact"),
    "code": (lambda _: read_code_object("plain"), "plain: not a code object"),
    "no code": (lambda _: read_code_object(LONG), "File name too long"),
    "file": (lambda _: read_file("folder"), "Is a directory"),
    "inspect": (lambda _: inspect_path(LONG), "nothing at"),
    "launch": (lambda _: read_launch_file("nope"), "launch file nope cannot be read"),
    "launch text": (lambda _: parse_launch("grid = ["), "is no TOML"),
    "out": (lambda _: checked_output("plain/x"), "plain is a file"),
    "a zero byte": (lambda _: checked_output("a\0b"), "cannot be written: "),
    "a zero byte read": (lambda _: read_file("a\0b"), "cannot be read: "),
    "no out": (lambda _: write_file("", b""), "names no file"),
    "a file in the way": (lambda m: write_artifact(m.artifact, "plain"), "cannot be written"),
    "a long folder": (lambda m: write_artifact(m.artifact, LONG), "File name too long"),
    "seed": (lambda m: verify(m.artifact, seed=-1), "seed=-1 is not in 0 .."),
    "a large seed": (lambda m: verify(m.artifact, seed=1 << 40), "is not in 0 .."),
    "seed of all": (lambda m: verify_thoroughly(m.artifact, seed=-1), "seed=-1 is not in 0 .."),
    "data": (lambda m: verify(m.artifact, data="nope"), "unknown data 'nope'"),
    "modes": (lambda m: verify(m.artifact, modes=("x",)), "one or more of latest"),
    "sample": (lambda m: verify(m.artifact, sample=0), "must be at least 1"),
    "763 GiB": (lambda m: verify(m.artifact, seq_len=400_000_000), "Unable to allocate"),
    "simulated": (
        lambda m: job_of_artifact(m.artifact, {"seq_len": 400_000_000}, groups=(), tiles=None),
        "Unable to allocate",
    ),
    "short": (
        lambda m: job_of_artifact(m.artifact, {"seq_len": 64}, groups=(), tiles=None, steady=True),
        "num_keys=1088 and more",
    ),
    "mutants": (lambda m: mutate(ArtifactSource(m.artifact), processes=0), "at least 1"),
    "mutants' classes": (lambda m: mutate(ArtifactSource(m.artifact), count=0), "at least 1"),
    "tune": (
        lambda _: tune(TuneRequest("nope", {}), open_store("s.sqlite")),
        "no schedule is named",
    ),
    "sampler": (
        lambda _: tune(TuneRequest(str(GEMM), {}, sampler="x"), open_store("s.sqlite")),
        "unknown sampler",
    ),
    "studies": (lambda _: open_store("s.sqlite").find("x"), "no study's key begins"),
    "a store that is none": (lambda _: open_store("plain").studies(), "is damaged"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_says_what_would_fit(
    mha: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("x" * 1000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLAGEN_CACHE_DIR", str(tmp_path / "cache"))
    call, said = CALLS[name]
    with pytest.raises(MlagenError) as caught:
        call(mha)
    assert said in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "plain"]


def test_a_path_is_built_like_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mlagen.build(GEMM, target="gfx950", knobs={})
    assert made.artifact.manifest.kernel == "gemm_bf16"
