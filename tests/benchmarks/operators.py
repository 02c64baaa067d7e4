"""Which part of a step an operator belongs to, by its name and those of what called it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from torch.profiler import record_function

from training.metrics.phases import Phases

PHASE: Final = "phase: "
STEP: Final = "step"

MATRIX: Final = "matrix products"
ATTENTION: Final = "attention"
DRAWS: Final = "dropout's draws"
NORMALISATION: Final = "normalisation"
ELEMENTWISE: Final = "element-wise, and sums"
EMBEDDING: Final = "embedding and its gradient"
OPTIMISER: Final = "optimiser"
CLIPPING: Final = "clipping"
DATA: Final = "data"
COPIES: Final = "copies and all other operators"
OUTSIDE: Final = "Python and the rest outside operators"
ROWS: Final = (
    MATRIX,
    ATTENTION,
    DRAWS,
    NORMALISATION,
    ELEMENTWISE,
    EMBEDDING,
    OPTIMISER,
    CLIPPING,
    DATA,
    COPIES,
    OUTSIDE,
)

DRAWN: Final = ("bernoulli", "uniform", "rand", "rand_like", "random")
MULTIPLIED: Final = ("mm", "addmm", "addmv", "linear", "matmul", "mkldnn_linear")
OF_ATTENTION: Final = ("scaled_dot_product", "bmm", "softmax")
POINTWISE: Final = (
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "sum",
    "mean",
    "gelu",
    "gelu_backward",
    "tanh",
    "tanh_backward",
    "masked_fill",
    "where",
    "native_dropout",
    "native_dropout_backward",
    "dropout",
)


def row_of(names: Sequence[str]) -> str:
    """The row, one of `ROWS`, of the time that an operator itself takes.

    Draws are dropout's wherever they are made; the products of attention are attention's.

    Args:
        names: of the operator, of what called it, and so on to the range of the step (`STEP`).
    """
    library, _, kind = names[0].partition("::")
    is_operator = bool(kind) and library not in ("autograd", "torch")
    calls = [name.lower() for name in names if name != STEP and not name.startswith(PHASE)]
    if PHASE + "data" in names:
        return DATA
    if any(name.startswith("Optimizer.") for name in names):
        return OPTIMISER
    if not is_operator:
        return OUTSIDE
    if PHASE + "optimiser" in names:
        return CLIPPING
    plain = kind.lower().rstrip("_")
    if plain in DRAWN:
        return DRAWS
    if any(word in name for name in calls if "log" not in name for word in OF_ATTENTION):  # not the loss's
        return ATTENTION
    if any("embedding" in name for name in calls):
        return EMBEDDING
    if any("layer_norm" in name or "layernorm" in name for name in calls):
        return NORMALISATION
    if plain in MULTIPLIED:
        return MATRIX
    return ELEMENTWISE if plain in POINTWISE else COPIES


class Ranges(Phases):
    """Makes a range for torch's profiler out of each phase, in the place of taking its time."""

    def __init__(self) -> None:
        super().__init__()
        self._range: Any = None

    def begin(self, phase: str) -> None:
        """Begin a phase's range, and end the one before it."""
        self.end()
        self._range = record_function(PHASE + phase)
        self._range.__enter__()

    def end(self) -> None:
        """End the current range."""
        if self._range is not None:
            self._range.__exit__(None, None, None)
        self._range = None


def times_of(events: Iterable[Any]) -> tuple[dict[str, float], dict[str, int]]:
    """What torch's profiler saw in all steps, by row; each step is in a range named `STEP`.

    Args:
        events: the profiler's, with their callers (`cpu_parent`) and the time they take themselves, in us.

    Returns:
        Milliseconds, and how many operators and ranges were called from the row.
    """
    times, calls = dict.fromkeys(ROWS, 0.0), dict.fromkeys(ROWS, 0)
    for event in events:
        names = _names(event)
        if names[-1] != STEP:
            continue
        times[row_of(names)] += event.self_cpu_time_total / 1000
        if len(names) > 1:
            calls[row_of(names[1:])] += 1
    return times, calls


def _names(event: Any) -> list[str]:
    """Of an event, of what called it, and so on."""
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return names
