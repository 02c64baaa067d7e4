"""The fields that `--json` prints, and those that the reference names."""

from __future__ import annotations

import re
from typing import Any

from experiments.util.paths import REPOSITORY

FREE = "axes"  # its fields are the matrix's


def documented(command: str) -> set[str]:
    """The fields that docs/reference.md names for a command, such as `runs[].run_id`."""
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    section = text.partition("\n## JSON\n")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = {}
    of = ""
    for named, fields in re.findall(r"^\| (\w*) ?\| (`[^|]*) \|", section, re.MULTILINE):
        of = named or of
        found.setdefault(of, set()).update(re.findall(r"`([^`]+)`", fields))
    return found[command]


def fields(content: dict[str, Any], within: str = "") -> set[str]:
    """The fields of an object, and of the objects in it."""
    found = set()
    for name, value in content.items():
        path = f"{within}{name}"
        found.add(path)
        if isinstance(value, dict) and name != FREE:
            found |= fields(value, f"{path}.")
        for each in value if isinstance(value, list) else ():
            if isinstance(each, dict):
                found |= fields(each, f"{path}[].")
    return found
