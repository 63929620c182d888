"""What pages take for granted: the artifacts they speak of, and commands that are run elsewhere."""

from __future__ import annotations

import re

# Commands (as a page's reader would type them) that make what the page speaks of.
SMALL = "--set num_heads=1 --set num_kv_heads=1"
PREPARE: dict[str, tuple[str, ...]] = {
    "audit.md": (
        "mlagen build examples/gemm_bf16.py --target gfx950 -o out/artifact",
        "cp out/artifact/kernel.co kernel.co",
        "mlagen emulate kernel.co --template > launch.toml",
    ),
    "../README.md": (
        f"mlagen build mha_prefill_v2 {SMALL} -o out/other",
        "mkdir -p docs/pictures",
        "cp $ROOT/tests/audit/kernels/handoff.ptx kernel.ptx",
        "cp out/other/kernel.co kernel.co",
    ),
    "decode_in_an_engine.md": ("cp $ROOT/tests/audit/kernels/handoff.ptx kernel.ptx",),
    "emulate.md": (f"mlagen build mha_prefill_v2 {SMALL} -o out/k",),
    "timing.md": (
        f"mlagen build mha_prefill_v2 {SMALL} -o out/k",
        f"mlagen build mha_prefill_v2 {SMALL} --knob qk_pattern=16x1:4 -o out/other",
    ),
    "inspect.md": (
        f"mlagen build mha_prefill_v2 {SMALL} -o out/k",
        f"mlagen build mha_prefill_v2 {SMALL} --knob k_swizzle='9-8 into 4-5' -o out/theirs",
        "cp out/theirs/kernel.co theirs.co",
    ),
    "mutation.md": (f"mlagen build mha_prefill_v2 {SMALL} -o out/artifact",),
    "ptx_audit.md": (
        "mlagen build examples/gemm_bf16.py --target sm_90a -o out/artifact",
        "cp $ROOT/tests/audit/kernels/handoff.ptx kernel.ptx",
        "mlagen emulate kernel.ptx --template > launch.toml",
        "sed -i -e 's/dynamic_shared = 0/dynamic_shared = 65792/' launch.toml",
    ),
}

# Python that defines what the snippets of a page use.
MHA_TENSORS = """
import ml_dtypes, numpy as np
q = np.ones((1, 32, 8, 128), ml_dtypes.bfloat16)
k = v = np.ones((1, 64, 2, 128), ml_dtypes.bfloat16)
buffer = np.empty_like(q)
"""
DECODED = """
import ml_dtypes, numpy as np
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.made_up import mla_decode_inputs
inputs = mla_decode_inputs(MlaDecodeConfig(num_heads=128), lengths=[70, 0])
from mlagen.families.mla_decode.exact import exact as _exact
_found = _exact(inputs)
o = _found.output.values.astype(ml_dtypes.bfloat16)
lse = _found.lse.values[..., 0].transpose(0, 2, 1).astype(np.float32)
"""
NAMES: dict[str, str] = {
    "../README.md": MHA_TENSORS,
    "launching.md": MHA_TENSORS,
    "oracles_mla_decode.md": DECODED,
}

