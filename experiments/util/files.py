"""Files that are there whole or not at all, their digests, and times as they are written in them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes beside `path`, then renames: a reader, or a power cut, finds all of it or nothing."""
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
    """`content` as JSON that a person can read."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def utc_now() -> datetime:
    """This moment, in UTC, to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def campaign_name(moment: datetime) -> str:
    """A campaign's name: the UTC time of its start."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def is_campaign_name(name: str) -> bool:
    """Whether a folder may be a campaign's; a copy's that somebody put beside it (`….bak`) is not."""
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", name) is not None


def sha256(content: bytes) -> str:
    """The SHA-256 of `content`, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
