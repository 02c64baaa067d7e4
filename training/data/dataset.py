"""A prepared data set in memory, and who takes which reviews in which step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.util.digest import file_digest

if TYPE_CHECKING:
    import torch

    from training.data.untokenised import Untokenised

FORMAT: Final = 3  # since 3 with the texts
DESCRIPTION: Final = "dataset.json"
SPLITS: Final = ("train", "validation")
TEXTS: Final = "{split}.texts.arrow"  # what the ids of a split were made of
TOKENIZER: Final = "tokenizer.json"
ENCODER: Final = "encoder"  # folder of the pretrained encoder, where the data set has one
DAMAGED: Final = "The data set {path} is damaged ({files}); remove that folder and prepare it anew."


class DataError(ValueError):
    """Data that can't be used; its text is one sentence for whoever prepared it."""


@dataclass(frozen=True)
class Batch:
    """Reviews as the model takes them, on its device."""

    input_ids: torch.Tensor  # int64 [reviews, max_length]
    attention_mask: torch.Tensor  # int64 [reviews, max_length]; 1 = token, 0 = padding
    labels: torch.Tensor  # int64 [reviews]; 1 = positive


@dataclass(frozen=True)
class Reviews:
    """One split, memory-mapped: pages are read from the file when a batch first touches them."""

    input_ids: npt.NDArray[np.int32]  # [reviews, max_length]
    attention_mask: npt.NDArray[np.int8]  # [reviews, max_length]
    labels: npt.NDArray[np.int8]  # [reviews]
    untokenised: Untokenised | None = None  # where ids are made anew for each batch, and not read

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: torch.Tensor, device: torch.device) -> Batch:
        """The reviews with the numbers `chosen` (int64 [reviews]), copied from the file to `device`."""
        import torch

        rows = chosen.numpy()
        if self.untokenised:
            tokens = self.untokenised.tokens(rows)
        else:
            tokens = self.input_ids[rows], self.attention_mask[rows]
        columns = (torch.from_numpy(column) for column in (*tokens, self.labels[rows]))
        return Batch(*(column.to(device, torch.int64) for column in columns))


@dataclass(frozen=True)
class Dataset:
    """A prepared data set."""

    path: Path
    about: dict[str, Any]  # dataset.json
    train: Reviews
    validation: Reviews

    @property
    def vocabulary(self) -> int:
        """Number of entries that its token ids come from."""
        learnt = self.about["spec"]["tokenizer"] == "wordpiece-from-train"
        return int(self.about["spec"]["vocabulary"] if learnt else self.about["vocabulary"])

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        spec = self.about["spec"]
        return (
            f"{spec['source']}: {len(self.train)} reviews to train, {len(self.validation)} to validate, "
            f"{spec['max_length']} tokens ({spec['pretrained'] or spec['tokenizer']})"
        )

    @property
    def encoder(self) -> Path:
        """Folder of the pretrained encoder that came with it.

        Raises:
            DataError: none came.
        """
        if not (self.path / ENCODER).is_dir():
            raise DataError(f"The data set {self.path} brought no pretrained encoder; prepare it with one.")
        return self.path / ENCODER


