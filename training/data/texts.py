"""What workloads on texts have in common in their settings: the source, the tokenizer, the transformer.

Needs only pydantic, as all settings.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from training.settings import DataSettings, ForwardCost, ModelSettings, PretrainedData


class TextData(PretrainedData):
    """Texts and a tokenizer; a workload says of which sources and which kinds."""

    OF_TABLES: ClassVar[dict[str, Any]] = {"text_column": "text"}
    """Settings that only files and data of the hub need, and their values for all other sources."""

    OF_HUB: ClassVar[dict[str, Any]] = {
        "dataset": None,
        "dataset_config": None,
        "train_split": "train",
        "validation_split": None,
        "test_split": None,
    }
    """Settings that only data of the hub need, and their values for all other sources."""

    AT_COMMIT: ClassVar[dict[str, Any]] = {"dataset_revision": "main"}
    """Settings that data of the hub need, and other sources that are there (`ON_HUB`)."""

    ON_HUB: ClassVar[tuple[str, ...]] = ("hub",)

    LATER: ClassVar[dict[str, Any]] = OF_HUB | AT_COMMIT | {"test_file": None}

    dataset: str | None = Field(default=None, min_length=1)  # of `hub`: its name there
    dataset_config: str | None = Field(default=None, min_length=1)  # which of its parts, where it has several
    dataset_revision: str = Field(default="main", min_length=1)  # a commit, or a branch: what it is at now
    train_split: str = Field(default="train", min_length=1)  # as it is called there
    validation_split: str | None = Field(default=None, min_length=1)  # None = split off `train_split`
    test_split: str | None = Field(default=None, min_length=1)  # likewise
    train_file: str | None = Field(default=None, min_length=1)  # of `files`: .csv, .jsonl, .parquet, .arrow
    validation_file: str | None = Field(default=None, min_length=1)  # None = split off `train_file`
    test_file: str | None = Field(default=None, min_length=1)  # likewise
    text_column: str = Field(default="text", min_length=1)
    tokenizer: str

    @property
    def name(self) -> str:
        """The source's, or what the hub calls it."""
        return "/".join(each for each in (self.dataset, self.dataset_config) if each) or self.source

    @property
    def files(self) -> tuple[str, ...]:
        """The texts, and the pretrained model if it is a folder."""
        named = (self.train_file, self.validation_file, self.test_file, self.pretrained)
        return tuple(name for name in named if name)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.source == "files") != (self.train_file is not None):
            raise ValueError("train_file goes with source: files, and only with it")
        for name in ("validation_file", "test_file"):
            if getattr(self, name) is not None and self.train_file is None:
                raise ValueError(f"{name} needs a train_file")
        for name in ("test_file", "test_split"):
            if getattr(self, name) is not None and not self.test:
                raise ValueError(f"{name} goes with test, which says how many of its samples to take")
        if (self.source == "hub") != (self.dataset is not None):
            raise ValueError("dataset goes with source: hub, and only with it")
        for others, sources in (
            (self.OF_TABLES, ("files", "hub")),
            (self.OF_HUB, ("hub",)),
            (self.AT_COMMIT, self.ON_HUB),
        ):
            own = [name for name, value in others.items() if getattr(self, name) != value]
            if own and self.source not in sources:
                raise ValueError(
                    f"{own[0]} goes with source: {' or '.join(sources)}; the data of {self.source} are known"
                )
        if (self.tokenizer == "pretrained") != (self.pretrained is not None):
            raise ValueError(
                f"pretrained (which {self.PRETRAINED}) goes with tokenizer: pretrained, and only with it"
            )
        return self


class Transformer(ModelSettings):
    """A transformer with random initial weights; the defaults are small enough for a CPU."""

    architecture: str
    layers: int = Field(default=2, ge=1, le=96)
    hidden: int = Field(default=128, ge=1, le=16384)
    heads: int = Field(default=2, ge=1, le=256)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """`bert, 2 layers, 128 wide, 2 heads, from scratch`."""
        return (
            f"{self.architecture}, {self.layers} layers, {self.hidden} wide, {self.heads} heads, from scratch"
        )

    def _cost_of_layer(self, tokens: int, intermediate: int, queries: int) -> ForwardCost:
        """Of one layer, for a sample of `tokens`, whose output is computed for `queries` of them."""
        keys_and_values = 4 * tokens * self.hidden**2
        queries_and_output = 4 * queries * self.hidden**2
        products_of_attention = 4 * queries * tokens * self.hidden
        feed_forward = 4 * queries * self.hidden * intermediate
        return ForwardCost(
            flop=keys_and_values + queries_and_output + products_of_attention + feed_forward,
            attention_weights=self.heads * queries * tokens,
        )

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self
