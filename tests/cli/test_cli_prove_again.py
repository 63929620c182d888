"""`mlagen verify ARTIFACT --prove-again`: a claim of "proved" is shown, or refuted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mlagen.app.build import build_artifact
from mlagen.artifact import Artifact, Proof, read_artifact, sha256, write_artifact

FIELDS = {"num_heads": 2}


@pytest.fixture(scope="module")
def built() -> Artifact:
    return build_artifact("mla_prefill_reduce", FIELDS, {"waves": 1})


def put(artifact: Artifact, folder: Path, **changes: object) -> Path:
    """The artifact with other parts, its digests made to fit: what a stranger can write."""
    code = changes.pop("code", artifact.code)
    text = changes.pop("text", artifact.text)
    assert isinstance(code, bytes)
    assert isinstance(text, str)
    manifest = replace(
        artifact.manifest, code_sha256=sha256(code), text_sha256=sha256(text), **changes
    )
    where = write_artifact(Artifact(manifest, code, text), folder / "k")
    assert read_artifact(where).manifest.proved
    return where


def test_what_its_schedule_gives_is_proved(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path
) -> None:
    done = mlagen("verify", put(built, tmp_path), "--prove-again")
    assert done.code == 0
    assert "proof     proved: " in done.out
    assert done.out.endswith("verdict   proved\n")
    told = json.loads(mlagen("verify", tmp_path / "k", "--prove-again", "--json").out)
    assert told["schema"] == "mlagen.prove_again/1"
    assert told["proved"] is True


def test_another_kernel_under_this_ones_manifest(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path
) -> None:
    other = build_artifact("mla_prefill_reduce", FIELDS, {"waves": 2})
    where = put(built, tmp_path, code=other.code, text=other.text)
    done = mlagen("verify", where, "--prove-again")
    assert done.code == 4
    assert "text      differs\ncode      differs\nmanifest  the same\nverdict   differs" in done.out


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"block": (128, 1, 1)}, "manifest  differs: block"),
        ({"kernarg_bytes": 8}, "manifest  differs: kernarg_bytes"),
        ({"code": b"other"}, "code      differs"),
        ({"text": "other"}, "text      differs"),
        (
            {"code": b"other", "tools": {"clang": "99"}},
            "code      differs (made by clang 99; here mlagen ",
        ),
    ],
)
def test_one_changed_part(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path, changes: dict, line: str
) -> None:
    done = mlagen("verify", put(built, tmp_path, **changes), "--prove-again")
    assert done.code == 4
    assert line in done.out
    assert "verdict   differs" in done.out
    assert "is not what mla_prefill_reduce gives today" in done.err


def test_claims_of_the_proof_itself_are_not_read(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path
) -> None:
    boast = Proof("proved", checked_tiles=10**6, pairs=10**6)
    done = mlagen("verify", put(built, tmp_path, proof=boast), "--prove-again")
    assert done.code == 0
    assert "1000000" not in done.out


def test_a_manifest_chooses_no_code_to_execute(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path
) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    for name in (str(trap), f"{trap}:kernel", "../trap"):
        where = put(built, tmp_path, kernel=name, schedule_file=str(trap))
        done = mlagen("verify", where, "--prove-again")
        assert done.code == 2
        assert "is no shipped schedule" in done.err
    assert not (tmp_path / "sprung").exists()
    # The user may name it.
    mlagen("verify", where, "--prove-again", "--problem", trap)
    assert (tmp_path / "sprung").exists()


def test_what_the_manifest_says_is_not_given_again(
    mlagen: Callable[..., Any], built: Artifact, tmp_path: Path
) -> None:
    done = mlagen("verify", put(built, tmp_path), "--prove-again", "--set", "num_heads=4")
    assert done.code == 2
    assert "--set: --prove-again takes them from the manifest" in done.err
    assert mlagen("verify", "mla_prefill_reduce", "--prove-again").code == 5
