"""Devices and tasks."""

from __future__ import annotations

import pickle

import pytest

from bo_tuner.errors import UserError
from bo_tuner.task import Task, device_named, file_key, known_devices

H200 = device_named("NVIDIA H200")


def test_every_known_device_is_found_by_name_and_by_key() -> None:
    assert len(known_devices()) >= 3
    for key, device in known_devices().items():
        assert device_named(device.name) == device_named(key) == device
        assert device.key == key == file_key(key)
        assert device.shared_per_block_bytes <= device.shared_per_sm_bytes
        assert 50 < device.ridge < 500


def test_part_of_a_device_has_a_name_that_leads_back_to_it() -> None:
    part = H200.with_sms(72)
    assert part.n_sms == 72
    assert part.peak_bf16_tflops == pytest.approx(H200.peak_bf16_tflops * 72 / 132)
    assert part.bandwidth_gb_s == H200.bandwidth_gb_s
    assert device_named(part.key) == device_named(part.name) == part
    assert H200.with_sms(132) is H200


@pytest.mark.parametrize("n_sms", [0, -3, 133])
def test_impossible_part_is_refused(n_sms: int) -> None:
    with pytest.raises(UserError, match=f"sms: {n_sms} is not between 1 and the device's 132"):
        H200.with_sms(n_sms)


@pytest.mark.parametrize("name", ["", "h200", "nvidia_h200_0_sms", "nvidia_h200_200_sms", "intel_72_sms"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^(device|sms): "):
        device_named(name)


def test_task_key_is_stable_file_safe_and_survives_a_process_boundary() -> None:
    task = Task("gemm", {"M": 1, "N": 64, "K": 32}, H200)
    assert task.key == "gemm-M1-N64-K32-bfloat16-nvidia_h200"
    copy = pickle.loads(pickle.dumps(task))
    assert copy == task
    assert hash(copy) == hash(task)
    assert copy != Task("gemm", {"M": 2, "N": 64, "K": 32}, H200)
    with pytest.raises(TypeError):
        task.shape["M"] = 3  # type: ignore[index]
