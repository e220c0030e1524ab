"""Properties of this CPU that decide which way is fast.

They depend on the kind of CPU and never on a timing, so that the same seed always gives the same numbers.
"""

import functools
import pathlib
import platform

import torch


@functools.cache
def mkl_is_slow() -> bool:
    """Returns whether torch multiplies float32 matrices with MKL on an x86 CPU that is not Intel's.

    MKL keeps its best kernels for Intel's CPUs. Detected only on Linux; False elsewhere.
    """
    has_mkl: bool = torch.backends.mkl.is_available()
    return has_mkl and platform.machine() == "x86_64" and "GenuineIntel" not in _info() and bool(_info())


@functools.cache
def has_avx512() -> bool:
    """Returns whether the CPU has AVX-512, which MKL uses only on Intel's. False where it is not Linux."""
    return "avx512f" in _info().split()


@functools.cache
def multiplies_bfloat16() -> bool:
    """Returns whether the CPU has bfloat16 product instructions: AVX512_BF16 or AMX on x86, BF16 on arm64.

    Without them torch emulates such products, on a Zen 3 eight times slower than float32 products. Detected
    only on Linux; False elsewhere.
    """
    flags = set(_info().split())
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def _info() -> str:
    try:
        return pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
