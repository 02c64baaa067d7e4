"""Texts to token ids as the first part of a run: once, before its ranks start (`tokenizing: in_run`).

The stack decides where this is done; the tokenizer is the data set's own. The tokens go to the run's folder,
laid out as in a prepared data set, and must equal the prepared ones: only then do all stacks train the same
work.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.errors import DataError
from training.spec import RunSpec
from training.util.digest import file_digest
from training.util.files import write_json
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.splits import (
    Split,
    find_splits,
    label_type,
    open_split,
    split_batch,
    write_split,
)
from training.workloads.text_classification.untokenised import Tokenizing

TOKENS: Final = "tokens"  # folder in the run's own
NOTE: Final = "prepared.json"
AT_ONCE: Final = 512  # texts; an encoding also keeps what was truncated, which takes memory
COLUMNS: Final = pa.schema(
    [
        ("row", pa.int64()),  # counted through the training split, then on through the validation split
        ("input_ids", pa.list_(pa.int32())),
        ("attention_mask", pa.list_(pa.int8())),
        ("label", pa.int16()),
    ]
)


def tokenise_rows(
    batches: Iterator[pa.RecordBatch], data: str, digest: str, threads: int
) -> Iterator[pa.RecordBatch]:
    """The tokens of some rows, as `COLUMNS`; a stack may call it in several processes, each with its rows.

    Args:
        batches: numbers of rows (int64) in their first column.
        data: folder of the prepared data set, on this node.
        digest: which data set the run asks for.
        threads: number that the tokenizer may use.

    Raises:
        DataError: the data set on this node is not the one with `digest`, is damaged, or has no texts.
    """
    splits = find_splits(Path(data), digest, in_loop=Tokenizing())
    # Opening it switched off the tokenizer's threads. Both variables are read at its first call.
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    for batch in batches:
        rows: npt.NDArray[np.int64] = np.from_dlpack(batch.column(0)).astype(np.int64, copy=False)
        for at in range(0, len(rows), AT_ONCE):
            yield from _tokens(splits, rows[at : at + AT_ONCE])


def _tokens(splits: dict[str, Split], rows: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    first = 0
    for split in splits.values():
        here = rows[(rows >= first) & (rows < first + len(split))]
        if len(here):
            assert split.untokenised is not None
            tokens = split.untokenised.tokens(here - first)
            lists = [_lists(tokens[name]) for name in ("input_ids", "attention_mask")]
            columns = [here, *lists, split.labels[here - first].astype(np.int16)]
            yield pa.record_batch([pa.array(column) for column in columns], schema=COLUMNS)
        first += len(split)


def _lists(values: npt.NDArray[Any]) -> pa.ListArray:
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1)))


def tokenise_alone(spec: RunSpec, data: Path, out: Path, started: float) -> None:
    """`prepare_in_run` in this process, with as many threads as the run gives a rank.

    Raises:
        DataError: the data set can't be used, or the tokens differ from the prepared ones.
    """
    threads, digest = number_of_threads(spec), spec.work.data_digest
    rows = pa.record_batch({"row": pa.array(np.arange(samples_of(spec), dtype=np.int64))})
    by = f"one process on {os.uname().nodename}, {threads_text(threads)}"

    def tokenise() -> pa.Table:
        return pa.Table.from_batches(tokenise_rows(iter([rows]), str(data), digest, threads), COLUMNS)

    prepare_in_run(spec, data, out, by, started, tokenise)


def number_of_threads(spec: RunSpec) -> int:
    """Threads of each process that makes tokens: as many as a rank has."""
    threads = spec.conditions.threads
    assert threads != "stack"  # no specification has it with tokenizing: in_run
    return threads


def threads_text(threads: int) -> str:
    """`1 thread`, `2 threads`."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


def samples_of(spec: RunSpec) -> int:
    """Number of samples in a run's splits."""
    return sum(spec.work.data.splits.values())


