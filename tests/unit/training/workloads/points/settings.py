"""Made-up points in a plane, and a network that finds out on which side of a circle they are."""

from __future__ import annotations

from pydantic import Field

from training.metrics.of_predictions import OF_TWO_CLASSES
from training.settings import DataSettings, ModelSettings


class Data(DataSettings):
    """Points drawn at random."""

    radius: float = Field(default=0.8, gt=0)

    @property
    def name(self) -> str:
        """`made-up points`."""
        return "made-up points"

    @property
    def metric(self) -> str:
        """The share of points whose side is known."""
        return "accuracy"

    @property
    def has_classes(self) -> bool:
        """Inside and outside."""
        return True

    @property
    def further_metrics(self) -> tuple[str, ...]:
        """Those of two classes."""
        return OF_TWO_CLASSES


class Model(ModelSettings):
    """Two layers, with normalisation over the batch between them."""

    hidden: int = Field(default=8, ge=1, le=1000)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """`two layers, 8 wide`."""
        return f"two layers, {self.hidden} wide"
