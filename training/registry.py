"""Which workloads there are: those of this package, and those of the user, which lie elsewhere.

A workload is a package with three modules: `settings`, with the classes `Data` and `Model`, which needs only
pydantic; `prepare`, with the function `prepare`, which needs no torch; and `workload`, with one subclass of
`training.workload.Workload`. In a run's code archive a user's workload lies among `training.workloads`; on
the controller, `register` puts it there.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib import resources
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import ConfigDict

from training.errors import WorkloadError, first_line
from training.settings import DataSettings, ModelSettings
from training.util.digest import folder_digest

PACKAGE: Final = "training.workloads"
DEFAULT: Final = "text-classification"
NAME: Final = r"[a-z][a-z0-9]*([_-][a-z0-9]+)*"
PARTS: Final = ("settings", "prepare", "workload")


@dataclass(frozen=True)
class Outside:
    """A user's workload, in a folder of its own."""

    name: str  # the folder's
    folder: Path
    digest: str  # of its content

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is unpickled, it is made known: what is of its classes can be unpickled after it."""
        return register, (self.folder,)


_REGISTERED: dict[str, Outside] = {}


class UnknownData(DataSettings):
    """Data of a workload that is not at hand, for instance in the record of a run: kept as they are."""

    model_config = ConfigDict(extra="allow")

    @property
    def tokenizes_later(self) -> bool:
        """Nothing is known against it."""
        return True

    @property
    def has_classes(self) -> bool:
        """Nor against this."""
        return True

    @property
    def has_lengths(self) -> bool:
        """Nor against this."""
        return True

    @property
    def further_metrics(self) -> None:
        """Nothing is known against any."""


class UnknownModel(ModelSettings):
    """A model of a workload that is not at hand: kept as it is."""

    model_config = ConfigDict(extra="allow")

    def text(self, data: DataSettings) -> str:  # noqa: ARG002  # as its base class
        """Its settings."""
        return ", ".join(f"{name} {value}" for name, value in (self.model_extra or {}).items()) or "a model"

    def paddings(self, data: DataSettings) -> tuple[str, ...]:  # noqa: ARG002  # as its base class
        """All: nothing is known against any."""
        return "max_length", "longest", "none"


def register(folder: Path) -> Outside:
    """Make a user's workload known in this process, in place of another of the same name.

    Raises:
        WorkloadError: the folder is no workload, or its name can't be used.
    """
    name = folder.resolve().name
    if not re.fullmatch(NAME, name):
        raise WorkloadError(
            f"The workload {folder} can't be named {name!r}: use lower-case letters, digits and underscores."
        )
    if folder_name(name) in map(folder_name, built_in()):
        raise WorkloadError(f"The workload {folder} has the name of a built-in one: give its folder another.")
    missing = [f"{part}.py" for part in PARTS if not (folder / f"{part}.py").is_file()]
    if missing:
        raise WorkloadError(
            f"The folder {folder} is no workload: it has no {' and no '.join(missing)} "
            "(docs/adding-a-workload.md)."
        )
    outside = Outside(name, folder.resolve(), folder_digest(folder))
    if _REGISTERED.get(name) != outside:
        module = _module_name(name)
        for loaded in [each for each in sys.modules if each == module or each.startswith(f"{module}.")]:
            del sys.modules[loaded]
        package = ModuleSpec(module, None, is_package=True)
        package.submodule_search_locations = [str(outside.folder)]
        sys.modules[module] = importlib.util.module_from_spec(package)
        importlib.invalidate_caches()
        _REGISTERED[name] = outside
    return outside


def registered() -> tuple[Outside, ...]:
    """The users' workloads that are known in this process."""
    return tuple(_REGISTERED.values())


def built_in() -> list[str]:
    """Names of the workloads that come with this package."""
    return sorted(
        entry.name.replace("_", "-")
        for entry in resources.files(PACKAGE).iterdir()
        if (entry / "settings.py").is_file()
    )


def at_hand(name: str, digest: str) -> bool:
    """Whether a user's workload with this content can be loaded here."""
    if name in _REGISTERED:
        return _REGISTERED[name].digest == digest
    folder = resources.files(PACKAGE) / folder_name(name)
    return folder.is_dir() and folder_digest(folder) == digest


def settings_of(name: str, digest: str | None) -> tuple[type[DataSettings], type[ModelSettings]]:
    """A workload's classes of settings; those of a user's workload that is not at hand take anything.

    Args:
        name: the workload's.
        digest: of the content of a user's workload; None = it is built in.

    Raises:
        WorkloadError: there is no such workload, or its settings can't be loaded.
    """
    if digest is not None and not at_hand(name, digest):
        return UnknownData, UnknownModel
    settings = load(name, "settings")
    data, model = (getattr(settings, kind, None) for kind in ("Data", "Model"))
    for kind, found, base in (("Data", data, DataSettings), ("Model", model, ModelSettings)):
        if not (isinstance(found, type) and issubclass(found, base)):
            raise WorkloadError(
                f"The workload {name} has no class {kind} in its settings.py that is a {base.__name__}."
            )
    return data, model  # type: ignore[return-value]  # just checked


def load_for(name: str, digest: str | None, part: str) -> ModuleType:
    """A workload's module as a run asks for it (errors: `load`; or it is not here; or it has changed)."""
    if digest is not None and not at_hand(name, digest):
        here = name in _REGISTERED or (resources.files(PACKAGE) / folder_name(name)).is_dir()
        raise WorkloadError(
            f"The workload {name} in this code is not the one that the run asks for ({digest[:8]})."
            if here
            else f"The workload {name} is a user's own and not in this code: give its folder (--workload)."
        )
    return load(name, part)


def load(name: str, part: str) -> ModuleType:
    """A workload's module `part`, one of `PARTS`.

    Raises:
        WorkloadError: there is no such workload, or it can't be imported.
    """
    module = f"{_module_name(name)}.{part}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            known = ", ".join(built_in())
            raise WorkloadError(
                f"There is no workload {name}: give one of {known}, or the folder of your own (./NAME)."
            ) from error
        raise WorkloadError(_broken(name, part, error)) from error
    except Exception as error:  # whatever a user's code raises
        raise WorkloadError(_broken(name, part, error)) from error


def _broken(name: str, part: str, error: Exception) -> str:
    return f"The workload {name} can't be loaded ({part}.py: {type(error).__name__}: {first_line(error)})."


def folder_name(name: str) -> str:
    """The folder of a workload's package."""
    return name.replace("-", "_")


def _module_name(name: str) -> str:
    return f"{PACKAGE}.{folder_name(name)}"
