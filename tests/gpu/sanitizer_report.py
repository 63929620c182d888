"""Which tools see what: compute-sanitizer and `mlagen audit` on the Hopper kernels, as they are and
with defects planted in their PTX.

    python tests/gpu/sanitizer_report.py [--jobs N] [--forms] [--sparse] [--tools LIST]
                                          [--keep FOLDER] [KERNEL ..]

Needs a Hopper GPU, torch, cuda-bindings, a ptxas and compute-sanitizer. Prints a Markdown table.
`--forms`: the other forms of MLA decode, split and merged, as they are; `--split-keys`: every so
many keys, 128 unless told, which are two tiles: no block's loop runs; of 256 it runs once.
`--sparse`: forms of sparse MLA, as they are. torch caches no memory, so that each tensor is an
allocation of its own, whose ends memcheck knows, and which initcheck takes for unwritten at first.
`--keep`: what the tools printed in full, beside the artifact (`racecheck_exchanges.py` reads it).
`--tools`: names with commas between them; all by default. `--no-audit`: that column stays empty.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "examples")]

import sanitized_sparse  # noqa: E402

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
LONGEST = 150  # seconds of a launch under a tool
LENGTHS = (450, 130, 64, 1, 0)
LINE = (700, 690, 700)  # for persistent blocks: two shares cut the second one


def without(pattern: str, text: str, *, count: int = 0) -> str:
    """The text with matching lines commented out; an error if there are none."""
    made, found = re.subn(rf"(?m)^(\s*)({pattern})", r"\1// \2", text, count=count)
    if not found:
        raise SystemExit(f"nothing matches {pattern!r}")
    return made


def meets(text: str) -> str:
    """The right warpgroup meets before it arrives with its maximum and its sums."""
    made, found = re.subn(r"(?m)^(\s*)(bar\.arrive [68], 256;)", r"\1bar.sync 2, 128;\n\1\2", text)
    if not found:
        raise SystemExit("no arrival of the right warpgroup")
    return made


def fences(text: str) -> str:
    """Without the proxy fences before the arrival for P."""
    made, found = re.subn(
        r"fence\.proxy\.async\.shared::cta;(\s*)bar\.arrive", r"//\1bar.arrive", text
    )
    if not found:
        raise SystemExit("no fence before an arrival")
    return made


DECODE: dict[str, Callable[[str], str]] = {
    "as generated": lambda text: text,
    "none; the right warpgroup meets before it arrives": meets,
    "no proxy fence before the arrival for P": fences,
    "the row maximum is read without a barrier": lambda text: without(
        r"bar\.(sync|arrive) 5, 256;", text
    ),
    "three tiles of K are not waited for": lambda text: re.sub(
        r"@!%ready bra WAIT;", "", text, count=3
    ),
    "a warpgroup refills K without meeting": lambda text: without(r"bar\.sync 1, 128;", text),
}
GEMM: dict[str, Callable[[str], str]] = {
    "as generated": lambda text: text,
    "no proxy fence after cp.async": lambda text: without(
        r"fence\.proxy\.async\.shared::cta;", text
    ),
}


# Two roles write for each other as in the PTX ISA's own example of bar.arrive (bar, barrier: the
# producer stores and arrives, the consumer synchronises and loads), once in each direction.
EXCHANGE = """\
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry exchange(.param .u64 o, .param .u32 n)
.reqntid 256, 1, 1
{
    .reg .b32 %t, %at, %value;
    .reg .b64 %o, %index;
    .reg .pred %second;
    mov.u32 %t, %tid.x;
    mov.u32 %at, smem;
    mad.lo.u32 %at, %t, 4, %at;
    st.shared.u32 [%at], %t;
    setp.ge.u32 %second, %t, 128;
    @%second bra SECOND;
    bar.arrive 1, 256;
    bar.sync 2, 256;
    ld.shared.u32 %value, [%at + 512];
    bra STORE;
SECOND:
    bar.arrive 2, 256;
    bar.sync 1, 256;
    ld.shared.u32 %value, [%at + -512];
STORE:
    ld.param.u64 %o, [o];
    cvta.to.global.u64 %o, %o;
    mul.wide.u32 %index, %t, 4;
    add.u64 %o, %o, %index;
    st.global.u32 [%o], %value;
    ret;
}
"""


def answered(text: str) -> str:
    """The second role writes its value after it has read the first one's."""
    store = "    st.shared.u32 [%at], %t;\n"
    first = text.replace(store, "").replace("    bar.arrive 1", store + "    bar.arrive 1")
    before, second = first.split("SECOND:\n")
    lines = second.split("\n")
    arrive, sync, load = lines[:3]
    return "SECOND:\n".join([before, "\n".join([sync, load, store.rstrip(), arrive, *lines[3:]])])


