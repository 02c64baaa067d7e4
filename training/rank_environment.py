"""Variables that a user gives the environment of every rank, such as settings of NCCL and gloo."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Printable ASCII: what a properties file, `docker run --env` and a unit take alike, without escaping.
VALUE: Final = re.compile(r"[!-\[\]-~]([ -\[\]-~]{0,998}[!-\[\]-~])?")
MOST: Final = 100  # variables
#: Launching or training sets these itself.
OWN: Final = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|TRAINBED_.*"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|RAYON)_NUM_THREADS|TOKENIZERS_PARALLELISM|CUBLAS_WORKSPACE_CONFIG"
    r"|(CUDA|NVIDIA)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE"
    r"|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR"
    r"|PATH|HOME|USER|PYTHON.*|LD_(PRELOAD|LIBRARY_PATH)|JAVA_HOME"
)


def _texts(given: Any) -> Any:
    """Whole numbers as text: YAML reads `NCCL_IB_DISABLE: 0` as a number."""
    if not isinstance(given, dict):
        return given
    return {
        name: str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in given.items()
    }


def _checked(given: dict[str, str]) -> dict[str, str]:
    if len(given) > MOST:
        raise ValueError(f"it has {len(given)} variables, and {MOST} are the most")
    for name, value in given.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no name of a variable: use letters, digits and underscores")
        if OWN.fullmatch(name):
            raise ValueError(f"{name} is set by launching or training itself: leave it out")
        if not VALUE.fullmatch(value):
            raise ValueError(
                f"the value of {name} must be text of 1 to 1,000 printable ASCII characters, with neither "
                f"backslashes nor spaces at its ends, not {value!r:.80}"
            )
    return dict(sorted(given.items()))


RankEnvironment = Annotated[dict[str, str], BeforeValidator(_texts), AfterValidator(_checked)]
"""By name: the value. Sorted, so that the order in which somebody wrote them means nothing."""
