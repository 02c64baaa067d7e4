"""Values of roles' variables, as far as they can be known without a node, by Jinja alone.

What depends on a node's state stays unknown, and is said to be: nothing is guessed. Ansible itself is not
loaded for it, which patches the interpreter and takes a second.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
import yaml
from jinja2.nativetypes import NativeEnvironment
from jinja2.runtime import Context
from jinja2.utils import missing

from experiments.util.errors import UserError

DEPTH: Final = 20  # of variables that name one another: more is a circle


class Unknown(Exception):
    """The value depends on what only a node knows."""


class _Lazy(Context):
    """A variable whose value is a template itself is rendered when it is asked for."""

    def resolve_or_missing(self, key: str) -> Any:
        value = super().resolve_or_missing(key)
        return value if value is missing else _expand(self.environment, value, dict(self.get_all()))


class _Environment(NativeEnvironment):
    context_class = _Lazy


def _bool(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1", "t", "y")


def _replace(value: Any, pattern: str, replacement: str = "") -> str:
    return re.sub(pattern, replacement, str(value))


def _combine(value: Mapping[str, Any], *others: Mapping[str, Any], recursive: bool = False) -> dict[str, Any]:
    if recursive:
        raise Unknown("combine with recursive")
    return {key: each[key] for each in (value, *others) for key in each}


def _environment() -> _Environment:
    environment = _Environment(undefined=jinja2.StrictUndefined)
    environment.filters |= {
        "bool": _bool,
        "regex_replace": _replace,
        "basename": posixpath.basename,
        "dirname": posixpath.dirname,
        "combine": _combine,
        "zip": lambda value, *others: list(zip(value, *others, strict=False)),
    }
    # What counts, counts for a first set-up: nothing is there yet that could have changed.
    environment.globals |= {"dict": dict, "ansible_check_mode": False}
    return environment


ENVIRONMENT: Final = _environment()


def render(template: Any, variables: Mapping[str, Any]) -> Any:
    """The value of `template` (any value; strings may be templates).

    Raises:
        Unknown: it depends on something that is not among `variables`, or that Jinja alone does not know.
    """
    return _expand(ENVIRONMENT, template, dict(variables))


def holds(condition: Any, variables: Mapping[str, Any]) -> bool:
    """Whether a task's `when` may hold: False only where it certainly does not."""
    if isinstance(condition, list):
        return all(holds(each, variables) for each in condition)
    if isinstance(condition, bool):
        return condition
    try:
        return bool(render(f"{{{{ {condition} }}}}", variables))
    except Unknown:
        return True


def text(template: Any, variables: Mapping[str, Any]) -> str:
    """`template` as a reader sees it: what is unknown in it stays as its name, in brackets."""
    try:
        return str(render(template, variables))
    except Unknown:
        pieces = re.split(r"(\{\{.*?\}\})", str(template))
        return "".join(_piece(piece, variables) for piece in pieces)


def _piece(piece: str, variables: Mapping[str, Any]) -> str:
    if not piece.startswith("{{"):
        return piece
    try:
        return str(render(piece, variables))
    except Unknown:
        return f"<{piece[2:-2].strip()}>"


def _expand(environment: jinja2.Environment, value: Any, variables: dict[str, Any], depth: int = 0) -> Any:
    if isinstance(value, dict):
        return {key: _expand(environment, each, variables, depth) for key, each in value.items()}
    if isinstance(value, list):
        return [_expand(environment, each, variables, depth) for each in value]
    if not isinstance(value, str) or ("{{" not in value and "{%" not in value):
        return value
    depth = int(variables.get("rendering_depth", 0)) + 1
    if depth > DEPTH:
        raise Unknown(value)
    # A backslash in an expression is one, as Ansible has it; Jinja would take it for the start of an escape.
    template = re.sub(r"\{\{.*?\}\}", lambda found: found[0].replace("\\", "\\\\"), value, flags=re.DOTALL)
    try:
        found = environment.from_string(template).render(variables | {"rendering_depth": depth})
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise Unknown(str(error)) from error
    for each in found if isinstance(found, list) else [found]:
        if isinstance(each, jinja2.Undefined):
            raise Unknown(value)
    return found


def load_yaml(path: Path) -> Any:
    """The content of a role's YAML file; None where there is no such file.

    Raises:
        UserError: it can't be read, or is not YAML.
    """
    if not path.is_file():
        return None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
