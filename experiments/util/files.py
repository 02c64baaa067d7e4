"""Atomic file writes, digests and timestamps."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a temporary file and renames it: readers see all or nothing, even after a power cut."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def json_text(content: Any) -> str:
    """`content` as indented JSON."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def utc_now() -> datetime:
    """The current time in UTC, to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def campaign_name(moment: datetime) -> str:
    """A campaign's name: the UTC time of its start."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def is_campaign_name(name: str) -> bool:
    """Whether `name` can be a campaign folder's; that of a copy beside it (`….bak`) can't."""
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", name) is not None


def sha256(content: bytes) -> str:
    """The SHA-256 of `content`, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
