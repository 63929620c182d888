"""What a checkout builds of the fixed list of problems: a line of JSON a problem.

    code_snapshot.py FORMS -o FILE [--shard 0/2]

It runs in the checkout that it looks at, older ones included: it imports mlagen alone, and of it
only what builds. `code`: of gfx950 digests of `.text` and descriptor; of PTX that of the text with
numbers for names (normal_ptx.py). `sass`: of a cubin's machine code. `facts`: arguments, grid,
block, resources, proved pairs, roundings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import struct
import sys
import zlib
from base64 import b64encode
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from normal_ptx import normal_ptx

from mlagen.app.texts import BuildTexts, build_from_text
from mlagen.binary.code_object import load_code_object
from mlagen.errors import MlagenError


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:24]


def snapshot(form: str) -> dict[str, Any]:
    """The form as this checkout builds it, or the class of the error that refuses it."""
    refused, artifact = "", None
    for spelling in form.split(" | was "):
        try:
            artifact = built(spelling)
            break
        except MlagenError as error:
            refused = refused or type(error).__name__
    if artifact is None:
        return {"form": form, "refused": refused}
    manifest = artifact.manifest
    facts: dict[str, Any] = {
        "symbol": manifest.symbol,
        "args": [(a.name, a.offset, a.size, a.kind, a.access, a.dtype) for a in manifest.args],
        "grid": [(g.size, g.tile, g.clusters) for g in manifest.grid],
        "block": list(manifest.block),
        "resources": {name: getattr(manifest.resources, name) for name in RESOURCES},
        "proof": [manifest.proof.status, manifest.proof.pairs, manifest.proof.checked_tiles],
        "numerics": [(r.name, r.to) for r in getattr(manifest, "numerics", ())],
    }
    if manifest.target == "gfx950":
        (kernel,) = load_code_object(artifact.code).kernels.values()
        text = "\n".join(f"{ins.offset:#x} {ins}" for ins in kernel.instructions)
        # Without the class's name, which was this one when base.jsonl was written.
        descriptor = "Descriptor(" + repr(kernel.descriptor).partition("(")[2]
        code = [digest(kernel.code), digest(descriptor)]
    else:
        text = normal_ptx(artifact.text)
        code = [digest(text)]
    packed = b64encode(zlib.compress(text.encode(), 9)).decode()
    sass = "" if manifest.target == "gfx950" else digest(machine_code(artifact.code))
    tools = {name: told for name, told in manifest.tools.items() if name != "mlagen"}
    return {
        "form": form, "code": code, "facts": facts, "text": packed, "sass": sass, "tools": tools
    }  # fmt: skip


SECTION = struct.Struct("<IIQQQQIIQQ")
RESOURCES = ("vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes", "vgpr_spills", "sgpr_spills")


def machine_code(cubin: bytes) -> bytes:
    """The bytes of its kernels' code, without the sections' names, which hold the symbols."""
    place = int.from_bytes(cubin[0x28:0x30], "little")
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [SECTION.unpack_from(cubin, place + n * SECTION.size) for n in range(count)]
    named = headers[names][4]
    return b"".join(
        cubin[start : start + size]
        for name, _, _, _, start, size, *_ in headers
        if cubin.startswith(b".text.", named + name)
    )


def built(form: str) -> Any:
    """`KERNEL[@TARGET] NAME=VALUE … [-- KNOB=VALUE …]`"""
    kernel, *words = shlex.split(form)
    cut = words.index("--") if "--" in words else len(words)
    name, _, target = kernel.partition("@")
    return build_from_text(name, BuildTexts(words[:cut], words[cut + 1 :], target or None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("forms", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--shard", default="0/1", metavar="INDEX/OF")
    given = parser.parse_args()
    index, of = (int(n) for n in given.shard.split("/"))
    lines = [x for x in given.forms.read_text().splitlines() if x and not x.startswith("#")]
    with given.output.open("w") as out:
        for form in islice(lines, index, None, of):
            out.write(json.dumps(snapshot(form)) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
