"""The checkers' wait-state table against LLVM's hazard recogniser, both ways.

Kernels of a few instructions are compiled from IR; LLVM pads what gfx950 does not interlock.
Over-strict: our table demands more than LLVM left between two instructions. Too weak: LLVM
emitted an s_nop that no pair of our table needs.
"""
# ruff: noqa: E501

import pytest
from gfx950_assembler import compile_ir

from mlagen.binary import load_code_object
from mlagen.binary.hazards import strictest_pair

_HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x16.bf16(<8 x bfloat>, <8 x bfloat>, <16 x float>, i32 immarg, i32 immarg, i32 immarg)
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.bf16(<8 x bfloat>, <8 x bfloat>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16>, <4 x i16>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
declare <16 x float> @llvm.amdgcn.mfma.scale.f32.32x32x64.f8f6f4.v8i32.v8i32(<8 x i32>, <8 x i32>, <16 x float>, i32 immarg, i32 immarg, i32 immarg, i32, i32 immarg, i32)
declare <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v8i32.v8i32(<8 x i32>, <8 x i32>, <4 x float>, i32 immarg, i32 immarg, i32 immarg, i32, i32 immarg, i32)
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x2f32(float, float, <16 x float>, i32 immarg, i32 immarg, i32 immarg)
declare {i32,i32} @llvm.amdgcn.permlane32.swap(i32, i32, i1 immarg, i1 immarg)
declare {i32,i32} @llvm.amdgcn.permlane16.swap(i32, i32, i1 immarg, i1 immarg)
declare float @llvm.amdgcn.exp2.f32(float)
declare float @llvm.amdgcn.rcp.f32(float)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.cvt.pk.fp8.f32(float, float, i32, i1 immarg)
declare void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8), ptr addrspace(3), i32 immarg, i32, i32, i32 immarg, i32 immarg)
declare void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32>, ptr addrspace(8), i32, i32, i32 immarg)
declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32 immarg)
declare <4 x double> @llvm.amdgcn.mfma.f64.16x16x4f64(double, double, <4 x double>, i32 immarg, i32 immarg, i32 immarg)
declare double @llvm.amdgcn.mfma.f64.4x4x4f64(double, double, double, i32 immarg, i32 immarg, i32 immarg)
declare <4 x float> @llvm.amdgcn.smfmac.f32.16x16x32.bf16(<4 x i16>, <8 x i16>, <4 x float>, i32, i32 immarg, i32 immarg)
@lds = internal addrspace(3) global [1024 x i32] undef, align 16
"""
_LOADS = """
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <8 x bfloat>, ptr addrspace(1) %p, i32 %t
  %a = load <8 x bfloat>, ptr addrspace(1) %pa
  %pb = getelementptr <8 x bfloat>, ptr addrspace(1) %q, i32 %t
  %b = load <8 x bfloat>, ptr addrspace(1) %pb
  %pc = getelementptr <16 x float>, ptr addrspace(1) %r, i32 %t
  %c = load <16 x float>, ptr addrspace(1) %pc
  %pc4 = getelementptr <4 x float>, ptr addrspace(1) %r, i32 %t
  %c4 = load <4 x float>, ptr addrspace(1) %pc4
  %i4 = bitcast <4 x float> %c4 to <4 x i32>
  %f0 = extractelement <4 x float> %c4, i32 0
  %f1 = extractelement <4 x float> %c4, i32 1
  %f2 = extractelement <4 x float> %c4, i32 2
  %i0 = extractelement <4 x i32> %i4, i32 0
  %i1 = extractelement <4 x i32> %i4, i32 1
  %pe = getelementptr <8 x i32>, ptr addrspace(1) %p, i32 %t
  %e = load <8 x i32>, ptr addrspace(1) %pe
  %e0 = extractelement <8 x i32> %e, i32 0
