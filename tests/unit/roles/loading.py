"""Loads the Python that lies in roles: modules, plugins and scripts, which are no packages."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


def load(path: str) -> ModuleType:
    """Load a file of the repository as a module."""
    file = ROOT / path
    loader = importlib.machinery.SourceFileLoader(file.name.replace("-", "_").replace(".py", ""), str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
