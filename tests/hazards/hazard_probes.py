"""Pairs of instructions whose padding is asked of LLVM: a few lines of IR each.

A probe is one kernel: values enter in chosen registers through empty inline assembly, an `s_nop 7`
separates them from what follows (LLVM takes inline assembly for a producer), the pair is plain IR
and intrinsics, and a marked inline assembly ends it. Chosen registers make overlaps: a value that
leaves in registers where another one lives is what forces a WAW or a WAR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

START = "s_nop 7"
END = "; end of probe"

_TYPES = {
    "h": "<8 x bfloat>", "k": "<4 x i16>", "f": "float", "i": "i32", "f4": "<4 x float>",
    "f16": "<16 x float>", "f32": "<32 x float>", "i2": "<2 x i32>", "i3": "<3 x i32>",
    "i4": "<4 x i32>", "i8": "<8 x i32>", "i16": "<16 x i32>", "q": "i64", "H": "<2 x half>",
    "l": "ptr addrspace(3)", "g": "ptr addrspace(1)", "b": "ptr addrspace(8)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Probe:
    """One cell of a table: `row` is the producer, `column` the consumer.

    `sources` and `sinks` are "name:type:registers"; `producer` and `consumer` are how the lines
    of the pair start: the first consumer after a producer, and the last producer before it.
    """

    table: str
    row: str
    column: str
    sources: str
    body: str
    sinks: str
    producer: str
    consumer: str

    @property
    def name(self) -> str:
        return f"{self.table}: {self.row} -> {self.column}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix instruction: IR of `%d = f(%a, %b, C)` and where its operands live."""

    row: str
    mnemonic: str
    call: str
    inputs: str
    result: str  # type code
    size: int

    def ir(self, result: str, a: str, b: str, c: str) -> str:
        return f"%{result} = " + self.call.format(a=a, b=b, c=c)


def _mfma(name: str, inputs: str, result: str) -> str:
    into, operand = _TYPES[result], _TYPES[inputs]
    return (
        f"call {into} @llvm.amdgcn.mfma.f32.{name}({operand} {{a}}, {operand} {{b}}, {into} {{c}},"
        " i32 0, i32 0, i32 0)"
    )


def _scaled(shape: str, inputs: str, result: str, form: int) -> str:
    into, operand = _TYPES[result], _TYPES[inputs]
    vector = operand.strip("<>").replace(" x ", "")
    return (
        f"call {into} @llvm.amdgcn.mfma.scale.f32.{shape}.f8f6f4.v{vector}.v{vector}("
        f"{operand} {{a}}, {operand} {{b}}, {into} {{c}}, i32 {form}, i32 {form}, "
        "i32 0, i32 0, i32 0, i32 0)"
    )


M4X4 = Matrix(
    "4x4x4 bf16 (2 passes)",
    "v_mfma_f32_4x4x4_16b_bf16",
    _mfma("4x4x4bf16.1k", "k", "f4"),
    "k",
    "f4",
    4,
)
M16X16 = Matrix(
    "16x16x32 bf16 (4)", "v_mfma_f32_16x16x32_bf16", _mfma("16x16x32.bf16", "h", "f4"), "h", "f4", 4
)
M16X16_OLD = Matrix(
    "16x16x16 bf16 (4)",
    "v_mfma_f32_16x16x16_bf16",
    _mfma("16x16x16bf16.1k", "k", "f4"),
    "k",
    "f4",
    4,
)
M32X32 = Matrix(
    "32x32x16 bf16 (8)",
    "v_mfma_f32_32x32x16_bf16",
    _mfma("32x32x16.bf16", "h", "f16"),
    "h",
    "f16",
    16,
)
FP4 = Matrix(
    "32x32x64 fp4 (8)",
    "v_mfma_f32_32x32x64_f8f6f4",
    _scaled("32x32x64", "i4", "f16", 4),
    "i4",
    "f16",
    16,
)
FP8 = Matrix(
    "32x32x64 fp8 (16)",
    "v_mfma_f32_32x32x64_f8f6f4",
    _scaled("32x32x64", "i8", "f16", 0),
    "i8",
    "f16",
    16,
)
FP8_SMALL = Matrix(
    "16x16x128 fp8 (8)",
    "v_mfma_f32_16x16x128_f8f6f4",
    _scaled("16x16x128", "i8", "f4", 0),
    "i8",
    "f4",
    4,
)
F32_2 = Matrix(
    "4x4x1 f32 (2)", "v_mfma_f32_4x4x1_16b_f32", _mfma("4x4x1f32", "f", "f4"), "f", "f4", 4
)
F32_8 = Matrix(
    "16x16x4 f32 (8)", "v_mfma_f32_16x16x4_f32", _mfma("16x16x4f32", "f", "f4"), "f", "f4", 4
)
F32_16 = Matrix("32x32x2 f32 (16)", "v_mfma_f32_32x32x2_f32",
                _mfma("32x32x2f32", "f", "f16"), "f", "f16", 16)  # fmt: skip
MATRICES = (M4X4, M16X16, M16X16_OLD, M32X32, FP4, FP8_SMALL, FP8, F32_2, F32_8, F32_16)

MATRIX_TABLE = "results and operands of matrix instructions"
VECTOR_TABLE = "results of vector instructions"
SCALAR_TABLE = "scalar registers and hardware state"
STORE_TABLE = "stores that still read their data"
DOT_TABLE = "dot products"
STREAM_TABLE = "longer streams"


