"""Samples of a stand-in for a GPU: their summary, and that training continues when sampling fails."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from training.metrics import gpu


class GpuStandIn:
    """A GPU that gives prepared answers, one after the other, and is lost when they run out."""

    def __init__(self, samples: list[gpu.Sample], energy: list[float | None]) -> None:
        self.samples, self.energy = samples, energy

    def facts(self) -> dict[str, Any]:
        return {"uuid": "GPU-1", "name": "stand-in", "driver": "580.95.05"}

    def sample(self) -> gpu.Sample:
        if not self.samples:
            raise RuntimeError("GPU is lost")
        return self.samples.pop(0)

    def energy_j(self) -> float | None:
        return self.energy.pop(0)


def sample(at: float, power: float | None = 100.0, *throttled: str) -> gpu.Sample:
    return gpu.Sample(at, 50.0, 900.0, 60.0 + at, 1500.0 - at, power, throttled)


def test_samples_are_summed_up() -> None:
    seen = [sample(0, 90.0), sample(1, 110.0, "power cap"), sample(2, 100.0), sample(3, 100.0)]
    told = gpu.summarise(seen, 310.0)
    assert told["samples"] == 4
    assert (told["utilisation_percent_mean"], told["memory_mb_max"]) == (50.0, 900.0)
    assert (told["temperature_c_max"], told["sm_clock_mhz_min"]) == (63.0, 1497.0)
    assert (told["power_w_mean"], told["energy_j"], told["energy_by"]) == (100.0, 310.0, "the GPU's counter")
    assert told["throttled"] == {"power cap": 0.25}


def test_energy_is_worked_out_where_it_is_not_counted_and_none_is_made_up() -> None:
    told = gpu.summarise([sample(0), sample(3)], None)
    assert (told["energy_j"], told["energy_by"]) == (300.0, "mean power x time")
    silent = gpu.summarise([sample(0, None)], None)
    assert (silent["power_w_mean"], silent["energy_j"], silent["energy_by"]) == (None, None, None)
    assert gpu.summarise([], None)["utilisation_percent_mean"] is None


def test_a_sampler_keeps_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SAMPLE_EVERY", 0.01)
    device = GpuStandIn([sample(0), sample(1), sample(2)], [1000.0, 1250.0])
    sampler = gpu.Sampler(device, tmp_path, 1)
    while device.samples:
        time.sleep(0.01)
    time.sleep(0.1)  # then the GPU is lost
    told = gpu.stop_sampling(sampler)
    assert told is not None
    assert (told["name"], told["samples"], told["energy_j"]) == ("stand-in", 3, 250.0)
    assert told["trouble"] == "Sampling ended after 3 samples: RuntimeError: GPU is lost"
    lines = (tmp_path / "gpu-1.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["time"] for line in lines] == [0, 1, 2]


def test_a_cpu_is_not_sampled(tmp_path: Path) -> None:
    assert gpu.stop_sampling(gpu.start_sampling(torch.device("cpu"), tmp_path, 0)) is None


def test_a_machine_without_a_driver_says_so() -> None:
    import pynvml

    with pytest.raises(pynvml.NVMLError):
        gpu.NvmlDevice("GPU-none")


class NvmlStandIn:
    """NVML's answers for a GPU before Volta: energy is not counted."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    class NVMLError_NotSupported(Exception):  # NVML's name
        pass

    def __getattr__(self, name: str) -> Any:
        memory, rates = type("Memory", (), {"used": 3 << 20}), type("Rates", (), {"gpu": 97})
        answers: dict[str, Any] = {
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x40,
            "nvmlDeviceGetUtilizationRates": rates,
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetTemperature": 83,
            "nvmlDeviceGetClockInfo": 1708,
            "nvmlDeviceGetPowerUsage": 119_500,
        }

        def answer(*_: Any) -> Any:
            if name not in answers:
                raise self.NVMLError_NotSupported
            return answers[name]

        return answer


def test_nvmls_units_and_reasons_are_read_rightly() -> None:
    device = object.__new__(gpu.NvmlDevice)
    device._nvml, device._handle, device._uuid = NvmlStandIn(), None, "GPU-1"
    seen = device.sample()
    assert (seen.utilisation_percent, seen.memory_mb, seen.temperature_c) == (97, 3.0, 83)
    assert (seen.sm_clock_mhz, seen.power_w) == (1708, 119.5)
    assert seen.throttled == ("power cap", "hardware thermal slowdown")  # idle does not count
    assert device.energy_j() is None
