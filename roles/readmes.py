"""Writes roles/README.md and each role's README.md from its argument specs and meta files.

`python roles/readmes.py` writes them; `--check` only names the stale ones, and exits with 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import yaml

ROLES = Path(__file__).resolve().parent
#: In meta/main.yml: a role that is called, because a dependency would run too much or at the wrong time.
CALL = re.compile(r"^# Calls (?P<role>[\w{}]+): (?P<why>.+)$", re.MULTILINE)
#: Also there, as the first line: the role's purpose, if no entry point states it.
PURPOSE = re.compile(r"\A---\n# (?!Calls)(?P<text>.+)$", re.MULTILINE)
DOCUMENTATION = re.compile(r'^DOCUMENTATION = r"""\n(.+?)^"""', re.MULTILINE | re.DOTALL)

ENVIRONMENT = jinja2.Environment(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
)
ROLE = ENVIRONMENT.from_string("""\
# {{ name }}

{{ summary }}
{% for entry in entries %}

## {{ entry.heading }}

{{ entry.summary }}.
{% if entry.options %}

| variable | type | default | meaning |
|---|---|---|---|
{% for option in entry.options %}
| `{{ option.name }}` | {{ option.type }} | {{ option.default }} | {{ option.meaning }} |
{% endfor %}
{% endif %}
{% endfor %}
{% if modules %}

## Modules

{% for module in modules %}
- `{{ module.name }}`: {{ module.short_description }}
{% endfor %}
{% endif %}
{% if dependencies or calls %}

## Other roles

{% for role in dependencies %}
- depends on [{{ role }}](../{{ role }}/README.md)
{% endfor %}
{% for call in calls %}
- calls {{ call.role }}: {{ call.why }}
{% endfor %}
{% endif %}

<!-- Written by roles/readmes.py from meta/: change those. -->
""")
INDEX = ENVIRONMENT.from_string("""\
# Roles

| role | purpose |
|---|---|
{% for role in roles %}
| [{{ role.name }}]({{ role.name }}/README.md) | {{ role.summary }} |
{% endfor %}

Each page lists the role's variables. `tasks/main.yml` sets up a node in steps with the tags `install`,
`configure` and `run`; other files in `tasks/` that have variables of their own are called by a playbook or
another role.

<!-- Written by roles/readmes.py: change roles/*/meta. -->
""")


def cell(text: Any) -> str:
    """Text for a table cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def literal(value: Any) -> str:
    """A default as an inventory would write it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
    return f"`{text}`"


def options(spec: dict[str, Any], defaults: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The variables of one entry point."""
    for name, option in (spec.get("options") or {}).items():
        if option.get("required"):
            default = "required"
        elif "default" in option or name in defaults:
            default = cell(literal(option.get("default", defaults.get(name))))
        else:
            default = ""
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        choices = (
            f" One of {', '.join(f'`{each}`' for each in option['choices'] if each)}."
            if option.get("choices")
            else ""
        )
        yield {
            "name": name,
            "type": kind,
            "default": default,
            "meaning": cell(option["description"].rstrip(".")) + "." + choices,
        }


def read(path: Path) -> dict[str, Any]:
    """Content of a YAML file; empty if there is no such file."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def modules(folder: Path) -> list[dict[str, str]]:
    """A role's modules and lookups, from their DOCUMENTATION."""
    found = []
    for path in sorted([*folder.glob("library/*.py"), *folder.glob("lookup_plugins/*.py")]):
        match = DOCUMENTATION.search(path.read_text(encoding="utf-8"))
        if match is None:
            raise SystemExit(f"{path.relative_to(ROLES.parent)} has no DOCUMENTATION.")
        documented = yaml.safe_load(match[1])
        found.append(
            {
                "name": documented.get("module") or documented["name"],
                "short_description": cell(documented["short_description"]),
            }
        )
    return found


def pages() -> dict[Path, str]:
    """Every page by path."""
    found: dict[Path, str] = {}
    roles = []
    for folder in sorted(path.parent.parent for path in ROLES.glob("*/meta/argument_specs.yml")):
        specs = read(folder / "meta" / "argument_specs.yml")["argument_specs"]
        defaults = read(folder / "defaults" / "main.yml")
        meta = folder / "meta" / "main.yml"
        text = meta.read_text(encoding="utf-8") if meta.is_file() else ""
        purpose = PURPOSE.search(text)
        main = specs.get("main") or next(iter(specs.values()))
        summary = purpose["text"] if purpose else f"{main['short_description']}."
        roles.append({"name": folder.name, "summary": cell(summary)})
        found[folder / "README.md"] = ROLE.render(
            name=folder.name,
            summary=summary,
            entries=[
                {
                    "heading": f"tasks/{entry}.yml",
                    "summary": spec["short_description"],
                    "options": list(options(spec, defaults)),
                }
                for entry, spec in specs.items()
            ],
            dependencies=[each["role"] for each in read(meta).get("dependencies", [])],
            calls=[match.groupdict() for match in CALL.finditer(text)],
            modules=modules(folder),
        )
    return {ROLES / "README.md": INDEX.render(roles=roles), **found}


def main() -> int:
    """Entry point."""
    wanted = pages()
    stale = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(
                f"{path.relative_to(ROLES.parent)} is stale: run python roles/readmes.py",
                file=sys.stderr,
            )
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
