"""Bytecode of all that a run imports, and the same without some modules', which Python then compiles anew."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from pathlib import Path


def lacking(bytecode: Path, seconds: float) -> Path:
    """A copy of a folder of bytecode without modules that take so many seconds to compile; made once.

    Args:
        bytecode: what Python wrote there, as PYTHONPYCACHEPREFIX.
        seconds: of processor time, in a process that imports them all.
    """
    copy = bytecode.with_name(f"{bytecode.name}-without-{seconds:.3f}")
    if copy.is_dir():
        return copy
    without, compiled = set[Path](), 0.0
    for file in sorted(bytecode.rglob("*.pyc"), key=_chance):
        if compiled >= seconds:
            break
        source = source_of(file, bytecode)
        if source.is_file():
            text, began = source.read_bytes(), time.process_time()
            compile(text, str(source), "exec", dont_inherit=True)
            compiled += time.process_time() - began
            without.add(file)
    shutil.copytree(
        bytecode,
        copy,
        copy_function=os.link,
        ignore=lambda folder, names: {name for name in names if Path(folder, name) in without},
    )
    return copy


def source_of(file: Path, bytecode: Path) -> Path:
    """The source of which this is the bytecode."""
    place = file.relative_to(bytecode)
    return Path("/", place).with_name(f"{place.name.partition('.')[0]}.py")


def _chance(file: Path) -> int:
    """An order that has nothing to do with what modules are, and is always the same."""
    return zlib.crc32(bytes(file))