# Registers of SrcA and SrcB by their type code.
_INPUTS = {
    "k": ("v[0:1]", "v[4:5]"), "h": ("v[0:3]", "v[4:7]"), "f": ("v0", "v4"),
    "i4": ("v[0:3]", "v[8:11]"), "i8": ("v[0:7]", "v[8:15]"),
}  # fmt: skip


def _quarter_into(part: str, rest: str, at: int) -> str:
    """IR of %s: the 16 floats %rest with the 4 of %part at index `at`."""
    wide = ", ".join(f"i32 {index}" if index < 4 else "i32 poison" for index in range(16))
    take = ", ".join(
        f"i32 {index - at}" if at <= index < at + 4 else f"i32 {index + 16}" for index in range(16)
    )
    return (
        f"%w = shufflevector <4 x float> %{part}, <4 x float> poison, <16 x i32> <{wide}>\n"
        f"%s = shufflevector <16 x float> %w, <16 x float> %{rest}, <16 x i32> <{take}>"
    )


def _matrix_probes() -> list[Probe]:
    probes = []

    def add(matrix: Matrix, column: str, sources: str, body: str, sinks: str, use: str) -> None:
        code = matrix.result
        at = "v[20:35]" if matrix.size == 16 else "v[20:23]"
        inputs = _INPUTS[matrix.inputs]
        common = (
            f"a:{matrix.inputs}:{inputs[0]} b:{matrix.inputs}:{inputs[1]} c:{code}:{at} "
            "x:f:v60 i:i:v64 l:l:v61 g:g:v[62:63] r:b:s[8:11]"
        )
        probes.append(
            Probe(MATRIX_TABLE, matrix.row, column, f"{common} {sources}".strip(),
                  f"{matrix.ir('d', '%a', '%b', '%c')}\n{body}", sinks.replace("@", at),
                  matrix.mnemonic, use)
        )  # fmt: skip

    for matrix in MATRICES:
        code, size = matrix.result, matrix.size
        whole = _TYPES[code]
        keep = f"d:{code}:@"
        away = f"d:{code}:" + ("v[40:55]" if size == 16 else "v[40:43]")
        one = f"%e = extractelement {whole} %d, i32 3\n"
        word = one + "%ei = bitcast float %e to i32\n"
        put = f"%z = insertelement {whole} %d, float %y, i32 3"
        pair = (
            f"%h = shufflevector {whole} %d, {whole} poison, <2 x i32> <i32 0, i32 1>\n"
            "%k = bitcast <2 x float> %h to <4 x i16>\n"
        )
        square = "%y = fmul float %x, %x\n"
        load_lds = "%y = load float, ptr addrspace(3) %l\n"
        load = "%y = load float, ptr addrspace(1) %g\n"
        m = matrix
        add(m, "VALU reads D", "", one + "%y = fmul float %x, %e", "y:f:v65", "v_mul_f32")
        add(
            m,
            "exp reads D",
            "",
            one + "%y = call float @llvm.amdgcn.exp2.f32(float %e)",
            "y:f:v65",
            "v_exp_f32",
        )
        add(
            m,
            "permlane swap reads D",
            "",
            word
            + "%q = call {i32, i32} @llvm.amdgcn.permlane32.swap(i32 %ei, i32 %i, i1 0, i1 0)\n"
            "%q0 = extractvalue {i32, i32} %q, 0\n%q1 = extractvalue {i32, i32} %q, 1",
            "q0:i:v65 q1:i:v64",
            "v_permlane32_swap",
        )
        add(
            m,
            "readfirstlane reads D",
            "",
            word + "%y = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %ei)",
            "y:i:s20",
            "v_readfirstlane",
        )
        add(
            m, "ds_write reads D", "", one + "store float %e, ptr addrspace(3) %l", keep, "ds_write"
        )
        add(
            m,
            "global_store reads D",
            "",
            one + "store float %e, ptr addrspace(1) %g",
            keep,
            "global_store",
        )
        add(
            m,
            "buffer_load address in D",
            "",
            word + "%y = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %r, "
            "i32 %ei, i32 0, i32 0)",
            f"{keep} y:i:v65",
            "buffer_load",
        )
        add(m, "VALU overwrites D", "", square + put, f"z:{code}:@", "v_mul_f32")
        add(m, "ds_read overwrites D", "", load_lds + put, f"z:{code}:@", "ds_read")
        add(m, "global_load overwrites D", "", load + put, f"z:{code}:@", "global_load")
        add(m, "VALU overwrites SrcC", "", square, f"{away} y:f:v20", "v_mul_f32")
        add(m, "ds_read overwrites SrcC", "", load_lds, f"{away} y:f:v20", "ds_read")
        add(m, "global_load overwrites SrcC", "", load, f"{away} y:f:v20", "global_load")
        add(m, "VALU overwrites SrcA", "", square, f"{keep} y:f:v0", "v_mul_f32")
        add(
            m,
            "ds_read overwrites SrcB",
            "",
            load_lds,
            f"{keep} y:f:v{8 if m.inputs in ('i4', 'i8') else 4}",
            "ds_read",
        )
        add(
            m,
            "MFMA SrcA, SrcB = D",
            "q:f4:v[70:73]",
            pair + M16X16_OLD.ir("n", "%k", "%k", "%q"),
            f"n:f4:v[70:73] {keep}",
            M16X16_OLD.mnemonic,
        )
        add(m, "same opcode, SrcC = D", "", m.ir("n", "%a", "%b", "%d"), f"n:{code}:@", m.mnemonic)
        if size == 16:
            four = (
                f"%h = shufflevector {whole} %d, {whole} poison, "
                "<4 x i32> <i32 4, i32 5, i32 6, i32 7>\n"
            )
            add(
                m,
                "MFMA SrcC overlaps D",
                "k:k:v[70:71]",
                four + M16X16_OLD.ir("n", "%k", "%k", "%h"),
                f"n:f4:v[80:83] {keep}",
                M16X16_OLD.mnemonic,
            )
            add(
                m,
                "f32 MFMA SrcC overlaps D",
                "",
                four + F32_8.ir("n", "%x", "%x", "%h"),
                f"n:f4:v[80:83] {keep}",
                F32_8.mnemonic,
            )
            add(
                m,
                "MFMA overwrites D",
                "k:k:v[70:71]",
                M16X16_OLD.ir("n", "%k", "%k", "zeroinitializer")
                + "\n"
                + _quarter_into("n", "d", 0),
                "s:f16:@",
                M16X16_OLD.mnemonic,
            )
        else:
            # The result lies inside the 16 registers that the next instruction accumulates on.
            add(
                m,
                "MFMA SrcC overlaps D",
                "c2:f16:v[16:31] k:h:v[70:73]",
                _quarter_into("d", "c2", 4) + "\n" + M32X32.ir("n", "%k", "%k", "%s"),
                "n:f16:v[80:95]",
                M32X32.mnemonic,
            )
            add(
                m,
                "f32 MFMA SrcC overlaps D",
                "c2:f16:v[16:31]",
                _quarter_into("d", "c2", 4) + "\n" + F32_16.ir("n", "%x", "%x", "%s"),
                "n:f16:v[80:95]",
                F32_16.mnemonic,
            )
            other = M4X4 if m is not M4X4 else M16X16_OLD
            add(
                m,
                "other opcode, SrcC = D",
                "k:k:v[70:71]",
                other.ir("n", "%k", "%k", "%d"),
                "n:f4:v[80:83]",
                other.mnemonic,
            )
            other = F32_2 if m is not F32_2 else F32_8
            add(
                m,
                "other f32 opcode, SrcC = D",
                "",
                other.ir("n", "%x", "%x", "%d"),
                "n:f4:v[80:83]",
                other.mnemonic,
            )
    # Accumulators in AGPRs.
    add(
        M32X32,
        "v_accvgpr_read of D",
        "k:k:v[70:71]",
        "%e = extractelement <16 x float> %d, i32 3",
        "d:f16:a[0:15] e:f:v65",
        "v_accvgpr_read",
    )
    return probes


