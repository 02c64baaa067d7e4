"""YAML files with the line of every entry, for error messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.util.errors import UserError

Place = tuple[str | int, ...]
"""The keys and list indices that lead to an entry."""


@dataclass(frozen=True)
class NumberedYaml:
    """A file's content, and the line of each of its entries."""

    path: Path
    content: dict[str, Any]
    lines: dict[Place, int]

    def where(self, *places: Place) -> str:
        """The file and the lines of `places`; for a missing entry, the line of the entry around it."""
        found = sorted({_line(self.lines, place) for place in places if place})
        if not found:
            return str(self.path)
        return f"{self.path}, line{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


class _Loader(yaml.SafeLoader):
    """The safe loader; its errors also name the line of an invalid date, number or boolean."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of `node`."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            # 2026-02-30, 0x_, !!bool maybe: PyYAML does not catch what its conversions raise.
            kind = node.tag.rpartition(":")[2]
            said = f"{node.value!r} is not a valid YAML {kind}; put it in quotes if it is text"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from error


def read_mapping(text: str, path: Path, what: str) -> NumberedYaml:
    """The mapping in the file at `path`.

    Args:
        text: the content of the file.
        path: for messages.
        what: for a file that is not a mapping: a sentence that says what it should be.

    Raises:
        UserError: it is not YAML, is not a mapping, or has an entry twice.
    """
    lines: dict[Place, int] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        # An empty file has no node.
        content = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}{line}: not YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}.") from error
    if not isinstance(content, dict) or node is None:
        raise UserError(f"{path}: {what}")
    _walk(node, (), lines, path)
    return NumberedYaml(path, content, lines)


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], path: Path) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            if inner in lines:
                # PyYAML would silently take the last one.
                line = key.start_mark.line + 1
                raise UserError(f"{path}, line {line}: {_dotted(inner)} is set twice; keep one.")
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*place, index), lines, path)


def _line(lines: dict[Place, int], place: Place) -> int:
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))
