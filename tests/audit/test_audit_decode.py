"""Every form of the decode kernels builds, is proved, and passes the audit, which imports neither
the language nor the generator."""

import re

import pytest

from mlagen.artifact import write_artifact
from mlagen.audit.ptx import Given, audit_ptx, read_manifest
from mlagen.codegen import build
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.targets.nvidia.codegen.runs import every

NATIVE = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}
# Problems; knobs that are not the default; None where the audit follows all paths, else how many.
FORMS = (
    ({"num_heads": 128, "q_len": 2}, {}, None),
    ({"num_heads": 12, "page_size": 32, "mask": "null", "q_len": 4}, {}, None),
    (
        {"num_heads": 24, "page_size": 1, "num_kv_heads": 8, "mask": "sliding_window_causal[512]"},
        {},
        None,
    ),
    (
        {"num_heads": 40, "page_size": 192, "q_len": 8, "mask": "sliding_window_causal[512]"},
        {},
        None,
    ),
    ({"num_heads": 16, "page_size": 1, "q_len": 2, "cache_dtype": "fp8_e4m3"}, {}, None),
    ({"num_heads": 40, "q_len": 3, "cache_dtype": "fp8_e4m3"}, {}, None),
    ({"num_heads": 16, "q_len": 2, "cache_dtype": "fp8_rope_aware"}, {}, None),
    (
        {"num_heads": 8, "page_size": 1, "dtype": "fp8_e4m3", "cache_dtype": "fp8_rope_aware"},
        {},
        None,
    ),
    ({"num_heads": 16, "q_len": 5, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}, {}, None),
    ({"num_heads": 40, "q_len": 2, **NATIVE}, {}, 1200),
    ({"num_heads": 12, "q_len": 2, "page_size": 16, **NATIVE}, {}, None),
    ({"num_heads": 32, "page_size": 1, "mask": "sliding_window_causal[512]", **NATIVE}, {}, None),
    ({"num_heads": 128, "page_size": 16, "mask": "sliding_window_causal[512]", **NATIVE}, {}, 800),
    ({"num_heads": 128}, {"held": 1, "left_refill": "early", "ahead": 1, "evict": "first"}, None),
    # The first paths, depth first; items after each other are in the tests below.
    ({"num_heads": 128}, {"persistent": 1}, 771),
    ({"num_heads": 40, "q_len": 2}, {"persistent": 1}, 771),
)
# What is left unchecked though all paths were followed (limits, docs/ptx_audit.md).
LEFT_OUT = (
    "combinations of branches were left out",
    "loops of unknown length were followed for up to",
    "are on no path that was followed",
)
# Products of e4m3 read alpha only where a flag in SMEM says that some is not 1.
BOTH_WAYS = "`@%stays bra STAYS;` depends on data; both ways were tried"
# Values that roles share have names, and branches on them are followed apart: so many paths, or
# more.
MORE = ("there are more paths than the 1201 ", "there are more paths than the 800 ")
# Whether an item is a part depends on its record.
APART = (
    "`@%these bra ALONE;` depends on data; both ways were tried",
    "threads are no whole number of warpgroups",
)


