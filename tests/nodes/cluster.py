"""The cluster under test, as its inventory describes it, and questions to its nodes."""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from testinfra.host import Host

from tests.connections import Inventory
from tests.nodes.stacks import VARIABLES
from tests.stacks import port_variables

ROOT = Path(__file__).resolve().parents[2]
Answer = TypeVar("Answer")

_inventory = Inventory(ROOT, os.environ, [*port_variables(), *VARIABLES, "rank_environment"])
#: Slow questions go to all nodes at once, and to each node two at a time.
_threads: dict[str, ThreadPoolExecutor] = defaultdict(lambda: ThreadPoolExecutor(max_workers=2))


def groups() -> dict[str, dict[str, dict[str, Any]]]:
    """The inventory's variables, by group and host."""
    return _inventory.groups


def variables(name: str) -> dict[str, Any]:
    """Variables of one node."""
    return groups()["cluster"][name]


@functools.cache
def stacks() -> list[str]:
    """The installed stacks."""
    noted = json.loads(node(master()).check_output("cat /etc/trainbed/stacks.json"))
    return list(noted["stacks"])


def port(name: str, usual: int) -> int:
    """A port that the inventory may have moved from the usual one."""
    return int(variables(master()).get(name, usual))


def is_testbed() -> bool:
    """Whether the inventory is a testbed's."""
    return "testbed_name" in variables(master())


def master() -> str:
    """Name of the master."""
    return next(iter(groups()["master"]))


def node(name: str) -> Host:
    """Return testinfra's view of one node, with Ansible's connection settings."""
    return _inventory.node(name)


def connect() -> None:
    """Log in to all nodes: later logins share the connection, while two at the same time would not.

    If a login fails, so do the tests that ask that node.
    """
    with ThreadPoolExecutor() as threads:
        for name in groups()["cluster"]:
            threads.submit(node(name).run, "true")


def no_more_questions() -> None:
    """Drop questions that have not been asked yet."""
    for thread in _threads.values():
        thread.shutdown(wait=False, cancel_futures=True)


class Question(Generic[Answer]):
    """A question that is put to every node of a group once, to all at the same time."""

    def __init__(self, group: str, ask: Callable[[str], Answer]) -> None:
        """`ask` takes a node's name; what it returns, or raises, is kept as that node's answer."""
        self._group = group
        self._ask = ask
        self._answers: dict[str, Future[Answer]] = {}
        functools.update_wrapper(self, ask)

    def begin(self) -> None:
        """Ask without waiting for the answers."""
        if not self._answers:
            for name in groups()[self._group]:
                self._answers[name] = _threads[name].submit(self._ask, name)

    def __call__(self, name: str) -> Answer:
        """The answer of one node."""
        self.begin()
        return self._answers[name].result()


def question(group: str) -> Callable[[Callable[[str], Answer]], Question[Answer]]:
    """Turn a function of a node's name into a question to all nodes of a group."""
    return functools.partial(Question, group)


def asks(*questions: Question[Any]) -> pytest.MarkDecorator:
    """Mark a test with the questions that it needs: they are asked before the first test runs."""
    return pytest.mark.asks.with_args(*questions)
