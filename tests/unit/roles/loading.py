"""Loads, calls and plays what is in roles and in no package: modules, plugins, scripts and playbooks."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[3]
# Where Ansible finds what a role's modules import.
ansible.module_utils.__path__ += map(str, sorted(ROOT.glob("roles/*/module_utils")))


def load(path: str) -> ModuleType:
    """Load a file of the repository as a module."""
    file = ROOT / path
    # A name that hides no package: a role's plugin may be called as one.
    name = f"loaded_{file.name.replace('-', '_').replace('.py', '')}"
    loader = importlib.machinery.SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    loader.exec_module(module)
    return module


def call(module: ModuleType, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """Call an Ansible module within this process; returns its result."""
    said = io.StringIO()
    with (
        patch_module_args({**arguments, "_ansible_check_mode": check}),
        contextlib.redirect_stdout(said),
        pytest.raises(SystemExit),
    ):
        module.main()
    result: dict[str, Any] = json.loads(said.getvalue())
    return result


def played_here(playbook: Path, inventory: Path, *arguments: str) -> tuple[int, str]:
    """Play a playbook whose nodes are this machine; returns its exit status and its output on one line."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            str(inventory),
            *arguments,
            str(playbook),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def value_of(variable: str, file: str, **given: Any) -> Any:
    """A variable that a file of the repository defines, with these values for others."""
    content = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    templar = Templar(loader=DataLoader(), variables={**_trusted(content), **given})
    return templar.template(trust_as_template(f"{{{{ {variable} }}}}"))


def _trusted(value: Any) -> Any:
    """The same with all its texts marked as templates."""
    if isinstance(value, dict):
        return {key: _trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each) for each in value]
    return trust_as_template(value) if isinstance(value, str) else value
