"""The model hub: reached within seconds, or reported as unreachable."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from typing import Final

from training.errors import first_line

ANSWER_WITHIN: Final = 5.0  # s
OFFLINE: Final = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


def reach_hub() -> None:
    """Check whether the hub answers; if it does not, tell its libraries to use only their cache.

    By default they would keep retrying for minutes. Call this before they are imported, which is when they
    read these settings.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if any(os.environ.get(name, "") in ("1", "true", "True", "ON") for name in OFFLINE):
        return
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=ANSWER_WITHIN):
            return
    except urllib.error.HTTPError:  # it answered
        return
    except OSError as error:
        reason = getattr(error, "reason", error)
        sys.stderr.write(f"The hub {endpoint} can't be reached ({reason}): using its local cache.\n")
    os.environ |= dict.fromkeys(OFFLINE, "1")


def hub_error(name: str, error: Exception, otherwise: str) -> str:
    """One sentence about something that the hub could not provide, with what would work."""
    reason = first_line(error).rstrip(".")
    return (
        f"{name} can't be loaded from the hub or its local cache ({type(error).__name__}: {reason:.200}): "
        f"check the network (HF_ENDPOINT names another hub), or {otherwise}."
    )