"""
_POINTERS = ", ".join(f"ptr addrspace(1) noalias %{name}" for name in "pqro")


def _store(kind):
    return (
        f"  %po = getelementptr {kind}, ptr addrspace(1) %o, i32 %t\n"
        f"  store {kind} %x, ptr addrspace(1) %po\n"
    )


_V16, _V4 = "<16 x float>", "<4 x float>"
_OPERANDS = "<8 x bfloat> %a, <8 x bfloat> %b"


def _big(result, c="%c", a="%a"):
    return (
        f"  {result} = call {_V16} @llvm.amdgcn.mfma.f32.32x32x16.bf16(<8 x bfloat> {a}, "
        f"<8 x bfloat> %b, {_V16} {c}, i32 0, i32 0, i32 0)\n"
    )


def _small(result, c="%c4", a="%a"):
    return (
        f"  {result} = call {_V4} @llvm.amdgcn.mfma.f32.16x16x32.bf16(<8 x bfloat> {a}, "
        f"<8 x bfloat> %b, {_V4} {c}, i32 0, i32 0, i32 0)\n"
    )


def _f8(result, shape, kind, c, e="%e", scale="0"):
    return (
        f"  {result} = call {kind} @llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v8i32.v8i32("
        f"<8 x i32> {e}, <8 x i32> {e}, {kind} {c}, i32 0, i32 0, i32 0, i32 {scale}, i32 0, "
        f"i32 {scale})\n"
    )


def _swap(result, width, x, y):
    return (
        f"  %pair{result} = call {{i32,i32}} @llvm.amdgcn.permlane{width}.swap(i32 {x}, i32 {y}, "
        f"i1 false, i1 false)\n"
        f"  %{result}0 = extractvalue {{i32,i32}} %pair{result}, 0\n"
        f"  %{result}1 = extractvalue {{i32,i32}} %pair{result}, 1\n"
    )


def _dpp(result, x):
    return (
        f"  {result} = call i32 @llvm.amdgcn.update.dpp.i32(i32 {x}, i32 {x}, i32 27, i32 15, "
        "i32 15, i1 true)\n"
    )


def _fp8(result, old, upper):
    return (
        f"  {result} = call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float %f0, float %f1, i32 {old}, "
        f"i1 {upper})\n"
    )


_DOUBLES = """
  %dp = getelementptr double, ptr addrspace(1) %p, i32 %t
  %u = load double, ptr addrspace(1) %dp
  %dq = getelementptr double, ptr addrspace(1) %q, i32 %t
  %v = load double, ptr addrspace(1) %dq
  %dr = getelementptr <4 x double>, ptr addrspace(1) %r, i32 %t
  %w = load <4 x double>, ptr addrspace(1) %dr
