"""A description of the machine, for measurements."""

import datetime
import os
import pathlib
import platform
import subprocess
from typing import Any


def describe() -> dict[str, Any]:
    """Returns the CPU, its cores and load, relevant versions, the date and the commit."""
    import numpy as np
    import torch

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
    }


def _cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str | None:
    folder = pathlib.Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None
