"""The model by torch.compile, as the conditions' `compile` says.

Forward and backward pass become generated code, once for each shape of a batch. Dropout draws the same random
numbers, so what is computed differs by rounding only.
"""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import torch

from training.errors import LaunchError
from training.metrics.phases import Phases
from training.spec import Conditions, Work

if TYPE_CHECKING:
    from torch._dynamo.callback import CallbackArgs

CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Environment variables with the folders of generated code."""

SHAPES: Final = 64
"""Of batches, at most, that a model may be compiled for; torch's own limit of 8 is soon reached."""

TRITON_NEEDS: Final = (7, 0)  # a GPU's compute capability


class Compilation:
    """What has been compiled on this rank so far."""

    def __init__(self, conditions: Conditions, phases: Phases) -> None:
        """`compiling` makes it."""
        self.seconds = 0.0  # that it took; they belong to the phase other
        self._mode, self._phases, self._began = conditions.compile, phases, 0.0

    def compile(self, network: torch.nn.Module, work: Work) -> None:
        """Have a network compiled when it is first called, for each shape of the work's batches."""
        # Batches of one length have few shapes. With others, one program must do for all.
        network.compile(mode=self._mode, dynamic=work.padding != "max_length")

    def facts(self) -> dict[str, Any]:
        """How long it took in seconds, how many graphs there are, and where the model had to be parted."""
        from torch._dynamo.utils import counters

        return {
            "seconds": self.seconds,
            "graphs": counters["stats"]["unique_graphs"],
            "breaks": sorted({reason.strip().splitlines()[0] for reason in counters["graph_break"]}),
        }

    def start(self, _: CallbackArgs) -> None:
        """Called before something is compiled."""
        self._began = time.perf_counter()
        self._phases.interrupt("other")

    def end(self, _: CallbackArgs) -> None:
        """Called after it."""
        self.seconds += time.perf_counter() - self._began
        self._phases.go_on()


@contextmanager
def compiling(conditions: Conditions, phases: Phases) -> Iterator[Compilation | None]:
    """While this is open, networks may be compiled and run; None if the conditions ask for none.

    Code that is generated goes to a new folder, removed at the end: no run finds another one's.

    Raises:
        LaunchError: what generated code needs is missing.
    """
    if not conditions.compile:
        yield None
        return
    check_compilers(conditions.device)
    import torch._dynamo.config
    import torch._inductor.config
    from torch._dynamo.callback import callback_handler
    from torch._dynamo.utils import counters

    # What this process, or the one it was forked from, compiled before is neither used nor counted.
    torch.compiler.reset()
    counters.clear()
    compilation = Compilation(conditions, phases)
    with (
        TemporaryDirectory(prefix="trainbed-compile-") as folder,
        torch._dynamo.config.patch(
            recompile_limit=SHAPES,
            fail_on_recompile_limit_hit=True,
            # Uncut, whatever parts the gradients are sent in: those decide nothing about the last bits.
            optimize_ddp=False,
        ),
        # In this process, on its cores: it is compiled where and as it is trained.
        torch._inductor.config.patch(fallback_random=True, compile_threads=1),
    ):
        before = {name: os.environ.pop(name, None) for name in CACHES}
        os.environ |= {name: str(Path(folder, name.lower())) for name in CACHES}
        callback_handler.register_start_callback(compilation.start)
        callback_handler.register_end_callback(compilation.end)
        try:
            yield compilation
        finally:
            callback_handler.remove_start_callback(compilation.start)
            callback_handler.remove_end_callback(compilation.end)
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def begin_pass(compile: str | bool) -> None:
    """Before a forward pass: with CUDA graphs, what the last one returned may be overwritten from now on."""
    if compile == "reduce-overhead":
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


def check_compilers(device: str) -> None:
    """Check that this machine can compile generated code.

    Raises:
        LaunchError: it lacks a compiler, or Python's headers; or its GPU is too old.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    missing = []
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        missing.append("a C++ compiler (g++)")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("Python's headers (python3-dev)")
    if missing:
        raise LaunchError(
            f"compile needs {' and '.join(missing)} where ranks run, and {os.uname().nodename} has none; set "
            "environment_compiler: true in the inventory and run make provision, or leave compile out."
        )
    if device == "cuda" and (found := torch.cuda.get_device_capability()) < TRITON_NEEDS:
        raise LaunchError(
            f"compile needs a GPU of compute capability {TRITON_NEEDS[0]}.{TRITON_NEEDS[1]} or more, and "
            f"that of {os.uname().nodename} has {found[0]}.{found[1]}; leave compile out."
        )
