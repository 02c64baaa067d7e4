"""BERT without what nothing reads: padding, and the tokens of the last layer beside the first one.

The weights, their names and the configuration stay those of transformers' BertForSequenceClassification. Only
rounding differs, and which random numbers dropout draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.nn import functional
from transformers import AttentionInterface, BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from training.errors import WorkloadError

PACKED: Final = "trainbed_packed"
"""The name of `packed_attention` among transformers' implementations of attention."""

FEW_LENGTHS: Final = 16
"""Of whose multiples samples' keys are, with a mask, where torch's fast attention for CPUs computes in bf16:
oneDNN compiles products for each length, and does not keep enough of them for all lengths."""


def skip(network: Any, *, padding: bool, other_tokens: bool) -> None:
    """Have a network leave out what nothing reads, from now on.

    Args:
        network: to classify with, of any architecture.
        padding: take packed batches (`padding.packed`), and compute each sample's attention by itself.
        other_tokens: compute the last layer for the first token of each sample alone, the one that the
            classifier reads; keys and values are still those of all its tokens.

    Raises:
        WorkloadError: it is no BERT, or a decoder.
    """
    decodes = getattr(network.config, "is_decoder", False)
    if not isinstance(network, BertForSequenceClassification) or decodes:
        settings = {"padding: none": padding, "last_layer: first_token": other_tokens}
        asked = [name for name, is_asked in settings.items() if is_asked]
        kind = f"a {network.config.model_type}{' that decodes' if decodes else ''}"
        raise WorkloadError(
            f"{' and '.join(asked)} can only be had with a BERT that encodes, and this model is {kind}; "
            f"leave {'them' if len(asked) > 1 else 'it'} out."
        )
    if padding:
        network.config._attn_implementation = PACKED
    if padding or other_tokens:
        # As FSDP2 does: the layer with all its weights and hooks stays, and computes in another way.
        network.bert.encoder.layer[-1].__class__ = _FirstToken if other_tokens else _OfPacked


def packed_attention(
    module: torch.nn.Module,  # noqa: ARG001  # as transformers calls it
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,  # noqa: ARG001  # there is no padding to hide
    *,
    dropout: float,
    scaling: float,
    lengths: list[int],
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of packed samples: each token sees those of its own sample.

    Args:
        module: whose attention it is.
        query: as `key` and `value`, [1, heads, tokens, width of a head].
        key: see there.
        value: see there.
        attention_mask: None.
        dropout: share of the weights that are dropped.
        scaling: of the products.
        lengths: tokens of each sample.

    Returns:
        [1, tokens, heads, width of a head], and no weights. Of tokens beyond the samples' it is 0.
    """
    queries, keys, values = (_apart(each, lengths) for each in (query, key, value))
    found = _of_each(queries, keys, values, dropout, scaling)
    attended = torch.cat([each.transpose(1, 2) for each in found], dim=1)
    more = query.shape[2] - sum(lengths)
    return functional.pad(attended, (0, 0, 0, 0, 0, more)) if more else attended, None


AttentionInterface.register(PACKED, packed_attention)


def _apart(of_all: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, ...]:
    """What each sample has of [1, heads, tokens, width of a head], in which others may follow its tokens."""
    return torch.split(of_all[:, :, : sum(lengths)], lengths, dim=2)


def _of_each(
    queries: Sequence[torch.Tensor],
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    dropout: float,
    scaling: float,
) -> list[torch.Tensor]:
    """What each sample's queries find among its own tokens, [1, heads, queries, width of a head].

    Samples of equal length are computed together. (Nested tensors take longer on a CPU than padding does.)
    """
    compiled = keys[0].dtype == torch.bfloat16 and keys[0].device.type == "cpu" and not dropout
    multiple = FEW_LENGTHS if compiled else 1
    whole = all(query.shape[2] == key.shape[2] for query, key in zip(queries, keys, strict=True))
    alike: dict[int, list[int]] = {}
    for number, each in enumerate(keys):
        alike.setdefault(-(-each.shape[2] // multiple) * multiple, []).append(number)
    found: dict[int, torch.Tensor] = {}
    for length, numbers in alike.items():
        key, value = (torch.cat([_filled(of[number], length) for number in numbers]) for of in (keys, values))
        query = torch.cat([_filled(queries[number], length if whole else 1) for number in numbers])
        counts = [keys[number].shape[2] for number in numbers]
        mask = None
        if min(counts) < length:
            seen = torch.arange(length) < torch.tensor(counts)[:, None]
            mask = seen[:, None, None].expand(-1, -1, query.shape[2], -1)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling
        )
        for number, each in zip(numbers, torch.split(attended, 1), strict=True):
            found[number] = each[:, :, : queries[number].shape[2]]
    return [found[number] for number in range(len(keys))]


def _filled(of_one: torch.Tensor, length: int) -> torch.Tensor:
    """[1, heads, length, width of a head], with zeros at its end."""
    more = length - of_one.shape[2]
    return functional.pad(of_one, (0, 0, 0, more)) if more else of_one


def _first_tokens(hidden: torch.Tensor, begins: torch.Tensor | None) -> torch.Tensor:
    """The first token of each sample, [samples, 1, width].

    Args:
        hidden: [samples, length, width], or packed: [1, tokens, width].
        begins: int64 [samples], where each packed sample begins; None = they are not packed.
    """
    return hidden[:, :1] if begins is None else hidden[0].index_select(0, begins)[:, None]


class _OfPacked(BertLayer):  # type: ignore[no-untyped-call]
    """The last layer, of which the classifier takes the first token of each sample: [samples, 1, width]."""

    def forward(self, hidden_states: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        whole: torch.Tensor = super().forward(hidden_states, *arguments, **named)
        return _first_tokens(whole, named["begins"])


class _FirstToken(BertLayer):  # type: ignore[no-untyped-call]
    """The last layer, for the first token of each sample alone: [samples, 1, width]."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *_: Any,
        lengths: list[int] | None = None,
        begins: torch.Tensor | None = None,
        **__: Any,
    ) -> torch.Tensor:
        own, first = self.attention.self, _first_tokens(hidden_states, begins)
        query, key, value = (
            project(of).unflatten(-1, (-1, own.attention_head_size)).transpose(1, 2)
            for project, of in ((own.query, first), (own.key, hidden_states), (own.value, hidden_states))
        )
        dropout = own.dropout.p if self.training else 0.0
        if lengths is None:
            mask = None if attention_mask is None else attention_mask[:, :, :1]
            found = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=dropout, scale=own.scaling
            )
        else:
            keys, values = (_apart(each, lengths) for each in (key, value))
            found = torch.cat(_of_each(query.split(1), keys, values, dropout, own.scaling))
        attended = self.attention.output(found.transpose(1, 2).flatten(2), first)
        layer: torch.Tensor = self.feed_forward_chunk(attended)  # type: ignore[no-untyped-call]
        return layer
