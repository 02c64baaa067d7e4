"""How to reach the master, as written by the role."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


class SettingsError(Exception):
    """The settings or a password can't be read; the message is one sentence."""


@dataclass(frozen=True)
class Settings:
    """client.json or admin.json, which the role writes."""

    master: str  # its address, with scheme and port
    certificate: Path | None  # what its certificate is checked against; None = no TLS
    user: str
    password_file: Path
    patience_s: float  # for a master that does not answer
    queue_limit_s: float  # for slots

    @property
    def password(self) -> str:
        """The user's password.

        Raises:
            SettingsError: its file can't be read.
        """
        try:
            return self.password_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise SettingsError(
                f"The password of {self.user} in {self.password_file} can't be read ({error.strerror}): run "
                "this as the user that owns the file; `make provision` writes it."
            ) from error


def read_settings(path: Path) -> Settings:
    """The settings in `path`.

    Raises:
        SettingsError: they can't be read.
    """
    try:
        content = json.loads(path.read_bytes())
        return Settings(
            master=content["master"],
            certificate=Path(content["certificate"]) if content["certificate"] else None,
            user=content["user"],
            password_file=Path(content["password_file"]),
            patience_s=float(content["patience_s"]),
            queue_limit_s=float(content["queue_limit_s"]),
        )
    except OSError as error:
        raise SettingsError(
            f"{path} can't be read ({error.strerror}): `make provision` writes it."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is damaged ({error}): `make provision` rewrites it.") from error
