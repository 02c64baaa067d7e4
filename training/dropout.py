"""Dropout that draws fewer random bits, as the work's `dropout_draws` says.

On a CPU, most of dropout's time goes into random numbers.
"""

from __future__ import annotations

from typing import Final

import torch

LEVELS: Final = 2**16


def draw_16_bits(network: torch.nn.Module) -> int:
    """Have every `torch.nn.Dropout` of a network draw 16 bits for each number, from now on.

    Its probability is rounded to a multiple of 1/65,536, and what is kept is scaled for that one, in the
    type of what it drops from. Dropout that is no such module, as that inside of torch's attention, stays as
    it is.

    Returns the number of modules that drop anything.
    """
    # Of attention by transformers' interface (it has `is_causal`), torch reads the probability alone.
    attention = [each for each in network.modules() if hasattr(each, "is_causal")]
    only_read = {id(getattr(each, "dropout", None)) for each in attention}
    found = [
        each
        for each in network.modules()
        if type(each) is torch.nn.Dropout and each.p and id(each) not in only_read
    ]
    for module in found:
        module.__class__ = _Of16Bits
    return len(found)


class _Of16Bits(torch.nn.Dropout):
    """Dropout whose mask is made from 16 bits a number."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return input
        return input * mask(draws(input.numel(), input.device), self.p).to(input.dtype).view_as(input)


def draws(numbers: int, device: torch.device) -> torch.Tensor:
    """Integers from torch's generator, each value of 16 bits as likely as any other: int16 [numbers]."""
    raw = torch.empty(-(-numbers // 4), dtype=torch.int64, device=device).random_(-(2**63), None)
    return raw.view(torch.int16)[:numbers]


def mask(drawn: torch.Tensor, probability: float) -> torch.Tensor:
    """What dropout multiplies by: 0, or what makes up for the zeros; fp32, in the shape of `drawn`.

    Args:
        drawn: int16, see `draws`.
        probability: of a zero.
    """
    dropped = min(round(probability * LEVELS), LEVELS - 1)
    # Numbers, not truth values: these take a CPU three times as long to turn into numbers.
    return drawn.to(torch.float32).ge_(dropped - LEVELS // 2).mul_(LEVELS / (LEVELS - dropped))
