"""Which images a residual network learns to classify, and which network; needs only pydantic."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from training.metrics.of_predictions import OF_TWO_CLASSES, names_of_classes
from training.settings import DataSettings, ModelOfSomeKind, Pretrained, PretrainedData


class Data(PretrainedData):
    """Which images to take, and what the network sees of them.

    An image is scaled so that its shorter side has `size` pixels, and the middle is cut out.
    """

    LATER: ClassVar[dict[str, Any]] = {"test_folder": None}
    PRETRAINED = "network"

    source: Literal["digits", "folders"] = "digits"
    train_folder: str | None = Field(default=None, min_length=1)  # of `folders`: a folder for each class
    validation_folder: str | None = Field(default=None, min_length=1)  # None = split off `train_folder`
    test_folder: str | None = Field(default=None, min_length=1)  # likewise
    size: int = Field(ge=8, le=1024)  # pixels of a side
    channels: Literal[1, 3] = 3  # grey, or red, green and blue
    # Of the training split: moved by up to an eighth of the size, and mirrored left to right, at random.
    augmentation: Literal["none", "move", "move-mirror"] = "none"

    @property
    def has_classes(self) -> bool:
        """One for each image."""
        return True

    @property
    def metric(self) -> str:
        """The share of images that are classified correctly."""
        return "accuracy"

    @property
    def further_metrics(self) -> tuple[str, ...]:
        """Those of ten digits; only the folders say whether theirs are two classes, which the run checks."""
        return names_of_classes(10) if self.source == "digits" else OF_TWO_CLASSES

    @property
    def files(self) -> tuple[str, ...]:
        """The images, and the pretrained network if it is a folder."""
        return tuple(name for name in (*self.folders.values(), self.pretrained) if name)

    @property
    def folders(self) -> dict[str, str]:
        """The folders of images, by the split that is drawn from each."""
        named = {"train": self.train_folder, "validation": self.validation_folder, "test": self.test_folder}
        return {split: folder for split, folder in named.items() if folder is not None}

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.source == "folders") != (self.train_folder is not None):
            raise ValueError("train_folder goes with source: folders, and only with it")
        if self.folders and self.train_folder is None:
            raise ValueError(f"{next(iter(self.folders))}_folder needs a train_folder")
        if self.test_folder is not None and not self.test:
            raise ValueError("test_folder goes with test, which says how many of its images to take")
        return self


class Model(ModelOfSomeKind):
    """A residual network with a new classifier on top; `init` says where its weights come from."""

    init: Literal["scratch", "pretrained"] = "scratch"

    def smallest_batch(self, data: DataSettings) -> int:
        """Two where the last stage sees a single pixel: a thirty-second of the size."""
        assert isinstance(data, Data)
        return 2 if data.size <= 32 else 1

    def precisions(self, data: DataSettings) -> tuple[str, ...]:
        """Not bf16 where the last stage's convolution steps over a single pixel.

        There oneDNN leaves parts of the gradient of its weights undefined, with AVX-512 and torch 2.13.
        """
        assert isinstance(data, Data)
        return ("fp32",) if data.size <= 16 else super().precisions(data)


class ScratchModel(Model):
    """A ResNet (He et al., 2015) with random initial weights; its defaults are ResNet-18."""

    init: Literal["scratch"] = "scratch"
    layers: Literal[18, 34, 50, 101, 152] = 18
    width: int = Field(default=64, ge=4, le=1024)  # channels after the first layer

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """`ResNet-18, from scratch`, with the width if it is not the usual one."""
        width = "" if self.width == 64 else f", {self.width} wide"
        return f"ResNet-{self.layers}{width}, from scratch"


class PretrainedModel(Pretrained, Model):
    """The network that the data set comes with, and its weights; the classifier on top is new."""

    init: Literal["pretrained"] = "pretrained"
