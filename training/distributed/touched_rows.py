"""Which rows of its tables a model touches in a step, on any rank: only those have gradients.

Each rank marks the rows that it looks up in its forward passes. When the last of them is over, the marks of
all ranks are put together while the backward pass goes on, so that every rank knows the same rows by the time
their gradients are ready.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LARGEST_SHARE: Final = 0.5  # of a table's rows; if more are touched in a step, the whole table is sent


def lookup_tables(model: torch.nn.Module) -> dict[torch.nn.Parameter, list[torch.nn.Embedding]]:
    """The tables of `model` in which rows are looked up and nothing else, each with the modules that do it.

    A table that another module has as its weights, too, such as a decoder's last layer, is not among them:
    that module touches every row. Nor is one of a subclass with a `forward` of its own, which may look up
    other rows than it is given.
    """
    users: dict[torch.nn.Parameter, list[torch.nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(parameter, []).append(module)
    tables: dict[torch.nn.Parameter, list[torch.nn.Embedding]] = {}
    for parameter, modules in users.items():
        lookups = [each for each in modules if isinstance(each, torch.nn.Embedding) and _is_plain(each)]
        if parameter.requires_grad and len(lookups) == len(modules):
            tables[parameter] = lookups
    return tables


def _is_plain(module: torch.nn.Embedding) -> bool:
    return type(module).forward is torch.nn.Embedding.forward and not module.sparse


class TouchedRows:
    """The rows touched since the last exchange of gradients, by table; the same on all ranks.

    All tables' rows are numbered one after another. How many were touched has to be known on the host. On a
    GPU it gets there beside the backward pass, in a stream of its own: only the forward pass is waited for.
    """

    def __init__(self, replica: DistributedDataParallel) -> None:
        """Watch the lookups of what `replica` trains; it has at least one table."""
        self._tables: dict[torch.Tensor, tuple[int, int]] = {}  # a table's number, and its first row's
        count = 0
        tables = lookup_tables(replica.module)
        for table, modules in tables.items():
            self._tables[table] = len(self._tables), count
            for module in modules:
                module.register_forward_hook(_Marking(self, count), with_kwargs=True)
            count += len(table)
        device = next(iter(tables)).device
        self._marks = torch.zeros(count, dtype=torch.uint8, device=device)  # this rank's
        self._pending: tuple[torch.Tensor, Any] | None = None  # all ranks' marks, on their way
        self._all: torch.Tensor | None = None  # all ranks' marks
        self._aside = _Aside(device) if device.type == "cuda" else None
        self._unchecked: set[torch.Tensor] = set(tables)
        replica.register_forward_hook(self._send)

    def mark(self, rows: torch.Tensor) -> None:
        """Mark rows by their numbers, int64 of any shape."""
        self._marks.index_fill_(0, rows.flatten(), 1)

    def of(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor | None:
        """Rows of a table that some rank touched, int64; None if it is no table, or most of it was touched.

        Raises:
            RuntimeError: this rank's `gradient` of the table has other rows, too.
        """
        if parameter not in self._tables:
            return None
        table, first = self._tables[parameter]
        marks = self._marks_of_all()[first : first + len(parameter)]
        if self._aside is None:
            touched = marks.nonzero().flatten()
        else:
            touched = marks.nonzero_static(size=self._aside.counts()[table]).flatten()
        if parameter in self._unchecked:
            self._unchecked.remove(parameter)
            _check_nothing_else(gradient, touched)
        return touched if len(touched) <= LARGEST_SHARE * len(parameter) else None

    def forget(self) -> None:
        """Begin anew: the gradients have been exchanged."""
        self._marks.zero_()
        self._pending = self._all = None

    def _send(self, replica: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        """After each forward pass: put all ranks' marks together, if gradients will be exchanged."""
        if torch.is_grad_enabled() and replica.require_backward_grad_sync:
            if self._pending:  # of a forward pass without a backward pass
                self._pending[1].wait()
            marks = self._marks.clone()
            work = dist.all_reduce(marks, dist.ReduceOp.MAX, async_op=True)
            self._pending = marks, work
            if self._aside is not None:
                self._aside.count(marks, work, [len(table) for table in self._tables])

    def _marks_of_all(self) -> torch.Tensor:
        if self._all is None:
            assert self._pending is not None, "gradients are exchanged without a forward pass of the replica"
            self._all, work = self._pending
            work.wait()
        return self._all


class _Aside:
    """Has a GPU count, beside its other work, the marks of each table, and brings the counts to the host."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._counts: torch.Tensor | None = None

    def count(self, marks: torch.Tensor, work: Any, rows: list[int]) -> None:
        """Begin to count `marks`, once `work` has put them together, for tables of so many rows."""
        if self._counts is None:
            self._counts = torch.empty(len(rows), dtype=torch.int64, pin_memory=True)
        with torch.cuda.stream(self._stream):
            work.wait()
            sums = [each.sum(dtype=torch.int64) for each in torch.split(marks, rows)]
            self._counts.copy_(torch.stack(sums), non_blocking=True)
            self._there.record()
        marks.record_stream(self._stream)

    def counts(self) -> list[int]:
        """The counts; waits for them, and for nothing else."""
        assert self._counts is not None, "nothing was counted"
        self._there.synchronize()
        return self._counts.tolist()


class _Marking:
    """Called after each lookup of one module: marks the rows, if there will be gradients."""

    def __init__(self, rows: TouchedRows, first: int) -> None:
        self._rows, self._first = rows, first

    def __call__(self, _module: Any, inputs: tuple[Any, ...], named: dict[str, Any], _output: Any) -> None:
        if torch.is_grad_enabled():
            ids: torch.Tensor = inputs[0] if inputs else named["input"]
            self._rows.mark(ids.long() + self._first)


def _check_nothing_else(gradient: torch.Tensor, touched: torch.Tensor) -> None:
    rest = gradient.index_fill(0, touched, 0.0).any(dim=1).nonzero().flatten()
    if len(rest):
        raise RuntimeError(
            f"The model uses a table of {len(gradient)} rows not only through nn.Embedding: {len(rest)} rows "
            f"that no rank looked up have gradients, such as row {int(rest[0])}; use gradient_sync: dense."
        )