def prepare_in_run(
    spec: RunSpec, data: Path, out: Path, by: str, started: float, tokenise: Callable[[], pa.Table]
) -> None:
    """Tokenise a run's texts, keep the tokens in its folder, and note how long that took.

    Args:
        spec: the run.
        data: folder of the prepared data set, on this node.
        out: folder on storage that all ranks share.
        by: what does it, in words.
        started: when that began, in unix seconds.
        tokenise: does it; returns a table with `COLUMNS`, its rows in any order.

    Raises:
        DataError: the tokens differ from the prepared ones. Nothing is noted then.
    """
    folder = out / TOKENS
    folder.mkdir(parents=True, exist_ok=True)
    table = tokenise()
    _write(table.sort_by("row"), spec, folder)
    ended = time.time()
    _check_equal(folder, data, find_splits(data, spec.work.data_digest))
    write_json(
        out / NOTE,
        {
            "started": started,
            "ended": ended,
            "by": by,
            "rows": table.num_rows,
            "files": {
                f"{split}.arrow": file_digest(folder / f"{split}.arrow") for split in spec.work.data.splits
            },
        },
    )


def find_tokens(run: Path) -> Path:
    """The folder of the tokens that were made for a run, in the run's folder `run`.

    Raises:
        DataError: none were made, or they have changed since.
    """
    try:
        note = json.loads((run / NOTE).read_text(encoding="utf-8"))
        files: dict[str, str] = note["files"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"No tokens were made for this run ({error}), which tokenizing: in_run needs; make them "
            "before its ranks start (python -m training tokenise)."
        ) from error
    folder = run / TOKENS
    for name, digest in files.items():
        if not (folder / name).is_file() or file_digest(folder / name) != digest:
            raise DataError(
                f"The tokens that were made for this run are damaged ({folder / name}); check the "
                "shared storage, and run it again."
            )
    return folder


def tokens_digest(split: Split) -> str:
    """SHA-256 of ids, masks and labels, including their shapes."""
    sha = hashlib.sha256()
    for parts in (*(column.parts for column in split.columns.values()), [split.labels]):
        sha.update(f"{parts[0].dtype} {(len(split), *parts[0].shape[1:])}\n".encode())
        for part in parts:
            sha.update(np.ascontiguousarray(part).data)
    return sha.hexdigest()


def _write(table: pa.Table, spec: RunSpec, folder: Path) -> None:
    data = spec.work.data
    assert isinstance(data, Data)
    first = 0
    for split, size in data.splits.items():
        part = table.slice(first, size).combine_chunks()
        columns = [part.column(name).combine_chunks() for name in COLUMNS.names[1:]]
        ids, mask = (column.flatten() for column in columns[:2])
        labels = columns[2].cast(label_type(data))
        batch = split_batch({"input_ids": ids, "attention_mask": mask}, labels, data.max_length)
        write_split(folder / f"{split}.arrow", iter([batch]), data.max_length)
        first += size


def _check_equal(folder: Path, data: Path, prepared: dict[str, Split]) -> None:
    for name, before in prepared.items():
        now = open_split(folder, name)
        ours, theirs = tokens_digest(now), tokens_digest(before)
        if ours != theirs:
            raise DataError(
                f"This run's tokens of the {name} texts ({ours[:8]}) differ from the prepared ones "
                f"({theirs[:8]}; {_difference(now, before)}), so its weights could not be compared with any "
                f"other run's; check that {data} and the environment are the same on every node."
            )


def _difference(now: Split, before: Split) -> str:
    if len(now) != len(before) or now.input_ids.shape != before.input_ids.shape:
        return f"{len(now)} samples instead of {len(before)}"
    differs = (now.input_ids != before.input_ids).any(axis=1)
    differs |= (now.attention_mask != before.attention_mask).any(axis=1) | (now.labels != before.labels)
    return f"{int(differs.sum())} of {len(before)} samples, the first is number {int(differs.argmax())}"
