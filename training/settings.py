"""What settings are made of: typed, frozen, strict, and hashed.

Needs only pydantic, so that a controller without torch can plan runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
NotNegative = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Settings(BaseModel):
    """Settings that decide what a run does."""

    # Strict: `"2"` or `true` is not a number of workers, and a misspelt name must not mean a silent default.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    LATER: ClassVar[Mapping[str, Any]] = {}
    """Fields that digests leave out at these values: settings older than the fields keep their digests.

    Those of a class's bases count, too.
    """

    FORMER: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values that digests have in the place of today's, by field: settings older than a word keep theirs."""

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits: equal exactly when every field is equal."""
        return hashlib.sha256(canonical_json(self).encode()).hexdigest()


class DataSettings(Settings):
    """Which data a workload takes. Its own settings add where the data are and how they are prepared."""

    LATER: ClassVar[Mapping[str, Any]] = {"test": 0}

    train: Positive  # samples
    validation: Positive  # samples
    test: NotNegative = 0  # samples held out, and looked at once, at the end; 0 = none
    seed: NotNegative  # of the split

    @property
    def splits(self) -> dict[str, int]:
        """How many samples each split has, by name."""
        sizes = {"train": self.train, "validation": self.validation}
        return sizes | ({"test": self.test} if self.test else {})

    @property
    def has_own_loop(self) -> bool:
        """Whether a program of the user's own trains, and this package only starts it."""
        return False

    @property
    def tokenizes_later(self) -> bool:
        """Whether samples can also be made from texts in the loop or in the run (`tokenizing`)."""
        return False

    @property
    def has_classes(self) -> bool:
        """Whether each sample has one class, so that another library can count those that are right."""
        return False

    @property
    def has_lengths(self) -> bool:
        """Whether samples differ in length, so that those of similar length can share a batch."""
        return False

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens that the model computes for each sample, padding included; None if it takes no tokens."""
        return None

    @property
    def length_setting(self) -> str | None:
        """Name of the setting that decides how many tokens that is, for advice; None if there is none."""
        return None

    @property
    def metric(self) -> str:
        """Name of the metric by which people judge a model of these data."""
        return "loss"

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of that metric is a better model."""
        return self.metric != "loss"

    @property
    def further_metrics(self) -> tuple[str, ...] | None:
        """Names of metrics that need all predictions of a split together, which conditions may ask for.

        None = whatever they ask for.
        """
        return ()

    @property
    def name(self) -> str:
        """Where the data come from, in a word or two."""
        return "its own data"

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files and folders that are the user's, relative to the matrix."""
        return ()


class ForwardCost(NamedTuple):
    """What a forward pass computes for one sample, by formula; the backward pass computes twice as much."""

    flop: float  # floating-point operations in matrix products; a multiplication and an addition are two
    attention_weights: float  # how many there are: each goes through softmax and dropout


class ModelSettings(Settings):
    """Which model a workload trains, and from which weights."""

    def check(self, data: DataSettings) -> None:
        """Check that the model can take `data`.

        Raises:
            ValueError: it can't; the text says why.
        """

    def smallest_batch(self, data: DataSettings) -> int:  # noqa: ARG002  # for subclasses
        """The fewest samples of `data` that it can be trained with at once."""
        return 1

    def paddings(self, data: DataSettings) -> tuple[str, ...]:  # noqa: ARG002  # for subclasses
        """Values of the work's `padding` that it heeds with `data`."""
        return ("max_length",)

    def forward_cost(self, data: DataSettings) -> ForwardCost | None:  # noqa: ARG002  # for subclasses
        """What a forward pass computes for a sample of `data`, padding included; None: these don't say."""
        return None

    def precisions(self, data: DataSettings) -> tuple[str, ...]:  # noqa: ARG002  # for subclasses
        """Values of the work's `precision` in which it computes with `data` as it should."""
        return ("fp32", "bf16")

    @property
    def told(self) -> tuple[str, ...]:
        """Fields of the work that a program with a loop of its own is told on its command line."""
        return ()

    def text(self, data: DataSettings) -> str:
        """The model in a few words."""
        raise NotImplementedError


class PretrainedData(DataSettings):
    """Data that may come with a pretrained model."""

    PRETRAINED: ClassVar[str]  # what kind of model, in a word

    source: str
    pretrained: str | None = Field(default=None, min_length=1)  # the model's name on the hub, or its folder
    revision: str = Field(default="main", min_length=1)  # of the model on the hub

    @property
    def name(self) -> str:
        """The source's."""
        return self.source


class Pretrained(ModelSettings):
    """The model that the data set comes with, and its weights."""

    def check(self, data: DataSettings) -> None:
        """Check that the data set comes with a model."""
        assert isinstance(data, PretrainedData)
        if data.pretrained is None:
            raise ValueError(
                f"model.init: pretrained needs data.pretrained, which names the {data.PRETRAINED}"
            )

    def text(self, data: DataSettings) -> str:
        """`prajjwal1/bert-tiny, pretrained`, with the revision if one was asked for."""
        assert isinstance(data, PretrainedData)
        revision = "" if data.revision == "main" else f" ({data.revision})"
        return f"{data.pretrained}{revision}, pretrained"


class ModelOfSomeKind(ModelSettings):
    """A model whose settings depend on where its weights come from: `init`.

    Subclasses of a subclass are the kinds: each has its own `init`, and content becomes the kind that it
    names, or `scratch`.
    """

    init: str = "scratch"

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_kind(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        kinds = cls.__subclasses__()
        if not kinds or isinstance(content, cls) or not isinstance(content, dict):
            return handler(content)
        wanted = content.get("init", "scratch")
        kind = next((kind for kind in kinds if kind.model_fields["init"].default == wanted), None)
        return kind.model_validate(content) if kind else handler(content)


def _schema_of_any(kind: type[Settings], what: str) -> WithJsonSchema:
    """The JSON schema of a workload's own settings: what all workloads have, and whatever else it has."""
    schema = kind.model_json_schema()
    return WithJsonSchema(
        {"type": "object", "description": what}
        | {name: schema[name] for name in ("properties", "required") if name in schema}
    )


AnyData = Annotated[
    SerializeAsAny[DataSettings], _schema_of_any(DataSettings, "The workload's settings of its data.")
]
AnyModel = Annotated[
    SerializeAsAny[ModelSettings], _schema_of_any(ModelSettings, "The workload's settings of its model.")
]


def canonical(settings: Settings) -> dict[str, Any]:
    """The fields of `settings` as JSON has them, without those that came later and have their first value.

    Values that had another name before have that one.
    """
    fields = settings.model_dump(mode="json")
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            fields[name] = canonical(value)
    for name, words in type(settings).FORMER.items():
        fields[name] = words.get(fields[name], fields[name])
    later: dict[str, Any] = {}
    for base in reversed(type(settings).__mro__):
        later |= vars(base).get("LATER", {})
    return {name: value for name, value in fields.items() if later.get(name, ...) != value}


def canonical_json(settings: Settings) -> str:
    """`canonical` with sorted keys, no spaces and ASCII only: equal settings give equal text."""
    return json.dumps(
        canonical(settings), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
