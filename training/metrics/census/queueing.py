"""How packets wait for each network interface: what `tc qdisc` shows, asked of the kernel itself."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

#: struct nlmsghdr of netlink(7), and struct tcmsg and struct rtattr of rtnetlink(7).
HEADER: Final = struct.Struct("=IHHII")
DISCIPLINE: Final = struct.Struct("=BxxxiIII")
ATTRIBUTE: Final = struct.Struct("=HH")
ASK: Final = 38  # RTM_GETQDISC
ALL: Final = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
ERROR: Final = 2  # NLMSG_ERROR
DONE: Final = 3  # NLMSG_DONE
TOLD: Final = 36  # RTM_NEWQDISC
KIND: Final = 1  # TCA_KIND
PATIENCE: Final = 1.0  # s for the kernel's answer, which takes microseconds


def disciplines() -> dict[int, str]:
    """The queueing disciplines of each interface, by its index, those at the root first.

    Needs no privileges; empty where the process may not ask, or the answer can't be read.
    """
    try:
        return names_in(_answers())
    except (OSError, struct.error):
        return {}


def names_in(answers: Iterator[bytes]) -> dict[int, str]:
    """The disciplines in the kernel's answers, by index of the interface.

    Raises:
        OSError: the kernel refused.
    """
    found: dict[int, dict[str, None]] = {}
    for answer in answers:
        for kind, content in _parts(answer):
            if kind == ERROR:
                number = -struct.unpack_from("=i", content)[0]
                raise OSError(number, os.strerror(number))
            if kind == DONE:
                return {index: " ".join(names) for index, names in found.items()}
            if kind == TOLD:
                index = DISCIPLINE.unpack_from(content)[1]
                found.setdefault(index, {})[_name(content[DISCIPLINE.size :])] = None
    raise OSError("the kernel's answer has no end")


def _answers() -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(PATIENCE)
        size = HEADER.size + DISCIPLINE.size
        kernel.send(HEADER.pack(size, ASK, ALL, 1, 0) + DISCIPLINE.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
        while answer := kernel.recv(1 << 16):
            yield answer


def _parts(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message."""
    while len(answer) >= HEADER.size:
        size, kind, *_ = HEADER.unpack_from(answer)
        yield kind, answer[HEADER.size : size]
        answer = answer[_aligned(size) :]


def _name(attributes: bytes) -> str:
    while len(attributes) >= ATTRIBUTE.size:
        size, kind = ATTRIBUTE.unpack_from(attributes)
        if kind == KIND:
            return attributes[ATTRIBUTE.size : size].rstrip(b"\0").decode(errors="replace")
        attributes = attributes[_aligned(size) :]
    return "unknown"


def _aligned(size: int) -> int:
    """`size` up to the next multiple of four, where the next part begins."""
    return max(4, (size + 3) & ~3)
