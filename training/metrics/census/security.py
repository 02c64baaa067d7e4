"""What watches a process for security's sake: security modules, and filters of its system calls."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from training.util.files import text_of

PROC: Final = Path("/proc")
SYS: Final = Path("/sys")
STATES: Final = {
    "AppArmor": (Path("module/apparmor/parameters/enabled"), {"Y": "on", "N": "off"}),
    "SELinux": (Path("fs/selinux/enforce"), {"1": "enforcing", "0": "permissive"}),
}
"""Files below /sys that say whether a module is at work, and what they say."""


def security(of: str = "self") -> dict[str, str]:
    """The active security modules, the process's label by them, and how many filters its system calls pass.

    The mode of seccomp, capabilities and `no new privileges` are among what `process.state` says. A container
    rarely sees the list of modules.
    """
    lines = (line.partition(":") for line in (text_of(PROC / of / "status") or "").splitlines())
    status = {name: value.strip() for name, _, value in lines}
    found = {
        "modules": text_of(SYS / "kernel" / "security" / "lsm"),
        # SELinux ends it with a zero byte.
        "label": (text_of(PROC / of / "attr" / "current") or "").rstrip("\0"),
        "filters of system calls": status.get("Seccomp_filters"),
    }
    for name, (file, words) in STATES.items():
        said = text_of(SYS / file)
        found[name] = words.get(said, said) if said else None
    return {name: text for name, text in found.items() if text}