def open_dataset(path: Path, digest: str, *, in_loop: bool = False, run: Path | None = None) -> Dataset:
    """The prepared data set in `path`.

    Args:
        path: its own folder.
        digest: what the run asks for.
        in_loop: its texts become ids when a batch is taken; else they are not touched.
        run: folder of the run that made its own tokens; they are read in the place of the prepared ones.

    Raises:
        DataError: there is none, it is not the one with `digest`, a file of it has changed, it has no texts
            and they are asked for, or the run made no tokens.
    """
    try:
        about: dict[str, Any] = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"There is no prepared data set in {path} ({error}); stage it to this node first."
        ) from error
    if about.get("digest") != digest:
        raise DataError(f"The data set in {path} is {about.get('digest')}, but the run asks for {digest}.")
    texts = {TEXTS.format(split=name) for name in SPLITS}
    if in_loop and (lacking := texts - set(about["files"])):
        raise DataError(
            f"The data set {path} has no texts ({', '.join(sorted(lacking))}), which tokenizing: in_loop "
            "and in_run need; it was prepared by an older version: prepare it anew."
        )
    untouched = set() if in_loop else texts
    if run is not None:
        untouched |= {f"{name}.arrow" for name in SPLITS}
    if damaged := damaged_files(path, about, without=frozenset(untouched)):
        raise DataError(DAMAGED.format(path=path, files=", ".join(damaged)))
    tokens = path if run is None else _made(run)
    train, validation = (open_split(tokens, name) for name in SPLITS)
    if in_loop:
        train, validation = _untokenised(path, "train", train), _untokenised(path, "validation", validation)
    return Dataset(path, about, train, validation)


def _made(run: Path) -> Path:
    from training.data.in_run import made_tokens

    return made_tokens(run)


def damaged_files(path: Path, about: dict[str, Any], without: frozenset[str] = frozenset()) -> list[str]:
    """Names of the data set's files that are missing or whose bytes are not those that `prepare` wrote.

    Files in `without` are not looked at.
    """
    files: dict[str, str] = about["files"]
    return [
        name
        for name, digest in files.items()
        if name not in without and (not (path / name).is_file() or file_digest(path / name) != digest)
    ]


def open_split(path: Path, name: str) -> Reviews:
    """The tokens of one split, in the folder `path`."""
    with pa.memory_map(str(path / f"{name}.arrow")) as file:  # the arrays keep the mapping alive
        batch = pa.ipc.open_file(file).get_batch(0)
    length = batch.schema.field("input_ids").type.list_size
    # Not `to_numpy`, which imports pandas: over a second, for nothing.
    columns: list[npt.NDArray[Any]] = [
        np.from_dlpack(batch.column("input_ids").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("attention_mask").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("label")),
    ]
    return Reviews(columns[0], columns[1], columns[2])


def write_split(path: Path, ids: pa.Array, mask: pa.Array, labels: pa.Array, length: int) -> None:
    """Write one split as an Arrow file of a single batch, as training reads it.

    Args:
        path: the file.
        ids: int32 [reviews * length].
        mask: attention masks, int8 [reviews * length].
        labels: int8 [reviews].
        length: tokens of each review, padding counted.
    """
    columns = {
        "input_ids": pa.FixedSizeListArray.from_arrays(ids, length),
        "attention_mask": pa.FixedSizeListArray.from_arrays(mask, length),
        "label": labels,
    }
    write_arrow(path, pa.record_batch(columns))


def write_arrow(path: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file of a single batch, readable by everybody."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path.chmod(0o644)


def _untokenised(path: Path, name: str, reviews: Reviews) -> Reviews:
    from training.data.untokenised import Untokenised

    texts = Untokenised.open(path / TEXTS.format(split=name), path / TOKENIZER)
    return replace(reviews, untokenised=texts)


def derive_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A seed for one purpose, independent of those for others: 63 bits of a SHA-256."""
    text = ":".join([purpose, str(seed), *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def global_batches(
    reviews: int, size: int, *, keep_last: bool, seed: int, epoch: int
) -> Iterator[torch.Tensor]:
    """The numbers of the reviews of each step of an epoch, for all ranks together: int64 [size].

    A permutation that seed and epoch alone decide, cut into batches; the last one may be shorter, and is left
    out unless `keep_last`. Nothing is repeated (as `DistributedSampler` does to fill up the last batch).
    """
    import torch

    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    for batch in torch.split(torch.randperm(reviews, generator=generator), size):
        if keep_last or len(batch) == size:
            yield batch


def rank_share(batch: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """This rank's slice of a global batch: contiguous, sizes differ by one at most; it may be empty."""
    return batch.tensor_split(world_size)[rank]
