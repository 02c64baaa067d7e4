"""What this process is made of: packages, shared libraries, the allocator, kernels of the arithmetic."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from pathlib import Path
from typing import Final

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
ALLOCATORS: Final = ("jemalloc", "tcmalloc", "mimalloc", "hoard")
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


def shared_libraries() -> dict[str, str]:
    """The file behind every shared library that is loaded, Python's own modules and packages left out."""
    site = [Path(each) for each in sys.path if each]
    found = {}
    for path in _loaded():
        if ".so" in path.name and not any(path.is_relative_to(folder) for folder in site):
            found[path.name.partition(".so")[0]] = str(path)
    return dict(sorted(found.items()))


def _loaded() -> list[Path]:
    lines = (text_of(Path("/proc/self/maps")) or "").splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    return sorted({Path(each[5]) for each in fields if len(each) == 6 and each[5].startswith("/")})


def memory() -> dict[str, str]:
    """The C library and its allocator, or what takes its place."""
    names = {path.name for path in _loaded()}
    instead = [name for name in ALLOCATORS if any(name in each for each in names)]
    library = " ".join(platform.libc_ver()).strip() or "unknown"
    return {
        "C library": library,
        "allocator": instead[0] if instead else "the C library's",
        "page size": str(os.sysconf("SC_PAGE_SIZE")),
    }


def arithmetic() -> dict[str, str]:
    """Which kernels torch, oneDNN and MKL would run, and how exactly."""
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
