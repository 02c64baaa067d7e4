"""A GPU while it trains: use, memory, temperature, clock, power, and whether it slowed itself down (NVML)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import torch

SAMPLE_EVERY: Final = 1.0  # s

# Why a clock is lower than it could be, by NVML's bits (nvml.h, nvmlClocksEventReasons). That the GPU has
# nothing to do, or that somebody set its clocks, is no throttling.
REASONS: Final = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One look at a GPU. None where it does not tell."""

    time: float  # unix, s
    utilisation_percent: float | None  # of the last moment in which a kernel ran, as NVML has it
    memory_mb: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    power_w: float | None
    throttled: tuple[str, ...]


class Device(Protocol):
    """A GPU that can be looked at."""

    def facts(self) -> dict[str, Any]:
        """Its name, UUID and driver."""

    def sample(self) -> Sample:
        """One look."""

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; None where it does not count."""


class NvmlDevice:
    """A GPU, by way of NVML."""

    def __init__(self, uuid: str) -> None:
        """Find it.

        Args:
            uuid: as the driver names it, "GPU-...".

        Raises:
            pynvml.NVMLError: there is no driver that answers, or no such GPU.
        """
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._uuid = uuid
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def facts(self) -> dict[str, Any]:
        """Its name, UUID and driver."""
        return {
            "uuid": self._uuid,
            "name": self._nvml.nvmlDeviceGetName(self._handle),
            "driver": self._nvml.nvmlSystemGetDriverVersion(),
        }

    def sample(self) -> Sample:
        """One look; what this GPU does not tell is None."""
        nvml, handle = self._nvml, self._handle
        reasons = self._if_supported(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
        return Sample(
            time=time.time(),
            utilisation_percent=self._if_supported(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            memory_mb=self._if_supported(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20),
            temperature_c=self._if_supported(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            sm_clock_mhz=self._if_supported(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_w=self._if_supported(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            throttled=tuple(name for bit, name in REASONS.items() if reasons & bit),
        )

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; None before Volta."""
        return self._if_supported(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000)

    def _if_supported(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except self._nvml.NVMLError_NotSupported:
            return None


class Sampler:
    """Looks at a GPU once a second, beside the training, until it is stopped."""

    def __init__(self, device: Device, out: Path, rank: int) -> None:
        """Begin.

        Args:
            device: this rank's.
            out: folder that `gpu-<rank>.jsonl` is written to, a line for each look.
            rank: this one.
        """
        self._device = device
        self._samples: list[Sample] = []
        self._file = out / f"gpu-{rank}.jsonl"
        self._before = device.energy_j()
        self._ended = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._watch, name="gpu", daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """End, and sum up what was seen."""
        self._ended.set()
        self._thread.join()
        after = self._device.energy_j()
        energy = after - self._before if after is not None and self._before is not None else None
        return self._device.facts() | summarise(self._samples, energy) | {"trouble": self._trouble}

    def _watch(self) -> None:
        try:
            with self._file.open("w", encoding="utf-8", buffering=1) as file:
                while True:
                    sample = self._device.sample()
                    self._samples.append(sample)
                    file.write(json.dumps(asdict(sample)) + "\n")
                    if self._ended.wait(SAMPLE_EVERY):
                        return
        except Exception as error:  # the training goes on; the record says what is missing and why
            self._trouble = (
                f"Sampling ended after {len(self._samples)} looks: {type(error).__name__}: {error}"
            )


def summarise(samples: Sequence[Sample], energy_j: float | None) -> dict[str, Any]:
    """What samples come to.

    `energy_j` is the GPU's own count. Where it has none, mean power times the time between the first and the
    last look is given instead; `energy_by` says which.
    """

    def values(name: str) -> list[float]:
        return [value for each in samples if (value := getattr(each, name)) is not None]

    def of(name: str, pick: Callable[[list[float]], float]) -> float | None:
        return pick(values(name)) if values(name) else None

    def mean(numbers: list[float]) -> float:
        return sum(numbers) / len(numbers)

    power = of("power_w", mean)
    counted = energy_j is not None
    if not counted and power is not None:
        energy_j = power * (samples[-1].time - samples[0].time)
    reasons = sorted({reason for each in samples for reason in each.throttled})
    return {
        "samples": len(samples),
        "utilisation_percent_mean": of("utilisation_percent", mean),
        "memory_mb_max": of("memory_mb", max),
        "temperature_c_max": of("temperature_c", max),
        "sm_clock_mhz_min": of("sm_clock_mhz", min),
        "sm_clock_mhz_mean": of("sm_clock_mhz", mean),
        "power_w_mean": power,
        "energy_j": energy_j,
        "energy_by": None if energy_j is None else "the GPU's counter" if counted else "mean power x time",
        "throttled": {
            reason: sum(reason in each.throttled for each in samples) / len(samples) for reason in reasons
        },
    }


def start_sampling(device: torch.device, out: Path, rank: int) -> Sampler | dict[str, Any] | None:
    """Begin to sample a rank's device; None on a CPU, and what is wrong where the driver does not answer."""
    if device.type != "cuda":
        return None
    known = torch.cuda.get_device_properties(device)
    uuid = f"GPU-{known.uuid}"
    try:
        return Sampler(NvmlDevice(uuid), out, rank)
    except Exception as error:  # pynvml may be missing as well; the training goes on, and the record says so
        return {"uuid": uuid, "name": known.name, "trouble": f"Not sampled: {type(error).__name__}: {error}"}


def stop_sampling(sampling: Sampler | dict[str, Any] | None) -> dict[str, Any] | None:
    """What came of `start_sampling`."""
    return sampling.stop() if isinstance(sampling, Sampler) else sampling