_VECTOR_SOURCES = (
    "x:f:v60 t:f:v64 o:i:v62 i:i:v71 l:l:v72 g:g:v[74:75] r:b:s[8:11] c:f4:v[20:23] k:k:v[76:77] "
    "q4:i4:v[84:87]"
)
_AS_FLOAT = "\n%y = bitcast i32 %yo to float"
_DPP = "call i32 @llvm.amdgcn.update.dpp.i32(i32 {old}, i32 {new}, i32 78, i32 15, i32 15, i1 0)"
_SWAP = "call {{i32, i32}} @llvm.amdgcn.permlane{lanes}.swap(i32 {a}, i32 {b}, i1 0, i1 0)"
_CVT = "call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float {x}, float {x}, i32 {old}, i1 {high})"
_SCALEF = (
    "%so = bitcast i32 %o to <2 x i16>\n%ys = call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32("
    "<2 x i16> %so, float %x, float %x, float %t, i1 {high})\n%y = bitcast <2 x i16> %ys to float"
)
_PRODUCERS = {
    "VALU": ("%y = fadd float %x, %x", "v_add_f32"),
    "transcendental": ("%y = call float @llvm.amdgcn.exp2.f32(float %x)", "v_exp_f32"),
    "DPP": ("%xi = bitcast float %x to i32\n%yo = " + _DPP.format(old="%o", new="%xi") + _AS_FLOAT,
            "v_mov_b32_dpp"),
    "permlane swap": (
        "%xi = bitcast float %x to i32\n%sw = " + _SWAP.format(lanes=32, a="%xi", b="%o")
        + "\n%yo = extractvalue {i32, i32} %sw, 0" + _AS_FLOAT, "v_permlane32_swap"),
    "cvt_pk_fp8, low half": (
        "%yo = " + _CVT.format(x="%x", old="%o", high=0) + _AS_FLOAT, "v_cvt_pk_fp8"),
    "cvt_pk_fp8, high half": (
        "%yo = " + _CVT.format(x="%x", old="%o", high=1) + _AS_FLOAT, "v_cvt_pk_fp8"),
    "cvt_scalef32_pk_fp8, low half": (_SCALEF.format(high=0), "v_cvt_scalef32_pk_fp8"),
    "cvt_scalef32_pk_fp8, high half": (_SCALEF.format(high=1), "v_cvt_scalef32_pk_fp8"),
    "cvt_sr_fp8, byte 2": (
        "%yo = call i32 @llvm.amdgcn.cvt.sr.fp8.f32(float %x, i32 %i, i32 %o, i32 2)" + _AS_FLOAT,
        "v_cvt_sr_fp8"),
}  # fmt: skip
_BITS = "%yj = bitcast float %y to i32\n"
_BOTH = "\n%q0 = extractvalue {i32, i32} %q, 0\n%q1 = extractvalue {i32, i32} %q, 1"
_IN_C = "%cc = insertelement <4 x float> %c, float %y, i32 2\n"
_CONSUMERS = {
    "VALU": ("%z = fmul float %y, %y", "z:f:v62", "v_mul_f32"),
    "trans": ("%z = call float @llvm.amdgcn.rcp.f32(float %y)", "z:f:v62", "v_rcp_f32"),
    "DPP source": (_BITS + "%z = " + _DPP.format(old="%i", new="%yj"), "z:i:v71", "v_mov_b32_dpp"),
    "DPP old value": (
        _BITS + "%z = " + _DPP.format(old="%yj", new="%i"), "z:i:v62", "v_mov_b32_dpp"),
    "permlane first": (
        _BITS + "%q = " + _SWAP.format(lanes=32, a="%yj", b="%i") + _BOTH, "q0:i:v62 q1:i:v71",
        "v_permlane32_swap"),
    "permlane second": (
        _BITS + "%q = " + _SWAP.format(lanes=16, a="%i", b="%yj") + _BOTH, "q0:i:v71 q1:i:v62",
        "v_permlane16_swap"),
    "readfirstlane": (
        _BITS + "%z = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %yj)", "z:i:s20",
        "v_readfirstlane"),
    "readlane": (
        _BITS + "%z = call i32 @llvm.amdgcn.readlane.i32(i32 %yj, i32 3)", "z:i:s20",
        "v_readlane"),
    "writelane old value": (
        _BITS + "%z = call i32 @llvm.amdgcn.writelane.i32(i32 5, i32 3, i32 %yj)", "z:i:v62",
        "v_writelane"),
    "cvt_pk_fp8, low half": (
        _BITS + "%z = " + _CVT.format(x="%t", old="%yj", high=0),
        "z:i:v62",
        "v_cvt_pk_fp8",
    ),
    "cvt_pk_fp8, high half": (
        _BITS + "%z = " + _CVT.format(x="%t", old="%yj", high=1),
        "z:i:v62",
        "v_cvt_pk_fp8",
    ),
    "ds_write data": ("store float %y, ptr addrspace(3) %l", "", "ds_write"),
    "ds_write address": (
        _BITS + "%yp = inttoptr i32 %yj to ptr addrspace(3)\nstore float %t, ptr addrspace(3) %yp",
        "", "ds_write"),
    "global_store": ("store float %y, ptr addrspace(1) %g", "", "global_store"),
    "buffer_store": (
        _BITS + "call void @llvm.amdgcn.raw.ptr.buffer.store.i32(i32 %yj, ptr addrspace(8) %r, "
        "i32 %i, i32 0, i32 0)", "", "buffer_store"),
    "MFMA SrcA": (F32_2.ir("z", "%y", "%x", "%c"), "z:f4:v[20:23]", F32_2.mnemonic),
    "MFMA block scale": (
        _BITS + "%z = call <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v4i32.v4i32("
        "<4 x i32> %q4, <4 x i32> %q4, <4 x float> %c, i32 4, i32 4, i32 0, i32 %yj, i32 0, "
        "i32 %i)", "z:f4:v[20:23]", "v_mfma_scale"),
    "MFMA SrcC": (
        _IN_C + M16X16_OLD.ir("z", "%k", "%k", "%cc"), "z:f4:v[20:23]", M16X16_OLD.mnemonic),
}  # fmt: skip


