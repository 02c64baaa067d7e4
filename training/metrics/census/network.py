"""The network that this process sees: its interfaces, and what of the kernel's settings concerns TCP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from training.metrics.census.queueing import disciplines
from training.util.files import text_of

PROC: Final = Path("/proc")
SYS: Final = Path("/sys")
SETTINGS: Final = {
    "largest receive buffer in bytes": "core/rmem_max",
    "largest send buffer in bytes": "core/wmem_max",
    "TCP's receive buffers in bytes": "ipv4/tcp_rmem",
    "TCP's send buffers in bytes": "ipv4/tcp_wmem",
    "congestion control": "ipv4/tcp_congestion_control",
    "slow start after a pause": "ipv4/tcp_slow_start_after_idle",
    "longest backlog of connections": "core/somaxconn",
    "busy polling of sockets in µs": "core/busy_poll",
    "busy reading of sockets in µs": "core/busy_read",
}
"""Below /proc/sys/net; of buffers the smallest, the first and the largest."""

OWN: Final = re.compile(r"(?<=^veth).+|(?<=^vnet).+|(?<=^tap).+|(?=[a-f]*\d)[0-9a-f]{6,}(-[0-9a-f]+)?$")
"""The part of a virtual interface's name that is drawn, or counted up, each time one is made."""


def network() -> dict[str, str]:
    """Its interfaces, and the settings that TCP connections between ranks go by.

    Ends of the cables of containers and virtual machines (`veth1a2b3c4`), and bridges whose names are drawn
    (`br-0123456789ab`), are one entry for each kind (`veth*`), however many there are: their names and their
    number change from run to run, and slow nothing down.
    """
    files = {name: text_of(PROC / "sys" / "net" / path) for name, path in SETTINGS.items()}
    found = {name: " ".join(text.split()) for name, text in files.items() if text}
    return found | _interfaces(disciplines())


def _interfaces(queueing: Mapping[int, str]) -> dict[str, str]:
    kinds: dict[str, set[str]] = {}
    for folder in (SYS / "class" / "net").glob("*/"):
        name = folder.name if (folder / "device").exists() else OWN.sub("*", folder.name)
        kinds.setdefault(f"interface {name}", set()).add(_interface(folder, queueing))
    return {name: "; ".join(sorted(kinds[name])) for name in sorted(kinds)}


def _interface(folder: Path, queueing: Mapping[int, str]) -> str:
    """`state up, MTU 1500, 10000 Mbit/s, driver virtio_net, queueing mq fq_codel`: as far as it is known."""
    state, mtu, speed, index = (text_of(folder / name) for name in ("operstate", "mtu", "speed", "ifindex"))
    driver = folder / "device" / "driver"
    said = {
        "state {}": state,
        "MTU {}": mtu,
        # Of one that is down the kernel says nothing or -1; drivers may say the same as an unsigned number.
        "{} Mbit/s": speed if speed not in (None, "-1", "4294967295") else None,
        "driver {}": driver.resolve().name if driver.exists() else None,
        "queueing {}": queueing.get(int(index)) if index else None,
    }
    return ", ".join(words.format(text) for words, text in said.items() if text)
