"""YAML files in which a stack's role describes itself, each with a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from experiments.util.errors import UserError
from training.spec import explain

Model = TypeVar("Model", bound=BaseModel)


def read_role_file(path: Path, model: type[Model]) -> Model | None:
    """The content of the file at `path`; None if there is no such file.

    Raises:
        UserError: it can't be read, is not YAML, or does not match the model.
    """
    try:
        return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from error