def _vector_probes() -> list[Probe]:
    return [
        Probe(VECTOR_TABLE, row, column, _VECTOR_SOURCES, f"{make}\n{use}", sinks, made, used)
        for row, (make, made) in _PRODUCERS.items()
        for column, (use, sinks, used) in _CONSUMERS.items()
        # A conversion merges into the destination, so its result is copied into SrcC first.
        if not (column == "MFMA SrcC" and row not in ("VALU", "transcendental"))
    ]


_SCALAR_SOURCES = (
    "x:f:v60 y:f:v61 i:i:v71 j:i:v73 l:l:v72 g:g:v[74:75] r:b:s[8:11] s:i:s12 m:i:s13 n:l:s16 "
    "w:q:v[90:91] c:f4:v[20:23] k:k:v[76:77] big:i16:v[96:111] table:q:s[18:19]"
)
_TABLE_ENTRY = (
    "%wide = zext i32 {s} to i64\n%base = inttoptr i64 %table to ptr addrspace(4)\n"
    "%entry = getelementptr i8, ptr addrspace(4) %base, i64 %wide\n"
    "%v = load i32, ptr addrspace(4) %entry\n"
)
_CMP = "%b = icmp slt i32 %i, %j\n"
_RFL = "%u = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %i)\n"
_RFL64 = (
    "%u0 = call i64 @llvm.amdgcn.readfirstlane.i64(i64 %w)\n"
    "%u = inttoptr i64 %u0 to ptr addrspace(1)\n"
)
_BUFFER_LOAD = (
    "%z = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %r, i32 %j, i32 {s}, "
    "i32 0)"
)
_LDS_LOAD = (
    "call void @llvm.amdgcn.raw.ptr.buffer.load.lds(ptr addrspace(8) %r, ptr addrspace(3) {at}, "
    "i32 16, i32 %j, i32 0, i32 0, i32 0)"
)
_GLOBAL_LDS = (
    "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %g, ptr addrspace(3) {at}, i32 16, "
    "i32 0, i32 0)"
)
_SETREG = "call void @llvm.amdgcn.s.setreg(i32 2049, i32 %{value})\n"
_FMAS = "%z = call float @llvm.amdgcn.div.fmas.f32(float %x, float %y, float %x, i1 %b)"
_BALLOT = "%q = call i64 @llvm.amdgcn.ballot.i64(i1 %b)\n"
_BRANCH = _CMP + "br i1 %b, label %A, label %B\nA:\n{use}\nbr label %B\nB:"
_ADD = "%u = add i32 %s, %m\n"
_FORWARD_M0 = "%at = getelementptr i8, ptr addrspace(3) %n, i32 64\n"