def twice(text: str) -> str:
    """`answered`, the second role's warps meeting once more before they arrive."""
    return answered(text).replace("    bar.arrive 2", "    bar.sync 3, 128;\n    bar.arrive 2")


PLAIN: dict[str, Callable[[str], str]] = {
    "as the PTX ISA has it": lambda text: text,
    "one role answers the other": answered,
    "the same, and it meets before it arrives": twice,
    "without barriers": lambda text: without(r"bar\.(sync|arrive) \d, 256;", text),
}
KERNELS = {"exchange": PLAIN, "mla_decode_sm90": DECODE, "gemm cp.async": GEMM}
ALONE: dict[str, Callable[[str], str]] = {"as generated": lambda text: text}
# Fields of MLA decode problems; the splits that they are run with need the merge kernel, but for
# parts that are put together.
FORMS = {
    f"mla_decode_sm90 {fields}": ALONE
    for fields in (
        "num_heads=128 q_len=2",
        "num_heads=16 page_size=1",
        "num_heads=40 page_size=16 q_len=3",
        "num_heads=32 num_kv_heads=8 q_len=3",
        "num_heads=64 mask=sliding_window_causal[100]",
        "num_heads=128 cache_dtype=fp8_e4m3",
        "num_heads=16 cache_dtype=fp8_e4m3 page_size=1 q_len=2",
        "num_heads=64 cache_dtype=fp8_e4m3 page_size=32 mask=null q_len=2",
        "num_heads=12 dtype=fp8_e4m3 cache_dtype=fp8_e4m3 q_len=2",
        "num_heads=64 cache_dtype=fp8_rope_aware",
        "num_heads=12 dtype=fp8_rope_aware cache_dtype=fp8_rope_aware q_len=2",
        "num_heads=12 dtype=fp8_e4m3 cache_dtype=fp8_rope_aware page_size=1 q_len=2",
        "num_heads=16 together=4",
        "num_heads=8 page_size=1 together=2",
        "num_heads=16 cache_dtype=fp8_e4m3 together=2",
        "num_heads=16 dtype=fp8_e4m3 cache_dtype=fp8_e4m3 compute=fp8",
        "num_heads=16 dtype=fp8_e4m3 cache_dtype=fp8_e4m3 compute=fp8 together=2",
        "num_heads=32 dtype=fp8_e4m3 cache_dtype=fp8_e4m3 compute=fp8 together=2",
        "num_heads=16 cache_dtype=fp8_rope_aware together=2",
        "num_heads=64 persistent=1",
        "num_heads=128 persistent=1",
        "num_heads=40 page_size=16 q_len=3 persistent=1",
    )
}


SPARSE = dict.fromkeys(sanitized_sparse.FORMS, ALONE)


def exchange() -> Any:
    """The artifact of EXCHANGE."""
    from mlagen.artifact import Arg, Artifact, GridDim, Manifest, Proof, Resources, sha256
    from mlagen.targets.nvidia.ptxas import assemble_ptx

    code = assemble_ptx(EXCHANGE, file_name="k.ptx", source_lines={}, schedule_file="k.ptx").cubin
    manifest = Manifest(
        kernel="exchange", symbol="exchange", target="sm_90a", problem_type="",
        problem={}, schedule_file="", knobs={}, kernarg_bytes=16, block=(256, 1, 1),
        args=(Arg("o", 0, 8, "pointer", "write", dtype="int32"), Arg("n", 8, 4, "u32", "value")),
        grid=(GridDim("n", 256),), resources=Resources(32, 0, 0, 1024, 0, 0, 0),
        proof=Proof("proved"), tools={}, flags=(), text_sha256=sha256(EXCHANGE),
        code_sha256=sha256(code),
    )  # fmt: skip
    return Artifact(manifest, code, EXCHANGE)


