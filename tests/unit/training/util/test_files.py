"""Files that others read while they are written: whole or not at all, and no draft stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from torch.profiler import profile

from training import evaluation
from training.metrics import trace
from training.util.files import replacing, write_json


def test_a_file_takes_its_place_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "figures"
    path.write_text("before")
    with replacing(path) as draft:
        draft.write_text("after")
        draft.chmod(0o600)
        assert path.read_text() == "before"
    assert path.read_text() == "after" and path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(KeyError), replacing(path) as draft:
        draft.write_text("half")
        raise KeyError
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, {"figures": object()})
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]


def test_no_draft_stays_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object, **_: object) -> None:
        next(each for each in given if isinstance(each, Path)).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        evaluation._write(tmp_path / "predictions-test.parquet", {"label": np.arange(3)})
    with pytest.raises(AssertionError):
        trace._write(profile(), tmp_path / "trace-0.json.gz")  # which has recorded nothing
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