_SCALARS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("v_cmp writes VCC", "v_cndmask", _CMP + "%z = select i1 %b, i32 %i, i32 7", "z:i:v71",
     "v_cmp", "v_cndmask"),
    ("v_cmp writes SGPR", "v_cndmask",
     "%b1 = icmp eq i32 %i, 11\n" + _CMP
     + "%z = select i1 %b, i32 %i, i32 7\n%z2 = select i1 %b1, i32 %j, i32 9",
     "z:i:v71 z2:i:v73", "v_cmp_lt_i32_e64", "v_cndmask"),
    ("v_cmp writes VCC", "VALU reads VCC as constant",
     _CMP + _BALLOT + "%p = trunc i64 %q to i32\n%z = sub i32 %p, %j", "z:i:v60", "v_cmp", "v_sub"),
    ("v_cmp writes VCC", "SALU", _CMP + _BALLOT + "%z = add i64 %q, 77", "z:q:s[20:21]",
     "v_cmp", "s_add"),
    ("v_cmp writes VCC", "s_cbranch_vccz",
     _CMP + _BALLOT + "%p = icmp eq i64 %q, 0\nbr i1 %p, label %A, label %B\nA:\n"
     "store i32 %i, ptr addrspace(1) %g\nbr label %B\nB:", "", "v_cmp", "s_cbranch_vcc"),
    ("v_cmp writes VCC", "v_div_fmas", _CMP + _FMAS, "z:f:v60", "v_cmp", "v_div_fmas"),
    ("v_div_scale writes VCC", "v_div_fmas",
     "%p = call {float, i1} @llvm.amdgcn.div.scale.f32(float %x, float %y, i1 0)\n"
     "%b = extractvalue {float, i1} %p, 1\n" + _FMAS, "z:f:v60", "v_div_scale", "v_div_fmas"),
    ("v_add_co writes VCC", "v_addc_co (carry-in)",
     "%p = call {i32, i1} @llvm.uadd.with.overflow.i32(i32 %i, i32 %j)\n"
     "%b = extractvalue {i32, i1} %p, 1\n%e = extractvalue {i32, i1} %p, 0\n"
     "%o = zext i1 %b to i32\n%z = add i32 %o, %i", "z:i:v71 e:i:v73", "v_add_co",
     "v_addc_co"),
    ("v_readfirstlane", "VALU", _RFL + "%z = sub i32 %u, %j", "z:i:v71", "v_readfirst", "v_sub"),
    ("v_readfirstlane", "SALU", _RFL + "%z = add i32 %u, %s", "z:i:s20", "v_readfirst", "s_add"),
    ("v_readfirstlane", "v_readlane lane select",
     _RFL + "%z = call i32 @llvm.amdgcn.readlane.i32(i32 %j, i32 %u)", "z:i:s20", "v_readfirst",
     "v_readlane"),
    ("v_readfirstlane", "v_writelane lane select",
     _RFL + "%z = call i32 @llvm.amdgcn.writelane.i32(i32 7, i32 %u, i32 %j)", "z:i:v73",
     "v_readfirst", "v_writelane"),
    ("v_readfirstlane", "v_writelane value",
     _RFL + "%z = call i32 @llvm.amdgcn.writelane.i32(i32 %u, i32 3, i32 %j)", "z:i:v73",
     "v_readfirst", "v_writelane"),
    ("v_readfirstlane", "buffer_load scalar offset", _RFL + _BUFFER_LOAD.format(s="%u"), "z:i:v73",
     "v_readfirst", "buffer_load"),
    ("v_readfirstlane", "global_load base",
     _RFL64 + "%z = load i32, ptr addrspace(1) %u", "z:i:v73", "v_readfirstlane_b32 s0",
     "global_load"),
    ("v_readfirstlane", "global_store base", _RFL64 + "store i32 %i, ptr addrspace(1) %u",
     "", "v_readfirstlane_b32 s0", "global_store"),
    ("v_readfirstlane", "s_load base",
     _RFL64 + "%v = addrspacecast ptr addrspace(1) %u to ptr addrspace(4)\n"
     "%z = load i32, ptr addrspace(4) %v", "z:i:s20", "v_readfirstlane_b32 s0", "s_load"),
    ("s_add", "buffer_load scalar offset", _ADD + _BUFFER_LOAD.format(s="%u"), "z:i:v73",
     "s_add", "buffer_load"),
    ("s_add", "s_load scalar offset", _ADD + _TABLE_ENTRY.format(s="%u"), "v:i:s20", "s_add",
     "s_load"),
    ("s_load", "SALU overwrites the offset",
     _TABLE_ENTRY.format(s="%s") + "%z = mul i32 %m, %m", "v:i:s20 z:i:s12", "s_load", "s_mul"),
    ("buffer_load lds", "SALU overwrites the resource",
     _LDS_LOAD.format(at="%n") + "\n%z = mul i32 %m, %m", "z:i:s10", "buffer_load", "s_mul"),
    ("s_add", "v_readlane lane select",
     _ADD + "%z = call i32 @llvm.amdgcn.readlane.i32(i32 %j, i32 %u)", "z:i:s20", "s_add",
     "v_readlane"),
    ("s_mov", "VALU", "%z = add i64 %w, 1234567890123", "z:q:v[90:91]", "s_movk_i32",
     "v_lshl_add_u64"),
    ("s_add writes M0", "buffer_load lds", _FORWARD_M0 + _LDS_LOAD.format(at="%at"), "", "s_add",
     "buffer_load"),
    ("s_add writes M0", "global_load_lds", _FORWARD_M0 + _GLOBAL_LDS.format(at="%at"), "",
     "s_add", "global_load_lds"),
    ("s_mov writes M0", "buffer_load lds", _LDS_LOAD.format(at="%l"), "", "s_mov_b32 m0",
     "buffer_load"),
    ("s_mov writes M0", "s_sendmsg", _RFL + "call void @llvm.amdgcn.s.sendmsg(i32 3, i32 %u)", "",
     "s_mov_b32 m0", "s_sendmsg"),
    ("s_set_gpr_idx_on", "indexed VALU", "%z = extractelement <16 x i32> %big, i32 %s", "z:i:v60",
     "s_set_gpr_idx_on", "v_mov"),
    ("s_and_saveexec", "DPP",
     _BRANCH.format(use="%z = " + _DPP.format(old="%i", new="%j")
                    + "\nstore i32 %z, ptr addrspace(1) %g"), "", "s_and_saveexec", "v_mov"),
    ("s_and_saveexec", "MFMA",
     _BRANCH.format(use=M16X16_OLD.ir("d", "%k", "%k", "%c")
                    + "\nstore <4 x float> %d, ptr addrspace(1) %g"), "", "s_and_saveexec",
     "v_mfma"),
    ("s_and_saveexec", "v_readfirstlane",
     _BRANCH.format(use=_RFL + "store i32 %u, ptr addrspace(1) %g"), "", "s_and_saveexec",
     "v_readfirstlane"),
    ("s_setreg", "s_getreg, same register",
     _SETREG.format(value="s") + "%z = call i32 @llvm.amdgcn.s.getreg(i32 2049)", "z:i:s20",
     "s_setreg", "s_getreg"),
    ("s_setreg", "s_setreg, same register", _SETREG.format(value="s") + _SETREG.format(value="m"),
     "", "s_setreg", "s_setreg"),
    ("s_setreg MODE", "VALU", _SETREG.format(value="s") + "%z = fadd float %x, %y", "z:f:v60",
     "s_setreg", "v_add_f32"),
)  # fmt: skip

