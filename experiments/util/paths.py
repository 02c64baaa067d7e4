"""Where the repository is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
EXPERIMENTS: Final = REPOSITORY / "experiments"
ROLES: Final = REPOSITORY / "roles"
