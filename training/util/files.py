"""Files that others read while we write: complete or absent, never partial."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON to `path`, world readable: to a file beside it, which is then renamed.

    Numbers that JSON can't express (the loss of a run that diverged) become null.

    Raises:
        OSError: the folder can't be written to.
    """
    with replacing(path) as draft, draft.open("w", encoding="utf-8") as file:
        json.dump(_finite(value), file, indent=2, sort_keys=True, allow_nan=False)
        file.write("\n")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which then takes its place, world readable; on an error it goes.

    Raises:
        OSError: the folder can't be written to.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb") as file:
            publish(draft, file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def text_of(path: Path) -> str | None:
    """The text of a small file, without white space at its ends; None if it is not there or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def append_event(path: Path, event: str, figures: dict[str, Any]) -> None:
    """Append an event to a progress file: one line of JSON, visible to readers when this returns."""
    append_lines(path, [{"event": event, "time": time.time()} | figures])


def append_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append each of `rows` as one line of JSON, visible to readers when this returns."""
    text = "".join(json.dumps(_finite(row), allow_nan=False) + "\n" for row in rows)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    path.chmod(0o644)


def publish(path: Path, descriptor: int) -> None:
    """Make a file world readable and durable: after a crash, a rename must not expose an empty file."""
    path.chmod(0o644)
    os.fsync(descriptor)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