_STORE_SOURCES = (
    "x:f:v60 i:i:v71 j:i:v73 l:l:v72 g:g:v[74:75] r:b:s[8:11] s:i:s12 sg:g:s[14:15] c:f4:v[20:23] "
    "k:k:v[76:77] d4:i4:v[80:83] d3:i3:v[86:88] d2:i2:v[84:85]"
)
_BUFFER_STORE = (
    "call void @llvm.amdgcn.raw.ptr.buffer.store.v{n}i32(<{n} x i32> %d{n}, ptr addrspace(8) %r, "
    "i32 %i, i32 {s}, i32 0)\n"
)
_GLOBAL_STORE = "store <{n} x i32> %d{n}, ptr addrspace(1) %g\n"
_SUM = "%z = add i32 %i, %j"
_STORES: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("buffer_store_dwordx4", "VALU", _BUFFER_STORE.format(n=4, s=0) + _SUM, "z:i:v82",
     "buffer_store", "v_add"),
    ("buffer_store_dwordx3", "VALU", _BUFFER_STORE.format(n=3, s=0) + _SUM, "z:i:v87",
     "buffer_store", "v_add"),
    ("buffer_store_dwordx2", "VALU", _BUFFER_STORE.format(n=2, s=0) + _SUM, "z:i:v84",
     "buffer_store", "v_add"),
    ("buffer_store_dwordx4, SGPR offset", "VALU", _BUFFER_STORE.format(n=4, s="%s") + _SUM,
     "z:i:v82", "buffer_store", "v_add"),
    ("buffer_store_dwordx4, SGPR offset", "MFMA",
     _BUFFER_STORE.format(n=4, s="%s") + M16X16_OLD.ir("z", "%k", "%k", "%c"), "z:f4:v[80:83]",
     "buffer_store", "v_mfma"),
    ("buffer_store_dwordx2, SGPR offset", "VALU", _BUFFER_STORE.format(n=2, s="%s") + _SUM,
     "z:i:v84", "buffer_store", "v_add"),
    ("global_store_dwordx4", "VALU", _GLOBAL_STORE.format(n=4) + _SUM, "z:i:v82", "global_store",
     "v_add"),
    ("global_store_dwordx2", "VALU", _GLOBAL_STORE.format(n=2) + _SUM, "z:i:v84", "global_store",
     "v_add"),
    ("global_store_dwordx4, SGPR base", "VALU",
     "store <4 x i32> %d4, ptr addrspace(1) %sg\n" + _SUM, "z:i:v82", "global_store", "v_add"),
    ("global_store_dwordx4", "VALU overwrites the address", _GLOBAL_STORE.format(n=4) + _SUM,
     "z:i:v74", "global_store", "v_add"),
    ("global_store_dwordx4", "exp",
     _GLOBAL_STORE.format(n=4) + "%z = call float @llvm.amdgcn.exp2.f32(float %x)", "z:f:v82",
     "global_store", "v_exp"),
    ("global_store_dwordx4", "MFMA",
     _GLOBAL_STORE.format(n=4) + M16X16_OLD.ir("z", "%k", "%k", "%c"), "z:f4:v[80:83]",
     "global_store", "v_mfma"),
    ("global_store_dwordx4", "ds_read",
     _GLOBAL_STORE.format(n=4) + "%z = load i32, ptr addrspace(3) %l", "z:i:v82", "global_store",
     "ds_read"),
    ("ds_write_b128", "VALU", "store <4 x i32> %d4, ptr addrspace(3) %l, align 16\n" + _SUM,
     "z:i:v82", "ds_write", "v_add"),
    ("ds_write_b128", "MFMA",
     "store <4 x i32> %d4, ptr addrspace(3) %l, align 16\n"
     + M16X16_OLD.ir("z", "%k", "%k", "%c"), "z:f4:v[80:83]", "ds_write", "v_mfma"),
    ("v_accvgpr_write", "MFMA SrcC",
     "%q = insertelement <4 x float> %c, float 1.0, i32 1\n"
     + M16X16_OLD.ir("z", "%k", "%k", "%q"), "z:f4:a[0:3]", "v_accvgpr_write_b32 a1,", "v_mfma"),
)  # fmt: skip

