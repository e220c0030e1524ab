"""What a CPU does quickly is read from what Linux says of it."""

import pathlib

import pytest
import torch

from minerva_acme.acceleration import cpu


def describe(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """Gives `/proc/cpuinfo` other contents, or none as on other systems."""

    def read_text(path: pathlib.Path, encoding: str) -> str:
        assert str(path) == "/proc/cpuinfo"
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(cpu.pathlib.Path, "read_text", read_text)


@pytest.mark.parametrize(("vendor", "slow"), [("AuthenticAMD", True), ("GenuineIntel", False), (None, False)])
def test_mkl_is_slow_on_other_makers_cpus(
    vendor: str | None, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, None if vendor is None else f"processor : 0\nvendor_id : {vendor}\n")
    monkeypatch.setattr(cpu.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert cpu.mkl_is_slow.__wrapped__() is slow
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert cpu.mkl_is_slow.__wrapped__() is False


@pytest.mark.parametrize(
    ("line", "has"),
    [("flags : fpu avx2 avx512f avx512bw", True), ("flags : fpu avx avx2 fma", False), (None, False)],
)
def test_avx512_is_found_among_the_flags(
    line: str | None, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, None if line is None else f"processor : 0\n{line}\n")
    assert cpu.has_avx512.__wrapped__() is has


@pytest.mark.parametrize(
    ("line", "multiplies"),
    [
        ("flags : fpu avx2 avx512f avx512_bf16", True),  # Zen 4, Cooper Lake
        ("flags : fpu avx2 avx512f amx_bf16 amx_tile", True),  # Sapphire Rapids
        ("Features : fp asimd bf16", True),  # Neoverse V1
        ("flags : fpu avx avx2 fma", False),  # Zen 3
        ("model name : a bf16less CPU", False),
        (None, False),
    ],
)
def test_bfloat16_is_multiplied_where_there_are_instructions(
    line: str | None, multiplies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, None if line is None else f"processor : 0\n{line}\n")
    assert cpu.multiplies_bfloat16.__wrapped__() is multiplies
