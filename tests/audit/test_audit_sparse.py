"""The sparse kernels pass the audit, which follows parts of lists of loaded lengths to the end."""

from unittest.mock import patch

import pytest

from mlagen.artifact import write_artifact
from mlagen.audit.ptx import Given, audit_ptx, read_manifest
from mlagen.codegen import build
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.ptxas import PtxasResult

UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


def made(folder, name, problem):
    """Its text and what lies beside it; ptxas is not asked."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=UNASSEMBLED):
        artifact = build(name, problem)
    write_artifact(artifact, folder)
    return artifact.text, Given(beside=read_manifest(folder / "manifest.json"))


KERNELS = [
    ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(8)),
    ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8)),
    *(
        pytest.param(name, problem, marks=pytest.mark.slow)
        for name, problem in (
            ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(8, rows="v32")),
            ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(64)),
            ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32")),
            ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(32, d_qk=512, rows="model1")),
            ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, d_qk=512, rows="v41")),
            ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(24, d_qk=512, rows="v41")),
            ("mla_sparse_prefill_sm90", MlaSparsePrefillConfig(13, dtype="fp8_e4m3")),
            ("mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32", dtype="fp8_e4m3")),
        )
    ),
]

# Rows that come by bulk copies are counted: how many bytes arrive depends on the list.
OF_BULK_ROWS = ("count or bytes of the arrival are not known", "656, [%bar];` depends on data")


@pytest.mark.parametrize(("name", "problem"), KERNELS, ids=str)
def test_a_sparse_kernel(name, problem, tmp_path):
    text, given = made(tmp_path, name, problem)
    # The paths of 64 heads take minutes: `mlagen audit --max-seconds 0` follows them.
    limited = problem.num_heads == 64
    report = audit_ptx(text, given, seconds=40 if limited else 0)
    assert not report.findings, report.findings[:3]
    lines, (entry,) = text.split("\n"), report.entries
    for gap in () if limited else entry.unchecked:
        if "are on no path" in gap:
            named = gap.rpartition(": ")[2].removesuffix(", …").split(", ")
            # behind the loop, for a run that missed its end; and of how many parts are put together
            # one number after another is compared, of which arguments are found for few
            atomics = (n for n, line in enumerate(lines) if "atom.acq_rel.gpu" in line)
            after = next(atomics, len(lines))
            assert all("trap;" in lines[int(n) - 1] or int(n) > after for n in named)
        elif problem.rows == "v32" and any(one in gap for one in OF_BULK_ROWS):
            assert "mla_sparse_decode" in name, gap
        elif "mla_sparse_decode" in name and "depends on data" in gap:
            # whether a block adds up slices, and how many
            assert any(one in gap for one in ("`@%these bra ALONE;`", "`@%some bra SLICE;`")), gap
        elif "mla_sparse_decode" in name and "combinations of branches were left out" in gap:
            pass  # `together` is not two numbers at once
        elif "mla_sparse_decode" in name and "there are more paths than the 800 " in gap:
            pass  # values that roles share have names, and branches on them are followed apart
        else:
            assert "loops of unknown length were followed" in gap, gap


def test_what_a_part_needs_is_found_missing(tmp_path):
    """The fence between rows that a warp converts and the products that read them."""
    text, given = made(tmp_path, "mla_sparse_decode_sm90", MlaSparseDecodeConfig(8, rows="v32"))
    broken = text.replace("fence.proxy.async.shared::cta;", "")
    assert broken != text
    report = audit_ptx(broken, given, first=True)
    assert {finding.rule for finding in report.findings} == {"proxy-fence"}