_DOT_SOURCES = "x:f:v60 y:f:v61 i:i:v71 j:i:v73 l:l:v72 c:f4:v[20:23] k:k:v[76:77] h:H:v80 p:H:v81"
_DOT = "%d = call float @llvm.amdgcn.fdot2(<2 x half> %h, <2 x half> %p, float %x, i1 0)\n"
_DOTS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("v_dot2", "same opcode, accumulator",
     _DOT + "%z = call float @llvm.amdgcn.fdot2(<2 x half> %h, <2 x half> %p, float %d, i1 0)",
     "z:f:v60", "v_dot2", "v_dot2"),
    ("v_dot2", "same opcode, SrcA",
     _DOT + "%o = bitcast float %d to <2 x half>\n"
     "%z = call float @llvm.amdgcn.fdot2(<2 x half> %o, <2 x half> %p, float %y, i1 0)",
     "d:f:v60 z:f:v61", "v_dot2", "v_dot2"),
    ("v_dot2", "other dot, accumulator",
     _DOT + "%o = bitcast float %d to i32\n"
     "%z = call i32 @llvm.amdgcn.sdot4(i32 %i, i32 %j, i32 %o, i1 0)", "z:i:v60", "v_dot2",
     "v_dot4"),
    ("v_dot2", "VALU", _DOT + "%z = fmul float %d, %y", "z:f:v60", "v_dot2", "v_mul"),
    ("v_dot2", "exp", _DOT + "%z = call float @llvm.amdgcn.exp2.f32(float %d)", "z:f:v60",
     "v_dot2", "v_exp"),
    ("v_dot2", "ds_write", _DOT + "store float %d, ptr addrspace(3) %l", "d:f:v60", "v_dot2",
     "ds_write"),
    ("v_dot2", "MFMA SrcA", _DOT + F32_2.ir("z", "%d", "%y", "%c"), "d:f:v60 z:f4:v[20:23]",
     "v_dot2", "v_mfma"),
    ("MFMA 16x16x16 bf16 (4)", "dot reads D",
     M16X16_OLD.ir("d", "%k", "%k", "%c") + "\n%e = extractelement <4 x float> %d, i32 1\n"
     "%z = call float @llvm.amdgcn.fdot2(<2 x half> %h, <2 x half> %p, float %e, i1 0)", "z:f:v60",
     "v_mfma", "v_dot2"),
)  # fmt: skip


def _stream_probes() -> list[Probe]:
    """A matrix instruction and its reader with independent instructions between, and a tile."""
    probes = []
    sources = "a:h:v[0:3] b:h:v[4:7] c:f16:v[20:35] x:f:v60"
    for count in (1, 5, 11, 12):
        between = "".join(f"%t{index} = fadd float %x, {index + 1}.0\n" for index in range(count))
        sinks = " ".join(f"t{index}:f:v{70 + index}" for index in range(count))
        probes.append(
            Probe(STREAM_TABLE, M32X32.row, f"VALU after {count} independent", sources,
                  M32X32.ir("d", "%a", "%b", "%c") + "\n" + between
                  + "%e = extractelement <16 x float> %d, i32 3\n%y = fmul float %x, %e",
                  f"{sinks} y:f:v65", M32X32.mnemonic, "v_mul_f32")
        )  # fmt: skip
    # Scores, their exponentials and a packed pair, as a softmax uses them.
    body = [M32X32.ir("s0", "%a", "%b", "%c"), M32X32.ir("s1", "%a", "%b", "%s0")]
    for index in range(16):
        body += [
            f"%e{index} = extractelement <16 x float> %s1, i32 {index}",
            f"%m{index} = fmul float %e{index}, %x",
            f"%p{index} = call float @llvm.amdgcn.exp2.f32(float %m{index})",
        ]
    total = "%p0"
    for index in range(1, 16):
        body.append(f"%r{index} = fadd float {total}, %p{index}")
        total = f"%r{index}"
    for half in range(4):
        i = 4 * half
        body += [
            f"%lo{half} = call i32 @llvm.amdgcn.cvt.pk.fp8.f32("
            f"float %p{i}, float %p{i + 1}, i32 0, i1 0)",
            f"%hi{half} = call i32 @llvm.amdgcn.cvt.pk.fp8.f32("
            f"float %p{i + 2}, float %p{i + 3}, i32 %lo{half}, i1 1)",
        ]
    for pair in range(2):
        low, high = f"%hi{2 * pair}", f"%hi{2 * pair + 1}"
        body += [
            f"%sw{pair} = call {{i32, i32}} @llvm.amdgcn.permlane32.swap(i32 {low}, i32 {high}, "
            "i1 0, i1 0)",
            f"%u{2 * pair} = extractvalue {{i32, i32}} %sw{pair}, 0",
            f"%u{2 * pair + 1} = extractvalue {{i32, i32}} %sw{pair}, 1",
        ]
    body.append("%v0 = insertelement <4 x i32> poison, i32 %u0, i32 0")
    body += [f"%v{i} = insertelement <4 x i32> %v{i - 1}, i32 %u{i}, i32 {i}" for i in range(1, 4)]
    body += [
        "%pb = bitcast <4 x i32> %v3 to <8 x bfloat>",
        M32X32.ir("n", "%a", "%pb", "%o"),
        f"%big = fcmp ogt float {total}, 8.0",
        f"%z = select i1 %big, float {total}, float %x",
    ]
    probes.append(
        Probe(STREAM_TABLE, "a tile of attention", "whole",
              "a:h:v[0:3] b:h:v[4:7] c:f16:v[20:35] o:f16:v[40:55] x:f:v60", "\n".join(body),
              "n:f16:v[40:55] z:f:v61", "v_mfma", "v_mul_f32")
    )  # fmt: skip
    return probes


