"""`minerva doctor`: checks this machine and suggests a command to fix each problem."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from minerva_acme.acceleration import cpu, kernels
from minerva_acme.cli import commands, output
from minerva_acme.cli.output import Check, Console
from minerva_acme.machine import threads

_PROBE_SECONDS = 120.0
_MIN_DISK_GB, _LITTLE_DISK_GB = 0.1, 2.0
_LITTLE_SHM_MB = 64.0

# Renders a frame, because without a display GLFW makes a context that cannot draw.
_DRAW = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
_BACKENDS = ("egl", "osmesa", "glfw")
# Code that must work for training, and the command that installs the package.
_PACKAGES = {
    "dm_control": (
        "from minerva_acme import environments; environments.make('dm_control/cartpole/swingup').reset()",
        "pip install 'dm_control>=1.0.20' 'mujoco>=3.3,<5'",
    ),
    "gymnasium": ("import gymnasium; gymnasium.make('CartPole-v1').reset()", "pip install 'gymnasium>=1.0'"),
    # TensorBoard 2.15 imports pkg_resources, which newer setuptools lack.
    "tensorboard": (
        "from tensorboard.compat.proto import event_pb2",
        "pip install tensorboard 'setuptools<81'",
    ),
}

# A module that each extra installs. Those that Reverb's TensorFlow rules out need a newer Python.
EXTRAS = {
    "plot": "matplotlib",
    "video": "imageio_ffmpeg",
    "gymnasium-mujoco": "imageio",
    "datasets": "h5py",
    "ray": "ray",
    "wandb": "wandb",
    "optuna": "optuna",
    "hub": "huggingface_hub",
    "bench": "stable_baselines3",
    "onnx": "onnxruntime",
    "playground": "mujoco_playground",
}
_NOT_BESIDE_REVERB = ("onnx", "playground")

# For dm_control's dependency labmaze, which can only be built with Bazel.
_FIRST_WITHOUT_WHEELS = (3, 13)
DM_CONTROL_WITHOUT_LABMAZE = (
    "pip install lxml pyparsing requests scipy tqdm && pip install --no-deps dm_control==1.0.50"
)
"""Installs dm_control and its dependencies other than labmaze, which only arenas of its locomotion need."""

_NAME_WIDTH = 20  # the length of OPENBLAS_NUM_THREADS


class Probe(NamedTuple):
    """The result of running code in a separate Python process."""

    error: str  # the last line of its standard error, or "" if it succeeded
    seconds: float


Prober = Callable[..., Probe]


def run(command: commands.Doctor) -> int:
    """Shows each check as soon as it is made; returns 0 if training works, else 1."""
    if command.json:
        with output.json_alone():
            checks = list(examine(command.directory))
        is_fine = all(check.status != "wrong" for check in checks)
        output.show_json({"works": is_fine, "checks": [check._asdict() for check in checks]})
        return int(not is_fine)
    console = Console()
    counts = output.show_checks(examine(command.directory), console, name_width=_NAME_WIDTH)
    works = "Training does not work here yet." if counts["wrong"] else "Training works here."
    console.print(f"{works} {output.sum_up(counts)}")
    return int(counts["wrong"] > 0)


def examine(directory: pathlib.Path) -> Iterator[Check]:
    """Yields the result of each check."""
    yield check_python(sys.version_info[:3])
    yield Check("platform", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield check_torch(torch.__version__, importlib.metadata.requires("minerva-acme") or [])
    yield from check_threads(os.environ, threads.num_cores())
    yield check_float32()
    yield check_bfloat16()
    yield check_cuda()
    yield check_reverb(probe)
    yield from (check_package(name, *needs, probe, sys.version_info) for name, needs in _PACKAGES.items())
    yield check_rendering(probe)
    yield check_extras()
    yield check_disk(directory)
    yield check_shared_memory(pathlib.Path("/dev/shm"))
    yield check_port()


def probe(code: str, **environment: str) -> Probe:
    """Runs code in a separate Python process, so that a crash or a hang affects nothing else."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Probe(f"no answer within {_PROBE_SECONDS:.0f} s", _PROBE_SECONDS)
    lines = [f"exit status {done.returncode}", *filter(None, map(str.strip, done.stderr.splitlines()))]
    return Probe(lines[-1] if done.returncode else "", time.monotonic() - start)


