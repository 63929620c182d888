"""Attacks 1 to 64: code objects, PTX, artifacts' folders, launch files."""

from __future__ import annotations

import struct
from pathlib import Path

from attack import FINDINGS, MISSING, OK, REFUSED, Attack, holding, link, pipe, sparse

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
.maxntid 64
{
  .reg .b64 %a;
  .reg .b32 %r<2>;
  ld.param.u64 %a, [p];
  mov.u32 %r0, %tid.x;
  st.global.u32 [%a], %r0;
  ret;
}
"""
LAUNCH = "grid = [1, 1, 1]\nblock = [64, 1, 1]\n"
TEMPLATE = ("emulate", "k.co", "--template")
EITHER = (OK, FINDINGS)
REFUSALS = (REFUSED, MISSING)
ANY = (OK, REFUSED, FINDINGS, MISSING)
FINE = 1 << 30


def _patched(at: int, form: str, value: int):
    def prepare(folder: Path) -> None:
        data = bytearray((folder / "k.co").read_bytes())
        struct.pack_into(form, data, at, value)
        (folder / "k.co").write_bytes(data)

    return prepare


def _cut(part: float):
    def prepare(folder: Path) -> None:
        data = (folder / "k.co").read_bytes()
        (folder / "k.co").write_bytes(data[: int(part) if part >= 1 else int(len(data) * part)])

    return prepare


def _sizes(folder: Path) -> None:
    data = bytearray((folder / "k.co").read_bytes())
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for number in range(count):
        struct.pack_into("<Q", data, start + 64 * number + 32, 1 << 62)
    (folder / "k.co").write_bytes(data)


def _headless(folder: Path) -> None:
    data = bytearray((folder / "k.co").read_bytes())
    for at, form in ((40, "<Q"), (60, "<H"), (62, "<H")):
        struct.pack_into(form, data, at, 0)
    (folder / "k.co").write_bytes(data)


OBJECTS = {
    "half": (_cut(0.5), ""),
    "64 bytes": (_cut(64), ""),
    "empty": (_cut(0.0), ""),
    "e_shnum 65535": (_patched(60, "<H", 65535), ""),
    "e_phnum 65535": (_patched(56, "<H", 65535), ""),
    "e_shoff 2^63": (_patched(40, "<Q", 1 << 63), ""),
    "no section headers": (_headless, "no section headers"),
    "e_shnum 0": (_patched(60, "<H", 0), "no section headers"),
    "sections of 2^62": (_sizes, ""),
    "bare magic": (holding("k.co", b"\x7fELF"), ""),
    "text": (holding("k.co", "hello\n"), "not a code object"),
}
ATTACKS = [
    Attack(f"{number} .co {name}: {command[0]}", command, prepare,
           ANY if name == "e_phnum 65535" else REFUSALS, said)
    for number, (name, (prepare, said)) in enumerate(OBJECTS.items(), 1)
    for command in (("audit", "k.co"), ("inspect", "k.co"), TEMPLATE)
]  # fmt: skip

# 12 to 16: what never ends, what is no file, what is very large.
NO_FILE = "cannot be read: it is a device or a pipe"
READERS = (("audit",), ("inspect",), ("emulate", "--template"), ("mutate", "--launch", "p.toml"))
for verb, *more in READERS:
    for name in ("k.co", "k.ptx"):
        if (verb, name) in (("mutate", "k.co"), ("inspect", "k.ptx")):
            continue
        ATTACKS += [
            Attack(f"12 {name} -> /dev/zero: {verb}", (verb, name, *more), link("/dev/zero", name),
                   said=NO_FILE),
            Attack(f"13 {name} a pipe: {verb}", (verb, name, *more), pipe(name), said=NO_FILE),
        ]  # fmt: skip
ATTACKS += [
    Attack("14 a folder as .co", ("audit", "folder"), said="folder"),
    Attack("14 a folder as .ptx", ("emulate", "folder", "--template"), said="Is a directory"),
    Attack("15 200 MB of zeros", ("audit", "k.co"), sparse("k.co", 200_000_000)),
    Attack("15 a file of 1 TB", ("audit", "k.co"), sparse("k.co", 1 << 40),
           said="1099511627776 bytes; at most"),
    Attack("15 random bytes as PTX", ("audit", "k.ptx"),
           lambda f: (f / "k.ptx").write_bytes(bytes(range(256)) * 400_000), said="no UTF-8"),
    Attack("15 one instruction again and again", ("audit", "k.ptx"),
           lambda f: (f / "k.ptx").write_text(
               PTX.replace("  ret;", "  add.u32 %r1, %r0, %r0;\n" * 4_000_000 + "  ret;")),
           said="instructions"),
    Attack("15 an entry of 20 MB", ("audit", "k.ptx", "--max-seconds", "10"),
           lambda f: (f / "k.ptx").write_text(
               PTX.replace("  ret;", "  mov.u32 %r1, %r0;\n" * 90_000 + "  ret;")), ANY),
    Attack("16 a comment of 50 MB", ("audit", "k.ptx"),
           holding("k.ptx", PTX + "/*" + 50_000_000 * "x" + "*/\n"), EITHER),
]  # fmt: skip

# 17 to 21: artifacts.
MANIFESTS: dict[str, bytes | str] = {
    "200000 brackets": "[" * 200_000,
    "100000 objects": '{"schema":' * 100_000,
    "empty": "",
    "UTF-16": '{"schema": "mlagen.manifest/7"}'.encode("utf-16"),
    "an integer of 5000 digits": '{"schema": ' + "9" * 5000 + "}",
    "a list": "[]",
}
ATTACKS += [
    Attack(f"17 manifest {name}", ("inspect", "art"), holding("art/manifest.json", data),
           said="manifest")
    for name, data in MANIFESTS.items()
]  # fmt: skip
ATTACKS += [
    Attack("17 manifest of 500 MB of blanks", ("inspect", "art"),
           sparse("art/manifest.json", 500_000_000), said="at most"),
    Attack("17 manifest cut", ("verify", "art"),
           lambda f: (f / "art/manifest.json").write_bytes(
               (f / "art/manifest.json").read_bytes()[:300]), said="manifest"),
]  # fmt: skip


def _called(manifest: Path, word: str) -> None:
    text = manifest.read_text().replace('"kernel": "add"', f'"kernel": "{word}"')
    manifest.write_text(text)


for word in ("../../../etc", "\\u001b[31m"):
    ATTACKS.append(
        Attack(f"18 a kernel called {word}", ("inspect", "art"),
               lambda f, word=word: _called(f / "art/manifest.json", word),
               said="altered")
    )  # fmt: skip
ATTACKS += [
    Attack("19 kernel.ptx -> /etc/passwd", ("inspect", "pt"), link("/etc/passwd", "pt/kernel.ptx"),
           said="truncated or altered"),
    Attack("19 a loop of links", ("inspect", "pt"), link("kernel.ptx", "pt/kernel.ptx")),
    Attack("19 a link to nothing", ("inspect", "pt"), link("nothing", "pt/kernel.cubin"),
           said="has no kernel.cubin"),
]  # fmt: skip
for what in ("kernel.ptx", "manifest.json", "kernel.cubin"):
    for command in (("inspect", "pt"), ("verify", "pt"), ("diff", "pt", "art"), ("audit", "pt")):
        if command[0] == "audit" and what == "kernel.cubin":
            continue
        said = "kernel|manifest|has neither"
        ATTACKS += [
            Attack(f"20 {what} a pipe: {command[0]}", command, pipe(f"pt/{what}"), ANY, said),
            Attack(f"21 {what} -> /dev/zero: {command[0]}", command,
                   link("/dev/zero", f"pt/{what}"), ANY, said),
        ]  # fmt: skip

# 22 to 35: PTX.
DIVERGING = "".join(
    f"  setp.eq.u32 %p0, %r0, {n};\n  @%p0 bra L{n};\n  add.u32 %r1, %r1, {n};\nL{n}:\n"
    for n in range(2000)
)
TEXTS: dict[str, tuple[bytes | str, tuple[int, ...], str]] = {
    "CRLF": (PTX.replace("\n", "\r\n"), EITHER, ""),
    "UTF-16": (PTX.encode("utf-16"), REFUSALS, "k.ptx"),
    "a BOM": ("\ufeff" + PTX, REFUSALS, "k.ptx: line 1: .*byte order mark"),
    "NUL inside": (PTX.replace("ret;", "ret\0;"), ANY, "k.ptx"),
    "NUL at the end": (PTX + "\0", ANY, "k.ptx"),
    "latin-1": ((PTX + "// \xe9\n").encode("latin-1"), REFUSALS, "no UTF-8"),
    "form feeds": (PTX.replace("\n", "\n\f"), ANY, ""),
    "CR": (PTX.replace("\n", "\r"), ANY, ""),
    "one line": (PTX.replace("\n", " "), ANY, ""),
    "40000 nested braces": (PTX.replace("ret;", "{" * 40_000 + "ret;" + "}" * 40_000), ANY, ""),
    "100000 open braces": (PTX + "{" * 100_000, REFUSALS, "k.ptx: line 14: a '\\{'"),
    "a closing brace": (PTX + "}", REFUSALS, "k.ptx: line 14: a '\\}'"),
    "an open comment": (PTX + "/* and", REFUSALS, "k.ptx: line 14: a comment that does not end"),
    "a statement without its end": (PTX.replace("ret;", "ret"), REFUSALS, "k.ptx: line "),
    "escapes in a name": (PTX.replace("entry k(", "entry k\x1b[31m("), ANY, "k.ptx"),
    "2e9 registers": (PTX.replace("%r<2>", "%r<2000000000>"), ANY, ""),
    "sm_75": (PTX.replace("sm_90a", "sm_75"), ANY, "sm_75"),
    "no entry": (PTX[: PTX.index(".visible")], REFUSALS, "holds no .entry"),
    "an endless loop": (PTX.replace("  ret;", "L:\n  bra L;"), ANY, ""),
    "2000 diverging branches": (
        PTX.replace("  ret;", DIVERGING + "  ret;").replace(
            ".reg .b64 %a;", ".reg .b64 %a;\n.reg .pred %p0;"
        ),
        ANY,
        "",
    ),
}
ATTACKS += [
    Attack(f"22 PTX {name}", ("audit", "k.ptx", "--max-seconds", "10"), holding("k.ptx", data),
           codes, said)
    for name, (data, codes, said) in TEXTS.items()
]  # fmt: skip
ATTACKS += [
    Attack("35 several files, one bad", ("audit", "k.co", "bad.co"),
           holding("bad.co", "x"), ANY, "bad.co"),
    Attack("35 several PTX files", ("audit", "k.ptx", "pt/kernel.ptx"), codes=(0,),
           said="(?s)k.ptx: clean.*kernel.ptx: clean"),
    Attack("34 an endless loop in PTX, executed",
           ("emulate", "k.ptx", "--launch", "p.toml", "--max-instructions", "100000"),
           holding("k.ptx", PTX.replace("  ret;", "L:\n  bra L;")), (MISSING, FINDINGS), ""),
]  # fmt: skip


# 36 to 64: launch files.
def buffer(*lines: str) -> str:
    return LAUNCH + "[buffers.x]\n" + "\n".join(lines) + "\n"


def scalar(line: str) -> str:
    return LAUNCH + f'[[arguments]]\noffset = 16\ntype = "f32"\n{line}\n'


LAUNCHES: dict[str, tuple[str | bytes, tuple[int, ...]]] = {
    "a buffer of 1e15": (buffer("bytes = 1000000000000000"), REFUSALS),
    "a buffer of -5": (buffer("bytes = -5"), REFUSALS),
    "a buffer of 5001 digits": (buffer(f"bytes = {'9' * 5001}"), REFUSALS),
    "a buffer of 0": (buffer("bytes = 0"), ANY),
    "grid 0": (LAUNCH.replace("[1, 1, 1]", "[0, 1, 1]"), REFUSALS),
    "grid -1": (LAUNCH.replace("[1, 1, 1]", "[-1, 1, 1]"), REFUSALS),
    "grid 1.5": (LAUNCH.replace("[1, 1, 1]", "[1.5, 1, 1]"), REFUSALS),
    "grid 2^64": (LAUNCH.replace("[1, 1, 1]", "[4294967296, 65536, 65536]"), REFUSALS),
    "block 1e6": (LAUNCH.replace("[64, 1, 1]", "[1000000, 1, 1]"), REFUSALS),
    "block (7, 3, 2)": (LAUNCH.replace("[64, 1, 1]", "[7, 3, 2]"), ANY),
    "LDS 1e11": (LAUNCH + "dynamic_lds = 100000000000\n", REFUSALS),
    "/etc/passwd": (buffer('file = "/etc/passwd"', 'dtype = "u8"'), REFUSALS),
    "../../..": (buffer('file = "../../../../etc/passwd"', 'dtype = "u8"'), REFUSALS),
    "an output outside": (buffer("bytes = 64", 'output = "../out.npy"'), REFUSALS),
    "/dev/zero": (buffer('file = "/dev/zero"', 'dtype = "u8"'), REFUSALS),
    "a link to /dev/zero": (buffer('file = "zero.npy"'), REFUSALS),
    "a pipe": (buffer('file = "pipe.npy"'), REFUSALS),
    "value -1 of u32": (scalar("value = -1").replace('"f32"', '"u32"'), REFUSALS),
    "value 1e20 of u32": (scalar("value = 1e20").replace('"f32"', '"u32"'), REFUSALS),
    "value nan": (scalar("value = nan"), ANY),
    "value text": (scalar('value = "x"'), REFUSALS),
    "offset 8e9": (scalar("value = 1").replace("= 16", "= 8000000000"), REFUSALS),
    "offset -8": (scalar("value = 1").replace("= 16", "= -8"), REFUSALS),
    "a misspelt key": (LAUNCH + "gird = 1\n", REFUSALS),
    "escapes": (LAUNCH + '"\\u001b[31m" = 1\n', REFUSALS),
    "UTF-16": (LAUNCH.encode("utf-16"), REFUSALS),
    "empty": ("", REFUSALS),
    "50000 brackets": ("a = " + "[" * 50_000, REFUSALS),
    "a key twice": (LAUNCH + "grid = [2, 1, 1]\n", REFUSALS),
}
WHAT = "launch|l.toml|buffers|grid|block|argument|offset|LDS|work"


def _launched(text: str | bytes):
    def prepare(folder: Path) -> None:
        holding("l.toml", text)(folder)
        link("/dev/zero", "zero.npy")(folder)
        pipe("pipe.npy")(folder)

    return prepare


ATTACKS += [
    Attack(f"36 launch {name}", ("emulate", "k.co", "--launch", "l.toml", "--threads", "1"),
           _launched(data), codes, "" if OK in codes else WHAT)
    for name, (data, codes) in LAUNCHES.items()
]  # fmt: skip
ATTACKS += [
    Attack("64 launch file /dev/zero", ("emulate", "k.co", "--launch", "l.toml"),
           link("/dev/zero", "l.toml"), said="launch file l.toml " + NO_FILE),
    Attack("64 launch file a pipe", ("emulate", "k.ptx", "--launch", "l.toml"), pipe("l.toml"),
           said="launch file l.toml " + NO_FILE),
    Attack("64 an output over somebody's file",
           ("emulate", "k.co", "--launch", "launch.toml", "--threads", "1"),
           holding("y.npy", "mine"), (MISSING,), "did not make", ("y.npy",)),
    Attack("64 simulate with a pipe", ("simulate", "k.co", "--launch", "l.toml"), pipe("l.toml"),
           said=NO_FILE),
]  # fmt: skip