def _list(
    table: str, sources: str, rows: tuple[tuple[str, str, str, str, str, str], ...]
) -> list[Probe]:
    return [
        Probe(table, row, column, sources, body, sinks, producer, consumer)
        for row, column, body, sinks, producer, consumer in rows
    ]


PROBES: tuple[Probe, ...] = (
    *_matrix_probes(),
    *_vector_probes(),
    *_list(SCALAR_TABLE, _SCALAR_SOURCES, _SCALARS),
    *_list(STORE_TABLE, _STORE_SOURCES, _STORES),
    *_list(DOT_TABLE, _DOT_SOURCES, _DOTS),
    *_stream_probes(),
)

# Rules of the generator's table that no probe reaches, and why.
UNPROVOKED: dict[str, str] = {
    "exec-vmem": "LLVM writes EXEC from vector code (v_cmpx) only on later targets",
    "exec-mfma": "LLVM writes EXEC from vector code (v_cmpx) only on later targets",
    "exec-dpp": "LLVM writes EXEC from vector code (v_cmpx) only on later targets",
    "exec-permlane": "LLVM writes EXEC from vector code (v_cmpx) only on later targets",
    "exec-lane": "LLVM writes EXEC from vector code (v_cmpx) only on later targets",
}

# Rows of the guide that the generator's table leaves out, and why they cannot matter to it.
LEFT_OUT: dict[str, str] = {
    "SET_VSKIP, S_SETREG MODE.vskip": "the generator never skips vector instructions",
    "S_SETREG TRAPSTS -> RFE": "no trap handlers",
    "VALU writes VCC or EXEC -> VALU reading VCCZ or EXECZ as data": "no template names them; "
    "s_cbranch_vccz is interlocked (probed)",
    "v_readlane, v_cmp, ... -> VALU reading VCC under its SGPR name": "covered by sgpr-valu (2)",
    "f64 matrix instructions": "the instruction table has none",
    "sparse matrix instructions (SMFMAC)": "the instruction table has none",
}


def module(probes: tuple[Probe, ...] = PROBES) -> str:
    """The LLVM IR of all probes: kernel `p0`, `p1`, ... in their order."""
    functions = []
    for number, probe in enumerate(probes):
        lines = []
        for source in probe.sources.split():
            name, code, where = source.split(":", 2)
            lines.append(f'%{name} = call {_TYPES[code]} asm sideeffect "", "={{{where}}}"()')
        lines.append("call void @llvm.amdgcn.s.nop(i16 7)")
        lines += probe.body.strip().splitlines()
        sinks = [sink.split(":", 2) for sink in probe.sinks.split()]
        constraints = ",".join(f"{{{where}}}" for _, _, where in sinks)
        values = ", ".join(f"{_TYPES[code]} %{name}" for name, code, _ in sinks)
        lines.append(f'call void asm sideeffect "{END}", "{constraints}"({values})')
        lines.append("ret void")
        body = "\n".join(line if line.endswith(":") else f"  {line}" for line in lines)
        functions.append(f"define amdgpu_kernel void @p{number}() #0 {{\n{body}\n}}")
    text = "\n".join(functions)
    registers = 'attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }'  # 512 registers
    return f'target triple = "amdgcn-amd-amdhsa"\n{text}\n{_declarations(text)}\n{registers}\n'


def _declarations(text: str) -> str:
    calls: dict[str, str] = {}
    for match in re.finditer(r"call ([^@\n\"]+) @(llvm\.[\w.]+)\((.*)\)$", text, re.MULTILINE):
        result, name, arguments = match.groups()
        types, depth, start = [], 0, 0
        for index, character in enumerate(arguments + ","):
            depth += (character in "<({") - (character in ">)}")
            if character == "," and depth == 0:
                types.append(arguments[start:index].strip().rsplit(" ", 1)[0])
                start = index + 1
        calls[name] = f"declare {result} @{name}({', '.join(types)})"
    return "\n".join(calls.values())
