"""Labelled images, from every source; one is read when its pixels are asked for."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from training.errors import DataError
from training.util.digest import file_digest
from training.workloads.image_classification.settings import Data

Pixels = npt.NDArray[np.uint8]
"""[channels, size, size]"""

FILTER: Final = Image.Resampling.BILINEAR

MODES: Final = {1: "L", 3: "RGB"}
"""Pillow's names, by the number of channels."""

DIGITS_NOTE: Final = (
    "1,797 handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak, 1998, the test half of UCI's "
    "optical recognition of handwritten digits), from the PyPI package scikit-learn. Training and validation "
    "split share writers."
)


class Images(ABC):
    """The images to draw from, by their numbers."""

    classes: list[str]  # their names, in the order of their numbers
    labels: list[int]  # the class of each image
    note: str
    starts: dict[str, int]  # the first image of each split that has its own; all others are split off train

    @abstractmethod
    def image(self, number: int) -> Image.Image:
        """An image as it is (errors: DataError)."""

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of all images and their classes."""

    def pixels(self, number: int, size: int, channels: int) -> Pixels:
        """An image, scaled so that its shorter side has `size` pixels, and the middle of it."""
        image = self.image(number).convert(MODES[channels])
        shorter = min(image.size)
        wide, high = (max(size, round(side * size / shorter)) for side in image.size)
        if (wide, high) != image.size:
            image = image.resize((wide, high), FILTER)
        left, top = (wide - size) // 2, (high - size) // 2
        cut = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.uint8)
        return cut.reshape(size, size, channels).transpose(2, 0, 1)


class Digits(Images):
    """Those of scikit-learn."""

    def __init__(self) -> None:
        """Read them from the package."""
        from sklearn.datasets import load_digits

        found = load_digits()
        self.classes = [str(number) for number in range(10)]
        self.labels = [int(label) for label in found.target]
        self.starts = {"train": 0}
        self.note = DIGITS_NOTE
        # From 0 to 16 in the package.
        self._images: Pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)

    def image(self, number: int) -> Image.Image:
        """One of them, 8 x 8, grey."""
        return Image.fromarray(self._images[number])

    def digest(self) -> str:
        """Of pixels and labels."""
        return hashlib.sha256(self._images.tobytes() + bytes(self.labels)).hexdigest()


class Folders(Images):
    """Files in one folder for each class, whose name is the folder's."""

    note = "The user's own files."

    def __init__(self, folders: dict[str, Path]) -> None:
        """List the images of a training folder and of those that other splits have.

        Raises:
            DataError: a folder is missing, has no folders of images, or has a class that the first lacks.
        """
        found = {split: _by_class(folder) for split, folder in folders.items()}
        self.classes = sorted(found["train"])
        for split, classes in found.items():
            if more := sorted(set(classes) - set(self.classes)):
                raise DataError(f"{folders[split]} has the class {more[0]}, which {folders['train']} lacks.")
        self._folders = folders
        self._paths: list[Path] = []
        self.labels, self.starts = [], {}
        for split, classes in found.items():
            self.starts[split] = len(self._paths)
            for label, name in enumerate(self.classes):
                self._paths += classes.get(name, [])
                self.labels += [label] * len(classes.get(name, []))

    @staticmethod
    def open(data: Data, files: Path) -> Folders:
        """Those that `data` names, relative to `files` (errors: `Folders`)."""
        return Folders({split: files / name for split, name in data.folders.items()})

    def image(self, number: int) -> Image.Image:
        """One of them."""
        path = self._paths[number]
        try:
            with Image.open(path) as image:
                image.load()
                return image
        except UnidentifiedImageError as error:
            raise DataError(f"The file {path} is no image that can be read; remove it.") from error
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"The image {path} can't be read: {error}") from error

    def digest(self) -> str:
        """Of every file's content and its place in the folders."""
        sha = hashlib.sha256()
        folders = list(self._folders.values())
        for number, path in enumerate(self._paths):
            which = sum(start <= number for start in self.starts.values()) - 1
            place = path.relative_to(folders[which]).as_posix()
            sha.update(f"{which} {place} {file_digest(path)}\n".encode())
        return sha.hexdigest()


def _by_class(folder: Path) -> dict[str, list[Path]]:
    """The files of each class, by its name, in the order of their names."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder} with images.")
    found = {
        each.name: sorted(
            path for path in each.rglob("*") if path.is_file() and not path.name.startswith(".")
        )
        for each in folder.iterdir()
        if each.is_dir() and not each.name.startswith(".")
    }
    found = {name: files for name, files in found.items() if files}
    if not found:
        raise DataError(
            f"The folder {folder} has no folders with images: give each class a folder with its name."
        )
    return found