def build(kernel: str) -> Any:
    if kernel == "exchange":
        return exchange()
    if kernel in SPARSE:
        from mlagen.app.build import build_artifact

        name, *fields = kernel.split(" ")
        given = dict(field.split("=") for field in fields)
        knobs = {name: given.pop(name) for name in ("rows_by",) if name in given}
        return build_artifact(name, given, knobs)
    from gemm.problem import GemmConfig

    from mlagen.codegen import build as make
    from mlagen.codegen.schedules import load
    from mlagen.families.mla_decode.problem import MlaDecodeConfig

    if kernel.startswith("mla_decode_sm90"):
        name, *fields = kernel.split(" ")
        given = dict(field.split("=") for field in fields) or {"num_heads": 64}
        given.pop("together", None)
        knobs = {name: int(given.pop(name)) for name in ("persistent",) if name in given}
        return make(name, MlaDecodeConfig.from_fields(given), knobs=knobs)
    schedule = load(str(HERE.parents[1] / "examples" / "gemm_bf16.py"), "sm_90a")
    return make(schedule, GemmConfig(), knobs={"feed": kernel.partition(" ")[2]})


def launch(kernel: str, folder: Path, split_keys: int) -> None:
    """Launches the artifact in the folder and says whether the result is right. `split_keys`: of
    the forms of MLA decode."""
    import torch
    from gemm.oracles import rounded as gemm_rounded
    from gemm.problem import GemmConfig
    from gemm.verification import gemm_inputs

    from mlagen.app.build import callable_of
    from mlagen.artifact import read_artifact
    from mlagen.bench.torch_arrays import to_gpu, to_host
    from mlagen.families.mla_decode.made_up import mla_decode_inputs
    from mlagen.families.mla_decode.rounded import rounded
    from mlagen.families.mla_decode.verification import order_of
    from mlagen.launch import CudaLauncher
    from mlagen.ops import MlaDecodeKernel
    from mlagen.problem.expected import compare

    artifact = read_artifact(folder)
    if kernel == "exchange":
        o = torch.full((256,), -1, device="cuda", dtype=torch.int32)
        CudaLauncher().launch(artifact, tensors={"o": o}, scalars={"n": 256}, sizes={"n": 256})
        right = bool((o == torch.arange(256, device="cuda").roll(128)).all())
    elif kernel in SPARSE:
        right = sanitized_sparse.right(artifact)
    elif kernel.startswith("mla_decode_sm90"):
        decode = callable_of(artifact)
        assert isinstance(decode, MlaDecodeKernel)
        lengths = LINE if "persistent" in kernel else LENGTHS
        inputs = mla_decode_inputs(decode.config, lengths=lengths, data="randn")
        planned = {"split_keys": split_keys} if kernel in FORMS else {"blocks": 1}
        if parts := re.search(r"together=(\d+)", kernel):
            planned = {"together": int(parts[1])}
        if "persistent" in kernel:
            rows = decode.config.num_heads * decode.config.q_len
            planned = {"blocks": 2 * -(-rows // 64)}
        plan = decode.plan(lengths, **planned)
        counted = "persistent" in kernel or parts is not None
        assert counted == bool((plan.work.items[:, 10] > 0).any())
        out, _ = decode(
            **{name: to_gpu(array) for name, array in inputs.tensors.items()},
            **inputs.scales,
            plan=plan,
        )
        torch.cuda.synchronize()
        order = order_of(decode.artifact)
        right = compare(
            rounded(inputs, splits=plan.splits, order=order).output, to_host(out)
        ).passed
    else:
        config = GemmConfig()
        given = gemm_inputs(config, m=130, n=264, k=520, data="randn")
        c = torch.full((130, 264), float("nan"), device="cuda", dtype=torch.bfloat16)
        sizes = {"m": 130, "n": 264, "k": 520}
        tensors = {"a": to_gpu(given.a), "b": to_gpu(given.b), "c": c}
        CudaLauncher().launch(artifact, tensors=tensors, scalars=sizes, sizes=sizes)
        torch.cuda.synchronize()
        right = compare(gemm_rounded(given), to_host(c).reshape(1, 130, 1, 264)).passed
    print("RESULT right" if right else "RESULT wrong")


def written(artifact: Any, text: str, folder: Path) -> Path:
    """The artifact with another text, assembled, in the folder."""
    from mlagen.artifact import sha256, write_artifact
    from mlagen.targets.nvidia.ptxas import assemble_ptx

    code = assemble_ptx(text, file_name="k.ptx", source_lines={}, schedule_file="k.ptx").cubin
    manifest = msgspec.structs.replace(
        artifact.manifest, text_sha256=sha256(text), code_sha256=sha256(code)
    )
    return write_artifact(replace(artifact, manifest=manifest, code=code, text=text), folder)


def audited(folder: Path, text: str) -> str:
    from mlagen.audit.ptx import Given, audit_ptx, read_manifest

    report = audit_ptx(text, Given(beside=read_manifest(folder / "manifest.json")))
    rules = sorted({finding.rule for finding in report.findings})
    return ", ".join(rules) or "clean"


def under(tool: str, kernel: str, path: Path, split_keys: int) -> tuple[str, str]:
    """(verdict of the tool, of the result). What it printed is beside the artifact."""
    command = [sys.executable, __file__, "--launch", kernel, str(path), str(split_keys)]
    if tool:
        found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        extra = ["--report-api-errors", "no"] if tool == "memcheck" else []
        command = [found, "--tool", tool, *extra, *command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST,
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs", "hangs"
    text = done.stdout + done.stderr
    (path / f"{tool or 'alone'}.txt").write_text(text)
    result = re.search(r"RESULT (\w+)", text)
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    verdict = "no summary" if summary is None else "clean" if summary[1] == "0" else summary[1]
    return verdict, result[1] if result else f"exit {done.returncode}"


def main() -> None:
    if sys.argv[1:2] == ["--launch"]:
        launch(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--forms", action="store_true")
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--split-keys", type=int, default=128, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--no-audit", action="store_true")
    parser.add_argument("--tools", default=",".join(TOOLS), metavar="LIST")
    options = parser.parse_args()
    tools = options.tools.split(",")
    if wrong := [tool for tool in tools if tool not in TOOLS]:
        parser.error(f"{wrong[0]!r} is not among: {', '.join(TOOLS)}")
    table = SPARSE if options.sparse else FORMS if options.forms else KERNELS
    unknown = [kernel for kernel in options.kernels if kernel not in table]
    if unknown:
        parser.error(f"{unknown[0]!r} is not among: {', '.join(map(repr, table))}")
    cases = [
        (kernel, defect)
        for kernel, defects in table.items()
        if not options.kernels or kernel in options.kernels
        for defect in defects
    ]
    named = list(dict.fromkeys(kernel for kernel, _ in cases))
    with ProcessPoolExecutor(options.jobs) as builders:
        originals = dict(zip(named, builders.map(build, named), strict=True))

    def line(case: tuple[str, str]) -> str:
        kernel, defect = case
        text = table[kernel][defect](originals[kernel].text)
        with tempfile.TemporaryDirectory() as temporary:
            name = re.sub(r"[^\w=]+", "_", f"{kernel} {defect}")
            folder = written(originals[kernel], text, (options.keep or Path(temporary)) / name)
            given = kernel, folder, options.split_keys
            _, result = under("", *given)
            verdicts = [under(tool, *given)[0] for tool in tools]
            found = "" if options.no_audit else audited(folder, text)
        return f"| {kernel} | {defect} | {' | '.join(verdicts)} | {found} | {result} |"

    print(f"| kernel | defect | {' | '.join(tools)} | mlagen audit | result |")
    print("|---|---|" + "---|" * (len(tools) + 2))
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(line, cases):
            print(found, flush=True)


if __name__ == "__main__":
    main()