def check_python(version: tuple[int, ...]) -> Check:
    """Checks the version of Python."""
    words = ".".join(map(str, version))
    if version >= (3, 11):
        return Check("python", "ok", words)
    fix = "python3.11 -m venv .venv, and install there"
    return Check("python", "wrong", f"{words}, but 3.11 or newer is needed", fix)


def check_torch(version: str, requirements: Sequence[str]) -> Check:
    """Checks that torch is not newer than the version that was tested.

    Args:
        version: Torch's version.
        requirements: This package's requirements. The extra `tested` pins the tested version.
    """
    pins = [re.match(r"torch==([\d.]+)", line) for line in requirements]
    tested = next((pin[1] for pin in pins if pin), version)
    if _numbers(version) <= _numbers(tested):
        return Check("torch", "ok", version)
    words = f"{version} is newer than {tested}, the newest version that was tested"
    return Check("torch", "warning", words, f"pip install torch=={tested}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def check_threads(environment: Mapping[str, str], num_cores: int) -> Iterator[Check]:
    """Checks how many threads compute, and how they wait."""
    given = environment.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > num_cores:
        words = f"OMP_NUM_THREADS is {given}, but {num_cores} cores are available: threads will compete"
        fix = f"export OMP_NUM_THREADS={threads.recommended(num_cores)}"
        yield Check("threads", "warning", words, fix)
    else:
        yield Check("threads", "ok", f"{num_cores} cores available")
    for setting in threads.describe():
        words = f"{setting.value}, set {'by default' if setting.is_default else 'by you'}"
        if setting.is_late:
            words += ", but only after the library that reads it was loaded"
            yield Check(setting.name, "warning", words, f"export {setting.name}={setting.value}")
        else:
            yield Check(setting.name, "ok", words)


def check_float32() -> Check:
    """Reports how float32 matrices are multiplied."""
    by = "oneDNN, because MKL is slow on this CPU" if kernels.uses_onednn() else "torch's default library"
    return Check("float32", "ok", f"matrix products by {by}")


def check_bfloat16() -> Check:
    """Reports whether `target_precision` bfloat16 is supported."""
    if cpu.multiplies_bfloat16():
        words = "supported by this CPU"
    else:
        words = "not supported by this CPU: --target-precision bfloat16 uses float32"
    return Check("bfloat16", "ok", words)


def check_cuda() -> Check:
    """Checks that torch finds the GPU, if there is one."""
    if torch.cuda.is_available():
        return Check("cuda", "ok", f"{torch.cuda.get_device_name()}; to use the CPU instead: --device cpu")
    if not shutil.which("nvidia-smi"):
        return Check("cuda", "ok", "no GPU: training uses the CPU, which is enough for these small networks")
    words = f"there is an NVIDIA driver, but torch {torch.__version__} finds no GPU: training uses the CPU"
    fix = "install a build of torch for this version of CUDA: https://pytorch.org/get-started/locally"
    return Check("cuda", "warning", words, fix)


def check_reverb(prober: Prober) -> Check:
    """Checks Reverb and the TensorFlow that it needs; without Reverb, replay is kept in memory."""
    version, tensorflow = _version("dm-reverb"), _version("tensorflow")
    fix = "pip install 'dm-reverb[tensorflow]==0.14.0'"
    if version is None:
        has_wheel = (sys.version_info[:2], sys.platform, platform.machine()) == ((3, 11), "linux", "x86_64")
        fix = fix if has_wheel else "Reverb needs Python 3.11 on x86-64 Linux"
        return Check("reverb", "warning", "not installed: replay is kept in this process's memory", fix)
    result = prober("import reverb")
    if result.error:
        words = f"{version} is installed with TensorFlow {tensorflow}, but cannot be loaded: {result.error}"
        return Check("reverb", "wrong", words, f"{fix} 'numpy<2', or train with --replay memory")
    return Check("reverb", "ok", f"{version} with TensorFlow {tensorflow}, loaded in {result.seconds:.1f} s")


def check_package(name: str, code: str, fix: str, prober: Prober, python: tuple[Any, ...] = ()) -> Check:
    """Checks that a package works as training needs it.

    Args:
        name: The package's name.
        code: Code that must run without an error.
        fix: The command that installs the package.
        prober: Runs the code.
        python: The version of Python.
    """
    version = _version(name)
    if version is None and name == "dm_control" and python >= _FIRST_WITHOUT_WHEELS:
        words = "not installed: its dependency labmaze has no wheels for this Python, and only mazes need it"
        return Check(name, "warning", words, DM_CONTROL_WITHOUT_LABMAZE)
    if version is None:
        return Check(name, "wrong", "not installed", fix)
    result = prober(code)
    if result.error:
        return Check(name, "wrong", f"{version} does not work: {result.error}", fix)
    beside = f", mujoco {_version('mujoco')}" if name == "dm_control" else ""
    return Check(name, "ok", f"{version}{beside}")


def check_rendering(prober: Prober) -> Check:
    """Checks which renderers MuJoCo can use; only videos need one."""

    def draws(backend: str) -> bool:
        offscreen = {} if backend == "glfw" else {"PYOPENGL_PLATFORM": backend}
        return not prober(_DRAW, MUJOCO_GL=backend, **offscreen).error

    if _version("mujoco") is None:
        return Check("rendering", "warning", "MuJoCo is not installed", "pip install 'mujoco>=3.3,<5'")
    works = list(filter(draws, _BACKENDS))
    if not works:
        words = "none of egl, osmesa and glfw works: training works, but videos do not"
        return Check("rendering", "warning", words, "apt-get install libegl1 libgl1")
    chosen = os.environ.get("MUJOCO_GL")
    if chosen in _BACKENDS and chosen not in works:
        words = f"MUJOCO_GL is {chosen}, which does not work; use {' or '.join(works)} instead"
        return Check("rendering", "warning", words, f"export MUJOCO_GL={works[0]}")
    return Check("rendering", "ok", " and ".join(works))


def check_extras(python: tuple[Any, ...] = sys.version_info) -> Check:
    """Reports which optional packages, needed by single commands, are installed."""
    missing = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module) is None]
    words = ", ".join(extra for extra in EXTRAS if extra not in missing) or "none"
    if not missing:
        return Check("extras", "ok", words)
    late = [extra for extra in missing if extra in _NOT_BESIDE_REVERB and python < (3, 12)]
    here = [extra for extra in missing if extra not in late]
    words += f"; not installed: {', '.join(missing)}"
    fix = [f"if you want them: pip install 'minerva-acme[{','.join(here)}]'"] if here else []
    fix += [f"{' and '.join(late)}: with Python 3.12 or newer"] if late else []
    return Check("extras", "ok", words, "; ".join(fix))


