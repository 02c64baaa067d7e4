"""A GPU while it trains: utilisation, memory, temperature, clock, power and throttling (NVML)."""

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

# Why a clock is lower than it could be, by NVML's bits (nvml.h, nvmlClocksEventReasons). An idle GPU, or one
# whose clocks somebody set, does not count as throttled.
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
    """One sample of a GPU; None for what it does not report."""

    time: float  # unix, s
    utilisation_percent: float | None  # of NVML's last sample period, with a kernel running
    memory_mb: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None
    power_w: float | None
    throttled: tuple[str, ...]


class Device(Protocol):
    """A GPU that can be sampled."""

    def facts(self) -> dict[str, Any]:
        """Its name, UUID and driver."""

    def sample(self) -> Sample:
        """Take one sample."""

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; None if the GPU does not count them."""


class NvmlDevice:
    """A GPU, through NVML."""

    def __init__(self, uuid: str) -> None:
        """Find the GPU.

        Args:
            uuid: the driver's name for it, "GPU-...".

        Raises:
            pynvml.NVMLError: the driver does not answer, or there is no such GPU.
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
        """Take one sample; None for what this GPU does not report."""
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
    """Samples a GPU once a second, in a thread beside the training, until it is stopped."""

    def __init__(self, device: Device, out: Path, rank: int) -> None:
        """Start sampling.

        Args:
            device: this rank's.
            out: folder that `gpu-<rank>.jsonl` is written to, a line for each sample.
            rank: this rank's number.
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
        """Stop sampling, and summarise the samples."""
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
        except Exception as error:  # training continues; the record says what is missing and why
            self._trouble = (
                f"Sampling ended after {len(self._samples)} samples: {type(error).__name__}: {error}"
            )


def summarise(samples: Sequence[Sample], energy_j: float | None) -> dict[str, Any]:
    """A summary of the samples.

    `energy_j` is the GPU's own count or, without one, mean power times the time between the first and the
    last sample; `energy_by` says which.
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
    """Start sampling a rank's device; None on a CPU, or what is wrong if the driver does not answer."""
    if device.type != "cuda":
        return None
    known = torch.cuda.get_device_properties(device)
    uuid = f"GPU-{known.uuid}"
    try:
        return Sampler(NvmlDevice(uuid), out, rank)
    except Exception as error:  # pynvml may be missing, too; training continues, and the record says so
        return {"uuid": uuid, "name": known.name, "trouble": f"Not sampled: {type(error).__name__}: {error}"}


def stop_sampling(sampling: Sampler | dict[str, Any] | None) -> dict[str, Any] | None:
    """Stop what `start_sampling` returned; the GPU's part of the record."""
    return sampling.stop() if isinstance(sampling, Sampler) else sampling
