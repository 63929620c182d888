"""A gfx950 code object as values: its kernels, their instructions and the line table."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from mlagen.binary.decode import decode_at
from mlagen.binary.descriptor import KernelDescriptor, read_descriptor
from mlagen.binary.elf import DESCRIPTOR_BYTES, ElfImage, read_elf
from mlagen.binary.instruction import INDIRECT, LEAVES, MachineInstruction
from mlagen.binary.lines import read_line_table
from mlagen.binary.metadata import KernelInfo, read_metadata
from mlagen.disk import read_file
from mlagen.errors import BinaryError, UnsupportedError
from mlagen.targets.gfx950.limits import GFX950

_MOST_INSTRUCTIONS = 1 << 16  # of a kernel; AITER's largest has 32,899
_SHARED = 2  # times .text that all kernels together may hold: one may lie in another
_NAMED = 16  # kernels that a message lists


@dataclass(frozen=True)
class KernelCode:
    """One kernel: descriptor, metadata (None without a note) and machine code.

    `text_offset`: of the entry within .text, in bytes. Instruction offsets count from the entry,
    which has `address` in the ELF file: what disassemblers print.
    """

    name: str
    descriptor: KernelDescriptor
    info: KernelInfo | None
    text_offset: int
    address: int
    code: bytes

    @cached_property
    def instructions(self) -> tuple[MachineInstruction, ...]:
        """The instructions that can be reached from the entry, by offset.

        Bytes that no path reaches (padding, data) are not decoded. BinaryError when a reachable
        word is no gfx950 instruction, or control leaves the kernel's bytes; UnsupportedError for
        more instructions than the checkers take apart in reasonable time.
        """
        found: dict[int, MachineInstruction] = {}
        work = [0]
        while work:
            offset = work.pop()
            while offset not in found:
                if not 0 <= offset < len(self.code):
                    raise BinaryError(
                        f"kernel {self.name}: control reaches byte {offset:#x}, outside its "
                        f"{len(self.code)} bytes of code"
                    )
                try:
                    ins = decode_at(self.code, offset)
                except BinaryError as why:
                    raise BinaryError(
                        f"kernel {self.name}, byte {offset:#x}: {why.message}"
                    ) from None
                found[offset] = ins
                if len(found) > _MOST_INSTRUCTIONS:
                    raise UnsupportedError(
                        f"kernel {self.name} has over {_MOST_INSTRUCTIONS} instructions, the most "
                        "that are taken apart"
                    )
                target = ins.branch_target
                if target is not None:
                    work.append(target)
                if ins.mnemonic in LEAVES or ins.mnemonic in INDIRECT:
                    break
                offset += ins.size
        return tuple(found[offset] for offset in sorted(found))

    @property
    def kernarg_bytes(self) -> int:
        """Size of the argument segment: the larger of descriptor and metadata (either may be 0)."""
        declared = self.info.kernarg_bytes if self.info else 0
        return max(self.descriptor.kernarg_bytes, declared)

    def argument_name(self, offset: int) -> str:
        """What the argument at a byte offset of the segment is called: `k`, `sizes+0x8` for what
        lies inside of a larger one, its offset where the object does not say."""
        for argument in self.info.arguments if self.info else ():
            if argument.offset <= offset < argument.offset + argument.size:
                inside = offset - argument.offset
                return f"{argument.name}+{inside:#x}" if inside else argument.name
        return f"argument dword {offset:#x}"


@dataclass(frozen=True)
class CodeObject:
    """Everything read from one file.

    `line_table` maps byte offsets within .text to lines of the assembly source ({} without -g);
    `line_of(kernel, pc)` looks one up.
    """

    target: str
    kernels: dict[str, KernelCode]
    line_table: dict[int, int]

    def kernel(self, name: str | None = None) -> KernelCode:
        """The named kernel, or the only one."""
        if name is None:
            if len(self.kernels) == 1:
                return next(iter(self.kernels.values()))
            raise BinaryError(
                f"the code object has {len(self.kernels)} kernels; name one of: {self._names()}"
            )
        if name not in self.kernels:
            raise BinaryError(
                f"the code object has no kernel {name}", hint=f"it has: {self._names()}"
            )
        return self.kernels[name]

    def _names(self) -> str:
        names = sorted(self.kernels)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    def line_of(self, kernel: KernelCode, pc: int) -> int | None:
        """Line of the assembly source for a byte offset from the kernel's entry."""
        return self.line_table.get(kernel.text_offset + pc)