"""


def _f64(result, a="%u", c="%w"):
    return (
        f"  {result} = call <4 x double> @llvm.amdgcn.mfma.f64.16x16x4f64(double {a}, double %v, "
        f"<4 x double> {c}, i32 0, i32 0, i32 0)\n"
    )


def _f64_small(result, a="%u", c="%v"):
    return (
        f"  {result} = call double @llvm.amdgcn.mfma.f64.4x4x4f64(double {a}, double %v, "
        f"double {c}, i32 0, i32 0, i32 0)\n"
    )


def _sparse(result, c):
    return (
        f"  {result} = call {_V4} @llvm.amdgcn.smfmac.f32.16x16x32.bf16(<4 x i16> %sa, "
        f"<8 x i16> %sb, {_V4} {c}, i32 %i0, i32 0, i32 0)\n"
    )


_LDS_PLACE = "  %g = getelementptr [1024 x i32], ptr addrspace(3) @lds, i32 0, i32 %t\n"
PROBES = {
    "mfma 8 passes -> store": _big("%x") + _store(_V16),
    "mfma 8 passes -> valu": _big("%d") + f"  %x = fadd {_V16} %d, %c\n" + _store(_V16),
    "mfma 8 passes -> same accumulator": _big("%d") + _big("%x", "%d") + _store(_V16),
    "mfma 8 passes -> A operand": _big("%d")
    + f"  %s = shufflevector {_V16} %d, {_V16} undef, <4 x i32> <i32 0, i32 1, i32 2, i32 3>\n"
    + "  %sb = bitcast <4 x float> %s to <8 x bfloat>\n"
    + _big("%x", "%c", "%sb")
    + _store(_V16),
    "mfma 8 passes, C kept": _big("%x1")
    + _big("%x2", "%c", "%a")
    + f"  %x = fadd {_V16} %x1, %x2\n"
    + _store(_V16),
    "mfma 4 passes -> store": _small("%x") + _store(_V4),
    "mfma 4 passes -> valu": _small("%d") + f"  %x = fadd {_V4} %d, %c4\n" + _store(_V4),
    "mfma 4 passes -> LDS": _small("%d")
    + _LDS_PLACE
    + "  store <4 x float> %d, ptr addrspace(3) %g, align 16\n",
    "mfma 4 passes -> permlane -> permlane": _small("%d")
    + "  %di = bitcast <4 x float> %d to <4 x i32>\n"
    + "  %d0 = extractelement <4 x i32> %di, i32 0\n  %d1 = extractelement <4 x i32> %di, i32 1\n"
    + _swap("s", 32, "%d0", "%d1")
    + _swap("u", 16, "%s0", "%s1")
    + "  %x = add i32 %u0, %u1\n"
    + _store("i32"),
    "fp8 mfma 16 passes -> valu": _f8("%d", "32x32x64", _V16, "%c")
    + f"  %x = fadd {_V16} %d, %c\n"
    + _store(_V16),
    "fp8 mfma 8 passes -> valu": _f8("%d", "16x16x128", _V4, "%c4")
    + f"  %x = fadd {_V4} %d, %c4\n"
    + _store(_V4),
    "fp8 mfma 16 passes, C overwritten": _f8("%d", "32x32x64", _V16, "%c")
    + f"  %y = fadd {_V16} %c, %c\n"
    + f"  %p2 = getelementptr {_V16}, ptr addrspace(1) %q, i32 %t\n"
    + f"  store {_V16} %y, ptr addrspace(1) %p2\n  %x = fadd {_V16} %d, %c\n"
    + _store(_V16),
    "f32 mfma -> valu": f"  %d = call {_V16} @llvm.amdgcn.mfma.f32.32x32x2f32(float %f0, float %f1, "
    f"{_V16} %c, i32 0, i32 0, i32 0)\n  %x = fadd {_V16} %d, %c\n" + _store(_V16),
    "f32 mfma -> mfma A": f"  %d = call {_V16} @llvm.amdgcn.mfma.f32.32x32x2f32(float %f0, float %f1,"
    f" {_V16} %c, i32 0, i32 0, i32 0)\n  %g = extractelement {_V16} %d, i32 3\n"
    f"  %x = call {_V16} @llvm.amdgcn.mfma.f32.32x32x2f32(float %g, float %f1, {_V16} %c, i32 0, "
    "i32 0, i32 0)\n" + _store(_V16),
    "valu -> mfma A": "  %ai = bitcast <8 x bfloat> %a to <4 x i32>\n"
    "  %aj = add <4 x i32> %ai, <i32 7, i32 7, i32 7, i32 7>\n"
    "  %ak = bitcast <4 x i32> %aj to <8 x bfloat>\n" + _small("%x", "%c4", "%ak") + _store(_V4),
    "valu -> mfma C": f"  %cx = fadd {_V4} %c4, %c4\n" + _small("%x", "%cx") + _store(_V4),
    "trans -> mfma C": "  %g = call float @llvm.amdgcn.exp2.f32(float %f0)\n"
    f"  %cx = insertelement {_V4} %c4, float %g, i32 1\n" + _small("%x", "%cx") + _store(_V4),
    "valu -> scaled mfma scale": "  %s = mul i32 %e0, 77\n"
    + _f8("%x", "16x16x128", _V4, "%c4", scale="%s")
    + _store(_V4),
    "mfma -> scaled mfma scale": _f8("%y", "16x16x128", _V4, "%c4")
    + "  %yi = bitcast <4 x float> %y to <4 x i32>\n  %y0 = extractelement <4 x i32> %yi, i32 0\n"
    + _f8("%x", "16x16x128", _V4, "%c4", scale="%y0")
    + _store(_V4),
    "trans -> valu, trans -> trans": "  %g = call float @llvm.amdgcn.exp2.f32(float %f0)\n"
    "  %h = fadd float %g, 1.0\n  %i = call float @llvm.amdgcn.rcp.f32(float %h)\n"
    "  %j = call float @llvm.amdgcn.exp2.f32(float %i)\n  %x = fmul float %j, %f0\n"
    + _store("float"),
    "trans -> store": "  %x = call float @llvm.amdgcn.exp2.f32(float %f0)\n" + _store("float"),
    "trans -> dpp": "  %g = call float @llvm.amdgcn.exp2.f32(float %f0)\n"
    "  %gi = bitcast float %g to i32\n" + _dpp("%x", "%gi") + _store("i32"),
    "valu -> dpp": "  %g = mul i32 %i0, 37\n" + _dpp("%x", "%g") + _store("i32"),
    "valu -> permlane": "  %g = add i32 %i0, 3\n  %h = add i32 %i1, 3\n"
    + _swap("s", 32, "%g", "%h")
    + "  %x = add i32 %s0, 0\n"
    + _store("i32"),
    "permlane -> valu": _swap("s", 32, "%i0", "%i1") + "  %x = mul i32 %s0, %s1\n" + _store("i32"),
    "compare -> select": "  %k = fcmp ogt float %f0, %f1\n  %m = fcmp olt float %f2, %f1\n"
    "  %s = select i1 %k, float %f2, float %f0\n  %x = select i1 %m, float %s, float %f1\n"
    + _store("float"),
    "readfirstlane -> valu constant": "  %g = mul i32 %i0, 37\n"
    "  %s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %g)\n  %x = mul i32 %s, %i1\n"
    + _store("i32"),
    "readfirstlane -> lane select": "  %s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %i0)\n"
    "  %l = call i32 @llvm.amdgcn.readlane.i32(i32 %i1, i32 %s)\n  %x = mul i32 %l, %i1\n"
    + _store("i32"),
    "half write -> valu": _fp8("%g", "0", "false")
    + _fp8("%h", "%g", "true")
    + "  %x = mul i32 %h, 77\n"
    + _store("i32"),
    "f64 mfma -> valu": _DOUBLES
    + _f64("%d")
    + "  %x = fadd <4 x double> %d, %w\n"
    + _store("<4 x double>"),
    "f64 mfma -> store": _DOUBLES + _f64("%x") + _store("<4 x double>"),
    "f64 mfma -> same accumulator": _DOUBLES
    + _f64("%d")
    + _f64("%x", c="%d")
    + _store("<4 x double>"),
    "f64 mfma -> mfma A, mfma C": _DOUBLES
    + _f64("%d")
    + "  %e1 = extractelement <4 x double> %d, i32 1\n"
    + _f64_small("%y", c="%e1")
    + _f64_small("%x", a="%y", c="%e1")
    + _store("double"),
    "small f64 mfma -> valu": _DOUBLES
    + _f64_small("%d")
    + "  %x = fadd double %d, %u\n"
    + _store("double"),
    "small f64 mfma -> same accumulator -> store": _DOUBLES
    + _f64_small("%d")
    + _f64_small("%x", c="%d")
    + _store("double"),
    "sparse mfma -> same accumulator -> valu": "  %sb = bitcast <8 x bfloat> %a to <8 x i16>\n"
    "  %sa = shufflevector <8 x i16> %sb, <8 x i16> undef, <4 x i32> <i32 0, i32 1, i32 2, i32 3>\n"
    + _sparse("%d", "%c4")
    + _sparse("%y", "%d")
    + f"  %x = fadd {_V4} %y, %c4\n"
    + _store(_V4),
    "half write -> store": _fp8("%g", "0", "false") + _fp8("%x", "%g", "true") + _store("i32"),
}
_BUFFERS = {
    "readfirstlane -> buffer offset": """
  %v = load i32, ptr addrspace(1) %p
  %s = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %t)
  %x = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %b, i32 %t, i32 %s, i32 0)