# A page's command, or the first line of its snippet -> where it is run instead of here.
ELSEWHERE: dict[tuple[str, str], str] = {
    ("ptx_emulator.md", "mlagen mutate examples/gemm_bf16.py --target sm_90a --sample 4"): (
        "tests/mutation judges mutants of it"
    ),
    (
        "tuning.md",
        "mlagen tune run mla_prefill_v2 --target gfx950 --set num_heads=1 --set num_kv_heads=1 "
        "--set mask=null --shape seq_len=256 --shape num_keys=2048 --sampler descent --minutes 6 "
        "--jobs 1",
    ): "six minutes, and as long for each other row; its figures are in the page",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py --forms --jobs 8 --no-audit --keep FOLDER",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py --forms --split-keys 256 --jobs 8 --no-audit --keep "
        "FOLDER",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py --sparse --jobs 14 --no-audit --keep FOLDER",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py --forms --tools racecheck,synccheck --no-audit "
        "--jobs 5 --keep FOLDER",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/sanitizer_report.py --sparse --tools racecheck,synccheck --no-audit "
        "--jobs 5 --keep FOLDER",
    ): "needs a GPU and compute-sanitizer; tests/gpu uses what it runs",
    (
        "hopper_checks.md",
        "python tests/gpu/racecheck_exchanges.py FOLDER",
    ): "needs what racecheck printed, and nvdisasm",
    (
        "hopper_checks.md",
        "python tests/gpu/exchange_order.py FOLDER",
    ): "needs kernels that were kept, and nvdisasm",
    (
        "compilers_kernels.md",
        "pytest tests/compilers",
    ): "it is a part of this suite, where Triton is installed",
    (
        "compilers_kernels.md",
        "python tests/compilers/bundle.py FOLDER",
    ): "needs Triton; tests/compilers writes bundles",
    (
        "compilers_kernels.md",
        "python tests/compilers/census.py FOLDER",
    ): "needs PTX files; tests/compilers counts opcodes",
    (
        "compilers_kernels.md",
        "python tests/gpu/run_bundles.py FOLDER --out GPU",
    ): "needs a GPU; tests/compilers plays its driver",
    (
        "compilers_kernels.md",
        "python tests/compilers/emulate_bundles.py FOLDER --out EMU",
    ): "needs bundles; tests/compilers runs them in the emulator",
    (
        "compilers_kernels.md",
        "python tests/compilers/compare_bits.py FOLDER EMU/bits.npz GPU/bits.npz",
    ): "needs a GPU's bits; tests/compilers compares two sides",
    (
        "fuzzing.md",
        "python tests/schedule_fuzz/run.py -o out/sizes --sizes --edits gfx950=700 "
        "--edits sm_90a=760 --edits sm_100a=720",
    ): "it takes many minutes; tests/schedule_fuzz runs a slice",
    (
        "fuzzing.md",
        "python tests/schedule_fuzz/run.py -o out/sizes --report",
    ): "it reads what the campaign left",
    (
        "fuzzing.md",
        "python tests/foreign/fuzz.py --ptx --cases 50000 --seed 1",
    ): "it takes many minutes; tests/foreign runs a slice",
    (
        "fuzzing.md",
        "python tests/foreign/fuzz.py --ptx --cases 10000 --seed 21 --jobs 1 --patience 240",
    ): "it takes many minutes; tests/foreign runs a slice",
    (
        "fuzzing.md",
        "python tests/foreign/fuzz.py --cases 100000 --seed 1",
    ): "it takes many minutes; tests/foreign runs a slice",
    (
        "fuzzing.md",
        "python tests/foreign/fuzz.py --cases 100000 --seed 1 --jobs 2 --patience 240",
    ): "it takes many minutes; tests/foreign runs a slice",
    (
        "fuzzing.md",
        "pytest tests/hostile",
    ): "it is a part of the test suite",
    (
        "fuzzing.md",
        "MLAGEN_ACCEPTANCE=1 pytest tests/hostile",
    ): "it takes many minutes; the test suite runs a sample",
    (
        "memory.md",
        "MLAGEN_ACCEPTANCE=1 python -m pytest tests/damage",
    ): "it takes some minutes; the test suite runs a sample",
    (
        "foreign_ptx.md",
        "pytest tests/foreign/test_audit_flashmla.py",
    ): "it is a part of the test suite",
    (
        "ptx_arithmetic.md",
        "pytest -s tests/foreign/test_tcgen05_models.py",
    ): "it is a part of the test suite",
    (
        "foreign_ptx.md",
        "pytest tests/foreign/test_emulate_flashmla.py",
    ): "it is a part of the test suite",
    (
        "foreign_ptx.md",
        "mlagen audit FOLDER/sm90_sparse_prefill_k576.ptx --smem 230864 --max-seconds 60",
    ): "needs FlashMLA's kernels as PTX: tests/foreign asks for a verdict on every finding",
    (
        "foreign_kernels.md",
        "python tests/foreign/foreign_report.py aiter_fmha --mode earliest --summary",
    ): "needs AITER's objects: tests/foreign runs these launches",
    (
        "foreign_kernels.md",
        "python tests/foreign/fmha_verdicts.py",
    ): "needs AITER's objects: tests/foreign asks for a verdict on every finding",
    (
        "mla_prefill_vs_aiter.md",
        "python benchmarks/mla_prefill_vs_aiter.py --aiter FOLDER --kernel mla_prefill_v2 "
        "--data realistic",
    ): "needs AITER's objects: tests/foreign holds its counts",
    (
        "mla_decode_vs_aiter.md",
        "python benchmarks/mla_decode_vs_aiter.py --aiter FOLDER --formats bf16",
    ): "needs AITER's objects: tests/timing holds the model's errors at published calls",
    (
        "mla_decode_vs_aiter.md",
        "python benchmarks/mla_decode_vs_aiter.py --aiter FOLDER --formats e4m3",
    ): "needs AITER's objects: tests/timing holds the model's errors at published calls",
    (
        "mla_decode_vs_aiter.md",
        "python benchmarks/mla_decode_vs_aiter.py --aiter FOLDER --formats fp8",
    ): "needs AITER's objects: tests/timing holds the model's errors at published calls",
    (
        "mla_decode_vs_aiter.md",
        "python benchmarks/mla_decode_arrays.py --aiter FOLDER",
    ): "needs AITER's objects: tests/foreign holds their results",
    (
        "foreign_kernels_mla.md",
        "pytest tests/foreign/test_aiter_mla.py",
    ): "it is a part of the test suite",
    (
        "foreign_kernels_mla.md",
        "python tests/foreign/foreign_report.py aiter_mla aiter_mla_prefill --mode earliest",
    ): "needs AITER's objects: tests/foreign runs these launches",
    (
        "foreign_kernels_bwd_pa.md",
        "python tests/foreign/foreign_report.py aiter_bwd --mode earliest",
    ): "needs AITER's objects: tests/foreign runs these launches",
    (
        "foreign_kernels_bwd_pa.md",
        "python tests/foreign/foreign_report.py aiter_pa --mode all",
    ): "needs AITER's objects: tests/foreign runs these launches",
    (
        "fidelity.md",
        "python tests/foreign/family_report.py FOLDER",
    ): "needs AITER's objects: tests/foreign holds two of its rows",
    (
        "foreign_kernels_mla.md",
        "python tests/foreign/mla_verdicts.py",
    ): "needs AITER's objects: tests/foreign asks for a verdict on every finding",
    (
        "mutation.md",
        "mlagen mutate mha_prefill_v2 --set num_heads=8 --set num_kv_heads=2 --set mask=causal "
        "--sample 50 --seed 1",
    ): "like the line before it; tests/mutation judges a sample",
    (
        "mutation.md",
        "mlagen mutate examples/gemm_bf16.py --target gfx950 --sample 12",
    ): "tests/mutation judges a sample",
    (
        "mutation.md",
        "mlagen mutate mla_sparse_decode_gfx950 --set num_heads=16 --set rows=v32 --sample 20 "
        "--seed 31",
    ): "it takes minutes: tests/mutation judges a sample",
    (
        "mutation_ptx.md",
        "mlagen mutate mla_decode_sm90 --set num_heads=16 --sample 60 --seed 1 -o out/m",
    ): "it takes minutes: tests/mutation judges mutants of PTX, from a launch file too",
    (
        "mutation_ptx.md",
        "mlagen mutate examples/gemm_bf16.py --target sm_90a --sample 80 --judge emulator",
    ): "it takes minutes: tests/mutation judges mutants of PTX, from a launch file too",
    (
        "mutation_ptx.md",
        "mlagen mutate kernel.ptx --launch one.toml --launch two.toml --sample 100",
    ): "it takes minutes: tests/mutation judges mutants of PTX, from a launch file too",
    (
        "mutation_ptx.md",
        "mlagen mutate sm90_dense_decode_bf16.ptx --launch mixed.toml --launch split.toml "
        "--launch tails.toml --launch whole7.toml --launch whole8.toml --sample 100 --seed 1 "
        "--judge emulator",
    ): "needs FlashMLA's kernel as PTX: tests/mutation judges mutants of PTX",
    (
        "mutation_ptx.md",
        "mlagen mutate out/hopper --class fences --class phases --judge audit",
    ): "it takes minutes: tests/mutation judges mutants of PTX, from a launch file too",
    (
        "mutation.md",
        "python tests/schedule_fuzz/run.py -o out/fuzz --edits gfx950=3000 --edits sm_90a=1000",
    ): "it takes many minutes; tests/schedule_fuzz runs a slice",
    (
        "mutation.md",
        "python tests/schedule_fuzz/run.py -o out/fuzz --report",
    ): "it reads what the line before it left",
    (
        "audit.md",
        "mlagen audit kernel.co --mutate --sample 50",
    ): "it ends with 4 where a mutant is not told: tests/audit runs it",
    (
        "audit.md",
        "python tests/foreign/recall_report.py out/mha_prefill_v2 --sample 150 --write",
    ): "needs AITER's objects, and many minutes",
    (
        "foreign_audit.md",
        "python tests/audited/audit_list.py",
    ): "needs repositories of others, and many minutes",
    (
        "foreign_audit.md",
        "python tests/audited/audit_list.py --ours",
    ): "it takes some minutes; tests/audited runs a sample",
    (
        "timing.md",
        "python benchmarks/cycle_model_errors.py FOLDER --history HISTORY --fit",
    ): "needs AITER's objects: tests/timing holds the page against it",
    (
        "best_schedules.md",
        "python benchmarks/cycle_model_errors.py FOLDER --history HISTORY --fit",
    ): "needs AITER's objects",
    ("hazards.md", "pytest tests/hazards"): "it is a part of the test suite",
    (
        "mla_decode_speed.md",
        "python benchmarks/decode_grid.py",
    ): "needs a GPU: its figures are in the page",
    (
        "mla_decode_speed.md",
        "mlagen bench mla_decode_sm90 --set num_heads=128 --shape batch=128 "
        "--shape keys=4096,8192,16384,32768",
    ): "needs a GPU: tests/cli runs it on a lab without one",
    (
        "mla_decode.md",
        "python tests/gpu/flash_mla_tests.py FOLDER --jobs 7 --only results",
    ): "needs a GPU and a checkout of FlashMLA",
    (
        "mla_sparse.md",
        "python tests/gpu/flash_mla_tests.py FOLDER --test decode --jobs 7 --only results",
    ): "needs a GPU and a checkout of FlashMLA",
    (
        "mla_sparse.md",
        "python tests/ops/flash_mla_emulated.py FOLDER decode "
        '--where "c.decode.b == 4 and c.topk == 64"',
    ): "needs torch and a checkout of FlashMLA",
    (
        "../README.md",
        "mlagen bench mla_decode_sm90 --set num_heads=128 --shape batch=128 --shape keys=8192",
    ): "needs a GPU: tests/cli runs it on a lab without one",
    (
        "mla_decode.md",
        'kernel = mlagen.build("mla_decode_sm90", num_heads=128)',
    ): "needs a GPU: tests/gpu, and tests/ops with stand-ins of its tensors",
    (
        "mla_decode.md",
        'kernel = mlagen.build("mla_decode_sm90", num_heads=128, dtype="fp8_e4m3", '
        'cache_dtype="fp8_e4m3")',
    ): "needs a GPU: tests/gpu, and tests/ops with stand-ins of its tensors",
    (
        "hazards.md",
        "python tests/hazards/hazard_report.py --write",
    ): "tests/hazards holds the page against the report",
    (
        "launching.md",
        "made = kernel.arguments(q, k, v)      # checked, the output made; "
        "q_offsets=, page_table=, .. too",
    ): "needs a GPU: tests/launch does it with a stand-in of its runtime",
    (
        "launching.md",
        "graph = torch.cuda.CUDAGraph()",
    ): "needs a GPU: tests/launch, tests/gpu",
    (
        "ptx_audit.md",
        "mlagen audit kernel.ptx --strict",
    ): "it ends with 6 where something is unproved: tests/audit/test_audit_several.py",
    (
        "ptx_audit.md",
        "python tests/audit/audit_report.py --write out/gemm_bf16 out/mla_decode_sm90",
    ): "it writes the page; tests/audit holds the page against its figures",
}


def shorter(command: str) -> str:
    """The command as it is run here: a campaign of mutants takes minutes, a sample seconds."""
    if re.match(r"mlagen mutate\b|mlagen audit\b.* --mutate\b", command):
        sample = "1" if command.startswith("mlagen mutate") else "10"
        return f"{re.sub(r' --sample [0-9]+', '', command)} --sample {sample}"
    return command