def check_disk(directory: pathlib.Path) -> Check:
    """Checks the disk for runs: whether it is writable, and how much space is free."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check("disk", "wrong", f"{existing} is not writable", "train with another --directory")
    free = shutil.disk_usage(existing).free / 1e9
    words = f"{free:.1f} GB free for {directory}"
    if free < _MIN_DISK_GB:
        return Check("disk", "wrong", words, "free space, or train with another --directory")
    if free < _LITTLE_DISK_GB:
        return Check("disk", "warning", f"only {words}", "free space, or train with --no-checkpoint-replay")
    return Check("disk", "ok", words)


def check_shared_memory(folder: pathlib.Path) -> Check:
    """Checks the shared memory of processes."""
    if not folder.is_dir():
        return Check("shared", "ok", f"no {folder} on this system")
    free = shutil.disk_usage(folder).free / 1e6
    if free >= _LITTLE_SHM_MB:
        return Check("shared", "ok", f"{free:,.0f} MB free in {folder}")
    words = f"only {free:.0f} MB free in {folder}: environments in separate processes may fail"
    return Check("shared", "warning", words, "in a container: docker run --shm-size=1g ...")


def check_port() -> Check:
    """Checks that a server such as Reverb's can listen on a port."""
    try:
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
    except OSError as error:
        return Check("port", "warning", f"cannot listen on any port: {error}", "train with --replay memory")
    return Check("port", "ok", f"free ports available, such as {port}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
