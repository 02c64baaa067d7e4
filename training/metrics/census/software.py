"""What a process is made of: packages, shared libraries, the allocator, kernels of the arithmetic.

Packages and arithmetic are this process's; the rest may be another one's, whose name below /proc `of` is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import threadpoolctl

from training.util.files import text_of

#: Results of `mkl_cbwr_get_auto_branch`: the path that MKL takes on this processor (mkl_types.h).
MKL_BRANCHES: Final = {
    1: "not fixed",
    3: "COMPATIBLE",
    4: "SSE2",
    6: "SSSE3",
    7: "SSE4_1",
    8: "SSE4_2",
    9: "AVX",
    10: "AVX2",
    11: "AVX512_MIC",
    12: "AVX512",
    14: "AVX512_E1",
}
#: Folders of Python's modules and packages; by their names, as paths to them may lead over links.
OF_PYTHON: Final = frozenset({"site-packages", "dist-packages", "lib-dynload"})
ALLOCATORS: Final = ("jemalloc", "tcmalloc", "mimalloc", "hoard")
VERBOSE: Final = ("ONEDNN_VERBOSE", "DNNL_VERBOSE")  # variables that have oneDNN print what it does
OF_ONEDNN: Final = "onednn_verbose,"  # how its lines begin
SAID_OF_ONEDNN: Final = {
    "instructions of oneDNN": re.compile(r",cpu,isa:(.+)$", re.MULTILINE),
    "oneDNN's kernel of a convolution": re.compile(r",cpu,convolution,([^,]+),"),
}
BUILT_WITH: Final = re.compile(r"^ {2}- (.+?) ?(?:v|Version |Version: )(\d\S*).*$", re.MULTILINE)


def packages() -> dict[str, str]:
    """The version of every package that Python would import, from the names of their folders on its path."""
    found: dict[str, str] = {}
    for folder in map(Path, sys.path):
        try:
            entries = sorted(folder.glob("*.dist-info"))
        except OSError:
            continue  # it may not be read, so nothing is imported from it
        for entry in entries:
            name, _, version = entry.stem.rpartition("-")
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return dict(sorted(found.items()))


def shared_libraries(of: str = "self") -> dict[str, str]:
    """The file behind every shared library that is loaded, Python's own modules and packages left out."""
    found = {}
    for path in _loaded(of):
        if ".so" in path.name and OF_PYTHON.isdisjoint(path.parts):
            found[path.name.partition(".so")[0]] = str(path)
    return dict(sorted(found.items()))


def _loaded(of: str) -> list[Path]:
    lines = (text_of(Path("/proc", of, "maps")) or "").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    return sorted({Path(each[5]) for each in fields if len(each) == 6 and each[5].startswith("/")})


def memory(of: str = "self") -> dict[str, str]:
    """The C library and its allocator, or what takes its place."""
    names = {path.name for path in _loaded(of)}
    instead = [name for name in ALLOCATORS if any(name in each for each in names)]
    library = " ".join(platform.libc_ver()).strip() or "unknown"
    return {
        "C library": library,
        "allocator": instead[0] if instead else "the C library's",
        "page size": str(os.sysconf("SC_PAGE_SIZE")),
    }


def arithmetic() -> dict[str, str]:
    """What torch and MKL would compute with, and how exactly."""
    import torch

    onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    found = {
        "torch": torch.__version__,
        "instructions of torch": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "threads between operators": str(torch.get_num_interop_threads()),
        "precision of matrix products": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "oneDNN is used": str(onednn),
        "MKL is used": str(torch.backends.mkl.is_available()),  # type: ignore[no-untyped-call]
    }
    for name, version in BUILT_WITH.findall(torch.__config__.show()):
        found[name.replace("Intel(R) ", "")] = version
    found |= _of_mkl(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    if torch.version.cuda:
        found["CUDA"] = torch.version.cuda
    return found


def _of_mkl(library: Path) -> dict[str, str]:
    """The branch that MKL takes by itself and the one that is set, where torch was linked with it."""
    try:
        mkl = ctypes.CDLL(str(library))
        auto, chosen = mkl.mkl_serv_cbwr_get_auto_branch(), mkl.mkl_serv_cbwr_get(1)
    except (OSError, AttributeError):
        return {}  # another BLAS
    return {
        "branch that suits MKL": MKL_BRANCHES.get(auto, str(auto)),
        "branch of MKL": MKL_BRANCHES.get(chosen, str(chosen)),
    }


@cache  # oneDNN names its instruction set once in the life of a process
def kernels() -> dict[str, str]:
    """The instruction set and a kernel that oneDNN chose, and the kernels of other BLAS that are loaded.

    Only oneDNN itself tells what it chose, on standard output, when it computes something: here the smallest
    convolution. Where a variable has it print all that it does anyway, that is in the log.
    """
    found = {}
    for each in threadpoolctl.threadpool_info():
        if each["user_api"] == "blas" and each.get("architecture"):
            found[f"kernels of {each['internal_api']} {each['version']}"] = each["architecture"]
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return found
    if named := next((name for name in VERBOSE if name in os.environ), None):
        return found | {"instructions of oneDNN": f"in the log, by {named}"}
    said = _said_in_a_convolution()
    return found | {name: match[1] for name, told in SAID_OF_ONEDNN.items() if (match := told.search(said))}


def _said_in_a_convolution() -> str:
    """What oneDNN says of a convolution; what another thread prints meanwhile goes where it should."""
    import torch

    one, kept = torch.ones(1, 1, 1, 1), os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.no_grad(), torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):  # type: ignore[no-untyped-call]
                torch.mkldnn_convolution(one, one, None, [0, 0], [1, 1], [1, 1], 1)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        lines = file.read().decode(errors="replace").splitlines(keepends=True)
    if others := [line for line in lines if not line.startswith(OF_ONEDNN)]:
        os.write(1, "".join(others).encode())
    return "".join(line for line in lines if line.startswith(OF_ONEDNN))