def read_code_object(path: Path | str) -> CodeObject:
    """`load_code_object` of a file. MissingError where it cannot be read; errors name the file."""
    data = read_file(path)
    try:
        return load_code_object(data)
    except BinaryError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


@lru_cache(maxsize=4)
def load_code_object(data: bytes) -> CodeObject:
    """Read a linked gfx950 code object. Raises BinaryError for anything else or damaged.

    The last few are kept: checkers run the same object over and over.
    """
    image = read_elf(data)
    infos = {info.symbol: info for info in read_metadata(image.metadata)}
    found: dict[str, tuple[KernelDescriptor, KernelInfo | None, int]] = {}
    for symbol in image.kernels:
        if symbol.size not in (0, DESCRIPTOR_BYTES):
            continue
        name = symbol.name.removesuffix(".kd")
        raw = image.read(symbol.address, DESCRIPTOR_BYTES, f"the descriptor of kernel {name}")
        descriptor = read_descriptor(raw, name)
        _check_limits(name, descriptor)
        entry = symbol.address + descriptor.entry_offset - image.text_address
        if not 0 <= entry < len(image.text) or entry % 4:
            raise BinaryError(
                f"the entry of kernel {name} lies outside .text, at offset {entry:#x}"
            )
        found[name] = descriptor, infos.get(symbol.name), entry
    if not found:
        raise BinaryError(
            "the code object has no kernel: no symbol ends in .kd",
            hint="a kernel needs an .amdhsa_kernel block and a global symbol",
        )
    ends = _ends(image, [entry for _, _, entry in found.values()])
    kernels = {
        name: KernelCode(
            name=name,
            descriptor=descriptor,
            info=info,
            text_offset=entry,
            address=image.text_address + entry,
            code=image.text[entry : ends[entry]],
        )
        for name, (descriptor, info, entry) in found.items()
    }
    return CodeObject(GFX950.name, kernels, read_line_table(image))


def _check_limits(name: str, descriptor: KernelDescriptor) -> None:
    if descriptor.lds_bytes > GFX950.lds_bytes:
        raise BinaryError(
            f"kernel {name} asks for {descriptor.lds_bytes} bytes of LDS; gfx950 has "
            f"{GFX950.lds_bytes}"
        )
    if descriptor.vgprs > GFX950.vgprs_per_simd_lane:
        raise BinaryError(
            f"kernel {name} asks for {descriptor.vgprs} vector registers; gfx950 has "
            f"{GFX950.vgprs_per_simd_lane}"
        )


def _ends(image: ElfImage, entries: list[int]) -> dict[int, int]:
    """Where the kernel at each entry ends: by its symbol's size, or at what starts next.

    Kernels may share some code, but reading all of them is little more work than reading .text.
    """
    functions = {
        address - image.text_address: size
        for address, size in image.functions.items()
        if 0 <= address - image.text_address < len(image.text)
    }
    starts = sorted({*functions, *entries, len(image.text)})
    ends = {}
    for entry in entries:
        size = functions.get(entry, 0)
        ends[entry] = entry + size if size else starts[bisect_right(starts, entry)]
    held = sum(ends[entry] - entry for entry in entries)
    if held > _SHARED * len(image.text):
        raise BinaryError(
            f"the code object is damaged: its {len(entries)} kernels hold {held} bytes of code "
            f"together, .text has {len(image.text)}, so they overlap"
        )
    return ends
