"""Equal bits on processors of different vendors: the kernels that numeric libraries choose are pinned.

By default MKL, ATen and oneDNN choose kernels by the processor, and sum in another order on each kind. Pinned
to what every x86-64 processor with AVX2 has, the same work ends with the same weights on Intel's and AMD's
(docs/reference.md has the digests). MKL promises that of its COMPATIBLE branch alone, which is also its
slowest; its AVX2 branch ends with other last bits on the two.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Literal

from training.errors import LaunchError
from training.util.files import text_of

Bits = Literal["machine", "portable"]

PORTABLE: Final = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""Variables that pin the kernels; each library reads its own once, when it is loaded or first used."""

CPUINFO: Final = Path("/proc/cpuinfo")


def pin_kernels(bits: Bits) -> None:
    """Pin the kernels for this process and those that it starts, if `bits` asks for that.

    Raises:
        LaunchError: torch has been loaded already, or the processor lacks what they are pinned to.
    """
    if bits == "machine":
        return
    if "avx2" not in (text_of(CPUINFO) or "").split():
        raise LaunchError(
            f"bits: portable needs an x86-64 processor with AVX2, and {os.uname().nodename} has none; use "
            "bits: machine."
        )
    if "torch" in sys.modules and any(os.environ.get(name) != value for name, value in PORTABLE.items()):
        raise LaunchError(
            "bits: portable came too late: torch was loaded before the rank began; its stack must start it "
            f"with {' '.join(f'{name}={value}' for name, value in PORTABLE.items())}."
        )
    os.environ |= PORTABLE