def audited(artifact, folder):
    write_artifact(artifact, folder)
    return audit_ptx(artifact.text, Given(beside=read_manifest(folder / "manifest.json")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "knobs", "followed"),
    [
        pytest.param(*form, id=" ".join(f"{k}={v}" for part in form[:2] for k, v in part.items()))
        for form in FORMS
    ],
)
def test_every_form_of_the_decode_kernel(fields, knobs, followed, tmp_path):
    artifact = build("mla_decode_sm90", MlaDecodeConfig(**fields), knobs=knobs)
    manifest = artifact.manifest
    assert manifest.proof.status == "proved" and not manifest.resources.vgpr_spills
    assert "flash_fwd_splitkv_mla_kernel" in manifest.symbol
    report = audited(artifact, tmp_path)
    assert not report.findings, report.findings[:3]
    (entry,) = report.entries
    known = (
        (*LEFT_OUT, *APART, *MORE, BOTH_WAYS) if "compute" in fields else (*LEFT_OUT, *APART, *MORE)
    )
    gaps = [gap for gap in entry.unchecked if not any(one in gap for one in known)]
    if followed is None:
        assert not gaps
    else:
        (gap,) = gaps
        told = re.fullmatch(r"there are more paths than the (\d+) that were followed", gap)
        assert told and int(told[1]) >= followed


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A kernel whose blocks take several items: its text and what its manifest tells."""
    artifact = build("mla_decode_sm90", MlaDecodeConfig(128), knobs={"persistent": 1})
    folder = tmp_path_factory.mktemp("several")
    write_artifact(artifact, folder)
    return artifact.text, read_manifest(folder / "manifest.json")


def of_items(text, counts):
    """The kernel's text where each block has items of so many tiles, all of them whole, in pages
    that exist: one path, which the audit follows to its end."""
    instead = {
        "sub.u32 %items, %end, %t;": f"mov.u32 %items, {len(counts)};",
        "mov.u32 %valid0, %next_reach0;": "mov.u32 %valid0, 1000000;",
        "mov.u32 %ahead0, %next_first0;": "mov.u32 %ahead0, 0;",
        "add.u32 %ahead1, %next_first0, 1;": "mov.u32 %ahead1, 1;",
        "ld.param.u32 %pages, [max_pages];": "mov.u32 %pages, 1000000;",
        "div.u32 %entries0, %entries0, 64;": "mov.u32 %entries0, 1000000;",
    }
    lines = []
    for line in text.splitlines():
        lines.append(instead.get(line.strip(), line))
        if line.strip() == "@%none mov.u32 %coming, 0;":
            for index, tiles in enumerate(counts):
                lines.append(f"setp.eq.u32 %none, %items, {len(counts) - index};")
                lines.append(f"selp.b32 %coming, {tiles}, %coming, %none;")
    assert {line.strip() for line in lines}.isdisjoint(instead)
    return "\n".join(lines) + "\n"


EVERY = every(range(7), 2)  # each number of tiles with code of its own after each other
SOME = 8  # items of a path that the audit follows to its end


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(EVERY) - 1, SOME - 1))
def test_items_of_all_numbers_of_tiles(several, first):
    text, beside = several
    counts = EVERY[first : first + SOME]
    report = audit_ptx(of_items(text, counts), Given(beside=beside))
    assert not report.findings, (counts, report.findings[:3])
    # All was followed; none of these items has rows past its sequence's end.
    assert all("are on no path" in said for said in report.unchecked), report.unchecked


@pytest.mark.slow
def test_what_items_need_is_found_missing(several):
    """The phase of Q, that of the odd slot, and the word that sums are read, each taken away."""
    text, beside = of_items(several[0], (5, 4, 1, 0, 2, 3)), several[1]
    head = "// ---- right, drain, i = N-1\n    xor.b32 %right_turn10, %right_turn10, 1;\n"
    odd = head + "    xor.b32 %right_turn11, %right_turn11, 1;\n"
    for old, new in (
        ("xor.b32 %left_own, %left_own, 1;", ""),
        (odd, head),
        ("bar.sync 9, 256;", ""),
    ):
        assert old in text
        assert audit_ptx(text.replace(old, new), Given(beside=beside), first=True).findings, old


def test_the_merge_kernel(tmp_path):
    report = audited(build("mla_decode_merge_sm90", MlaDecodeMergeConfig(64)), tmp_path)
    assert not report.findings and not report.unchecked


@pytest.mark.slow
def test_a_missing_fence_is_found(tmp_path):
    """Converted rows that nobody fences before the matrix instructions read them."""
    artifact = build("mla_decode_sm90", MlaDecodeConfig(8, cache_dtype="fp8_e4m3"))
    write_artifact(artifact, tmp_path)
    broken = artifact.text.replace("fence.proxy.async.shared::cta;", "")
    report = audit_ptx(broken, Given(beside=read_manifest(tmp_path / "manifest.json")), first=True)
    assert {finding.rule for finding in report.findings} == {"proxy-fence"}
