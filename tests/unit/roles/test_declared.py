"""What roles declare: the collections that they use, and the roles that they call."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.unit.roles.loading import ROOT, load

readmes = load("roles/readmes.py")

COLLECTION = re.compile(r"\b((?:community|ansible)\.[a-z]+)\.[a-z_]+")
INSTALLED = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages/ansible_collections"
ROLES = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/tasks/main.yml"))


def test_requirements_name_the_collections_in_use() -> None:
    required = yaml.safe_load((ROOT / "requirements.yml").read_text(encoding="utf-8"))["collections"]
    paths = [*(ROOT / "roles").glob("*/*/*.yml"), *(ROOT / "playbooks").glob("*.yml")]
    used = {name for path in paths for name in COLLECTION.findall(path.read_text(encoding="utf-8"))}
    assert {each["name"] for each in required} == used - {"ansible.builtin"}
    for each in required:
        manifest = INSTALLED / each["name"].replace(".", "/") / "MANIFEST.json"
        version = json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"]
        assert version in SpecifierSet(each["version"]), each


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_argument_specs_describe_every_default(role: Path) -> None:
    defaults = role / "defaults" / "main.yml"
    if not defaults.is_file():
        return
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))[
        "argument_specs"
    ]
    described = {option for entry in specs.values() for option in entry.get("options") or {}}
    assert set(yaml.safe_load(defaults.read_text(encoding="utf-8"))) <= described


def tasks(found: Any) -> Iterator[dict[str, Any]]:
    """All tasks in a file, including those within blocks."""
    for task in found or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part))


def library(role: str) -> Path:
    """The folder of a role's modules."""
    return ROOT / "roles" / role / "library"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_roles_declare_the_roles_that_they_call(role: Path) -> None:
    meta = role / "meta" / "main.yml"
    text = meta.read_text(encoding="utf-8") if meta.is_file() else ""
    dependencies = [each["role"] for each in (yaml.safe_load(text) or {}).get("dependencies", [])]
    declared = {match["role"] for match in readmes.CALL.finditer(text)} | set(dependencies)
    called: set[str] = set()
    modules: set[str] = set()
    for path in (role / "tasks").glob("*.yml"):
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for action in ("include_role", "import_role"):
                if name := (task.get(f"ansible.builtin.{action}") or {}).get("name"):
                    called.add(re.sub(r"\W", "", name) if "{{" not in name else "{stack}")
            modules |= task.keys()
    lent = {
        lender
        for lender in ("node", "runs")
        if modules & {path.stem for path in library(lender).glob("*.py")}
    }
    assert declared - {role.name} == (called | lent) - {role.name}
    for each in declared - {"{stack}"}:
        assert (ROOT / "roles" / each).is_dir()


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_that_may_end_early_imports_no_other(role: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (role / "tasks").glob("*.yml")]
    if any("meta: end_role" in text for text in texts):
        # end_role skips this role's own tasks only: those of an imported role would still run.
        assert not any("import_role:" in text for text in texts)


def test_few_tasks_are_shell_each_with_its_reason() -> None:
    found = {}
    for path in sorted((ROOT / "roles").glob("*/*/*.yml")):
        text = path.read_text(encoding="utf-8")
        if "ansible.builtin.shell:" in text:
            found[str(path.relative_to(ROOT))] = text.count("In shell: ")
    assert found and set(found.values()) == {1}, found
    assert len(found) <= 8


def test_readmes_are_current() -> None:
    stale = [path for path, text in readmes.pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == []
