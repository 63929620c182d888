"""`mlagen bench` on a Hopper GPU: a shipped family and the example's, right and timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlagen.cli.main import run

GEMM = str(Path(__file__).parents[2] / "examples" / "gemm_bf16.py")


@pytest.mark.parametrize(
    ("arguments", "peer"),
    [
        (("mla_decode_sm90", "--set", "num_heads=16", "--shape", "batch=4", "--shape",
          "keys=300,2048", "--shape", "least=200"), "torch_sdpa"),
        (("mla_sparse_prefill_sm90", "--set", "num_heads=16", "--shape", "rows=64", "--shape",
          "keys=4096", "--shape", "topk=300,2048"), "torch_sdpa"),
        (("mla_sparse_prefill_sm90", "--set", "num_heads=16", "--set", "dtype=fp8_e4m3", "--shape",
          "rows=64", "--shape", "keys=4096", "--shape", "topk=300"), "torch_sdpa"),
        (("mla_sparse_prefill_sm90", "--set", "num_heads=128", "--shape", "rows=200", "--shape",
          "keys=4096", "--shape", "topk=1024", "--shape", "invalid=10", "--shape", "least=100"),
         "torch_sdpa"),
        (("mla_sparse_decode_sm90", "--set", "num_heads=8", "--set", "rows=v32", "--set",
          "q_len=2", "--shape", "batch=3", "--shape", "keys=5000", "--shape", "topk=2048"),
         "torch_sdpa"),
        (("mla_sparse_decode_sm90", "--set", "num_heads=16", "--set", "rows=model1", "--set",
          "d_qk=512", "--set", "extra=true", "--shape", "batch=3", "--shape", "keys=500",
          "--shape", "topk=128", "--shape", "extra_keys=3000", "--shape", "extra_topk=512"),
         "torch_sdpa"),
        ((GEMM, "--target", "sm_90a", "--shape", "m=1000", "--shape",
          "n=1032", "--shape", "k=72,16384"), "torch_matmul"),
        ((GEMM, "--target", "sm_90a", "--set", "output_dtype=fp32",
          "--shape", "m=300", "--shape", "n=520", "--shape", "k=16384"), "torch_matmul"),
    ],
)  # fmt: skip
def test_the_command(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], peer: str
) -> None:
    code = run(["bench", *arguments, "--peers", peer, "--repeats", "3", "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["peers"].keys() == {peer} and report["ceilings"].keys() == {"matmul", "copy"}
    for row in report["rows"]:
        ours, other = row["results"]
        assert ours["seconds"] > 0 and 0 < ours["share_of_matmul"] < 1.5
        assert other["name"].startswith(peer) and ("ratio" in other or other["reason"])
