"""What may be a secret, masked in what others may read: variables of the environment, and sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"
Masks = Sequence[tuple[re.Pattern[str], str]]
"""Patterns of what is not shown, and what is shown in its place."""

#: Names of variables, with spaces for underscores, whose values are not shown.
VARIABLES: Final = re.compile(
    r"(?i)secret|passw|passphrase|credential|auth|cookie|private|webhook|connection ?string|api ?key"
    r"|(?<![a-z])(pass|pwd|tokens?|keys?|pat|jwt|dsn|sas|sig)(?![a-z])|sshpass"
)
#: Where a shell is and where it was: no secrets, for all their names.
FOLDERS: Final = ("PWD", "OLDPWD")


def _pairs(names: str, ends: str) -> re.Pattern[str]:
    """A name with its value, as in `name=value` and `"name": "value"`; not one that is itself a structure.

    Args:
        names: an expression for the name.
        ends: characters that end the value, besides white space and quotation marks.
    """
    structure = r"""["']|[{\[](?:["'{\[\s\]}]|$)"""
    return re.compile(rf"""(?i)({names})(["']?\s*[=:]\s*["']?)(?!{structure})[^\s"'{ends}]+""")


#: A login in an address, and a JSON web token.
CERTAIN: Final[Masks] = (
    (re.compile(r"(\w+://)[^\s/@]+@"), rf"\1{MASK}@"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), MASK),
)
IN_VALUES: Final[Masks] = (
    (
        _pairs(
            r"[\w.-]*(?:secret|passw|passphrase|credential|token|key|auth|signature)[\w.-]*"
            r"|(?<![\w.-])(?:pass|pwd|sig|pw)",
            ends=",;&",
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"(\w+://)?[^\s/:@\"']+:[^\s\"']+@"), rf"\1{MASK}@"),
    *CERTAIN,
)
#: Of words that sentences have, too, such as key and author, none counts: `KeyError: 'x'` is no secret.
IN_SENTENCES: Final[Masks] = (
    (
        _pairs(
            r"[\w.-]*(?:secret|password|passwd|credential|(?<![a-z])token(?![a-z]))[\w.-]*",
            ends=",;",
        ),
        rf"\1\2{MASK}",
    ),
    *CERTAIN,
)


def masked(name: str, value: str) -> str:
    """The value of a variable: not shown if its name says that it is a secret, else without those in it."""
    secret = name not in FOLDERS and VARIABLES.search(name.replace("_", " "))
    return MASK if secret else _without(value, IN_VALUES)


def without_secrets(sentence: str) -> str:
    """`sentence` with what looks like a password, a secret or a login in an address replaced by ***."""
    return _without(sentence, IN_SENTENCES)


def _without(text: str, masks: Masks) -> str:
    for pattern, shown in masks:
        text = pattern.sub(shown, text)
    return text
