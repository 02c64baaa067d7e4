"""The model hub: reached within seconds, or said so."""

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
    """See whether the hub answers; where it does not, its libraries are told to look in their cache only.

    Left to themselves they try again and again for minutes. Call it before they are imported: they read
    these settings then.
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
        sys.stderr.write(f"The hub {endpoint} can't be reached ({reason}): looking in its cache here.\n")
    os.environ |= dict.fromkeys(OFFLINE, "1")


def hub_error(name: str, error: Exception, otherwise: str) -> str:
    """One sentence on something that could not be had from the hub, with what would work."""
    reason = first_line(error).rstrip(".")
    return (
        f"{name} can't be had from the hub, nor from its cache here ({type(error).__name__}: {reason:.200}): "
        f"see to the network (HF_ENDPOINT names another hub), or {otherwise}."
    )