"""
    + _store("i32"),
    "M0 -> load to LDS": """
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %b, ptr addrspace(3) @lds, i32 4, i32 %t, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %b, ptr addrspace(3) getelementptr ([1024 x i32], ptr addrspace(3) @lds, i32 0, i32 512), i32 4, i32 %t, i32 0, i32 0, i32 0)
""",
    "wide store -> overwrite": """
  %pp = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %t
  %v = load <4 x i32>, ptr addrspace(1) %pp
  call void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32> %v, ptr addrspace(8) %b, i32 %t, i32 0, i32 0)
  %w = mul <4 x i32> %v, <i32 3, i32 5, i32 7, i32 9>
  call void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32> %w, ptr addrspace(8) %b, i32 %t, i32 16, i32 0)
  %u = mul <4 x i32> %w, <i32 3, i32 5, i32 7, i32 9>
  %po = getelementptr <4 x i32>, ptr addrspace(1) %o, i32 %t
  store <4 x i32> %u, ptr addrspace(1) %po
  %x = mul <4 x i32> %u, <i32 3, i32 5, i32 7, i32 9>
  %po2 = getelementptr <4 x i32>, ptr addrspace(1) %p, i32 %t
  store <4 x i32> %x, ptr addrspace(1) %po2
""",
}


def _module():
    parts = [_HEAD]
    for number, body in enumerate(PROBES.values()):
        parts.append(f"define amdgpu_kernel void @p{number}({_POINTERS}) #0 {{{_LOADS}{body}")
        parts.append("  ret void\n}\n")
    for number, body in enumerate(_BUFFERS.values()):
        arguments = "ptr addrspace(8) %b, ptr addrspace(1) %p, ptr addrspace(1) %o"
        parts.append(f"define amdgpu_kernel void @b{number}({arguments}) #0 {{\n")
        parts.append(f"  %t = call i32 @llvm.amdgcn.workitem.id.x()\n{body}  ret void\n}}\n")
    features = '"amdgpu-flat-work-group-size"="64,64" "target-features"="-xnack"'
    parts.append(f"attributes #0 = {{ {features} nounwind }}\n")
    return "".join(parts)


def _provided(ins):
    return ins.modifier("simm16") + 1 if ins.mnemonic == "s_nop" else 1


def _compare(kernel):
    """(pairs LLVM left too close for our table, s_nops that no pair of our table needs)."""
    instructions = kernel.instructions
    accum = kernel.descriptor.accum_offset
    strict, slack = [], {}
    for later, consumer in enumerate(instructions):
        between = 0
        for earlier in range(later - 1, max(-1, later - 24), -1):
            need = strictest_pair(instructions[earlier], consumer, accum)[0]
            if need:
                if between < need:
                    strict.append(f"{instructions[earlier]} -> {consumer}: {need}, not {between}")
                for place in range(earlier + 1, later):
                    slack[place] = min(slack.get(place, 99), between - need)
            between += _provided(instructions[earlier])
    nops = [i for i, ins in enumerate(instructions) if ins.mnemonic == "s_nop"]
    weak = [f"{instructions[i - 1]} -> {instructions[i + 1]}" for i in nops if slack.get(i, 99)]
    return strict, weak, len(nops)


@pytest.fixture(scope="module")
def compiled():
    return load_code_object(compile_ir(_module())).kernels


@pytest.mark.parametrize(("number", "name"), list(enumerate(PROBES)))
def test_probe(compiled, number, name):
    strict, weak, _ = _compare(compiled[f"p{number}"])
    assert not strict, "our table demands more than LLVM"
    assert not weak, "LLVM pads what our table does not know"


@pytest.mark.parametrize(("number", "name"), list(enumerate(_BUFFERS)))
def test_buffer_probe(compiled, number, name):
    strict, weak, _ = _compare(compiled[f"b{number}"])
    assert not strict, "our table demands more than LLVM"
    assert not weak, "LLVM pads what our table does not know"


def test_the_probes_are_padded_at_all(compiled):
    """A probe that LLVM does not pad would prove nothing about the table's strength."""
    padded = [name for n, name in enumerate(PROBES) if _compare(compiled[f"p{n}"])[2]]
    free = {"permlane -> valu", "half write -> store", "trans -> store"}
    assert set(PROBES) - set(padded) <= free


def test_mixed_opcodes_on_one_accumulator_are_stricter_than_llvm():
    """LLVM 22 leaves them unpadded; its correction (pull request 218363) asks for P + 2."""
    mixed = f"""  %ah = shufflevector <8 x bfloat> %a, <8 x bfloat> undef, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %ai = bitcast <4 x bfloat> %ah to <4 x i16>
  %x = call {_V4} @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %ai, <4 x i16> %ai, {_V4} %d, i32 0, i32 0, i32 0)
"""
    body = _small("%d") + mixed + _store(_V4)
    text = f"{_HEAD}define amdgpu_kernel void @m({_POINTERS}) {{{_LOADS}{body}  ret void\n}}\n"
    kernel = load_code_object(compile_ir(text)).kernel("m")
    pair = [ins for ins in kernel.instructions if "mfma" in ins.mnemonic]
    assert strictest_pair(pair[0], pair[1], 256)[0] == 6
