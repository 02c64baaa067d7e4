"""Points are drawn by the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from training.data.prepare import Place, Preparation
from training.data.prepared import write_arrow

from .settings import Data


def prepare(data: Data, place: Place) -> Preparation:  # noqa: ARG001  # they are made up
    """Points between -1 and 1, and whether they are inside of the circle."""

    def write(folder: Path) -> dict[str, Any]:
        draw = np.random.default_rng(data.seed)
        for name, size in data.splits.items():
            points = draw.uniform(-1, 1, (size, 2)).astype(np.float32)
            inside = (np.hypot(points[:, 0], points[:, 1]) < data.radius).astype(np.int64)
            columns = {"x": points[:, 0], "y": points[:, 1], "inside": inside}
            arrays = {column: pa.array(values) for column, values in columns.items()}
            write_arrow(folder / f"{name}.arrow", pa.record_batch(arrays))
        return {}

    return Preparation({"name": data.name, "sha256": f"{data.seed:064x}", "note": "Made up."}, write)
