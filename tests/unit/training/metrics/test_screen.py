"""What a person sees: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from typing import Any

from training.metrics.screen import Screen

START: dict[str, Any] = {
    "model": "a model",
    "parameters": 1234567,
    "data": "some data",
    "world_size": 2,
    "epochs": 3,
}
START["metric"] = "accuracy"
STEP: dict[str, Any] = {"epoch": 1, "steps": 9, "loss": 0.5, "samples_per_s": 123.4}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def show(stream: io.StringIO) -> str:
    screen = Screen(stream)
    screen.show("start", START | {"steps_per_epoch": 9})
    screen.show("resume", {"steps": 2, "epochs": 0})
    for step in (3, 6, 9):
        screen.show("step", STEP | {"step": step})
    screen.show("epoch", {"epoch": 1, "train_loss": 0.625, "validation_accuracy": 0.75, "seconds": 4.0})
    screen.show("checkpoint_passed_over", {"message": "It is damaged."})
    screen.close()
    return stream.getvalue()


def test_lines_where_nobody_looks_at_a_terminal() -> None:
    assert show(io.StringIO()).splitlines() == [
        "a model, 1,234,567 parameters; some data; 2 ranks, 3 epochs of 9 steps",
        "resuming from the checkpoint after step 2",
        "epoch 1 of 3, step 3 of 9: loss 0.5000, 123 samples/s",
        "epoch 1 of 3: loss 0.6250, validation accuracy 0.7500, 4.0 s",
        "It is damaged.",
    ]


def test_how_gradients_are_sent_is_said_where_it_is_not_as_usual() -> None:
    for sync, said in ((None, ""), ("dense", ""), ("rows", ", gradient_sync rows")):
        stream = io.StringIO()
        Screen(stream).show("start", START | {"steps_per_epoch": 9, "gradient_sync": sync})
        assert stream.getvalue().startswith(f"a model, 1,234,567 parameters{said}; some data")


def test_a_bar_on_a_terminal() -> None:
    shown = show(Terminal())
    assert "epoch 1 of 3:  33%" in shown and "9/9" in shown
    assert "loss 0.5000, 123 samples/s" in shown
    assert "epoch 1 of 3: loss 0.6250, validation accuracy 0.7500, 4.0 s\n" in shown
