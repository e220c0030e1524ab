"""`minerva doctor`: what of this machine works, in plain words, with the command that mends the rest."""

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from rich import console as rich_console

from minerva_acme import thread_settings
from minerva_acme.acceleration import fused, linear

_PROBE_SECONDS = 120.0
_MIN_DISK_GB, _LITTLE_DISK_GB = 0.1, 2.0
_LITTLE_SHM_MB = 64.0

_REVERB = "import reverb"
_TENSORBOARD = "from tensorboard.compat.proto import event_pb2"
_DM_CONTROL = "from dm_control import suite; suite.load('cartpole', 'swingup').reset()"
_GYMNASIUM = "import gymnasium; gymnasium.make('CartPole-v1').reset()"
# With a picture: without a display GLFW makes a context that cannot draw.
_DRAW = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
_BACKENDS = ("egl", "osmesa", "glfw")

_NAME_WIDTH = 20  # OPENBLAS_NUM_THREADS


class Check(NamedTuple):
    """What was found of one thing."""

    name: str
    status: Literal["ok", "warning", "wrong"]  # wrong: training does not work
    words: str
    mend: str = ""  # the command, or what else to do


class Probe(NamedTuple):
    """What became of some code in a Python of its own."""

    error: str  # the last line of what it said; "" where it worked
    seconds: float


def run(directory: pathlib.Path) -> int:
    """Shows what works, as it is found out; returns 0 where training does, else 1.

    Args:
        directory: where runs are to be kept.
    """
    console = rich_console.Console(highlight=False, soft_wrap=True)
    styles = {"ok": "green", "warning": "yellow", "wrong": "bold red"}
    found = []
    for check in examine(directory):
        found.append(check)
        status = f"[{styles[check.status]}]{check.status:8}[/]"
        console.print(f"{status}{check.name:{_NAME_WIDTH}} ", end="")
        console.print(check.words, markup=False)
        if check.mend:
            console.print(f"{'':{_NAME_WIDTH + 9}}-> {check.mend}", markup=False)
    counts = {status: sum(check.status == status for check in found) for status in styles}
    works = "Training does not work here yet." if counts["wrong"] else "Training works here."
    console.print(f"{works} {counts['ok']} ok, {counts['warning']} warnings, {counts['wrong']} wrong.")
    return int(counts["wrong"] > 0)


def examine(directory: pathlib.Path) -> Iterator[Check]:
    """Yields what is found of each thing."""
    yield check_python(sys.version_info[:3])
    yield Check("platform", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield from check_torch(os.environ, _num_cores())
    yield check_reverb(probe)
    physics = "pip install 'dm_control>=1.0.20' 'mujoco>=3.3,<4'"
    yield check_package("dm_control", _DM_CONTROL, probe, mend=physics)
    yield check_package("gymnasium", _GYMNASIUM, probe, mend="pip install 'gymnasium>=1.0'")
    # Its 2.15 imports pkg_resources, which newer setuptools lack.
    yield check_package("tensorboard", _TENSORBOARD, probe, mend="pip install tensorboard 'setuptools<81'")
    yield check_rendering(probe)
    yield check_extras()
    yield check_disk(directory)
    yield check_shared_memory(pathlib.Path("/dev/shm"))
    yield check_port()


def probe(code: str, **environment: str) -> Probe:
    """Runs code in a Python of its own: what crashes or hangs there takes nothing else with it."""
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
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = (lines[-1].strip() if lines else f"exit status {done.returncode}") if done.returncode else ""
    return Probe(error, time.monotonic() - start)


Prober = Callable[..., Probe]


def check_python(version: tuple[int, ...]) -> Check:
    """Checks the version of Python."""
    words = ".".join(map(str, version))
    if version < (3, 11):
        return Check(
            "python",
            "wrong",
            f"{words}, but 3.11 or newer is needed",
            "python3.11 -m venv .venv, and install there",
        )
    return Check("python", "ok", words)


def check_torch(environment: "os._Environ[str] | dict[str, str]", num_cores: int) -> Iterator[Check]:
    """Checks torch, its threads and CUDA."""
    yield Check("torch", "ok", torch.__version__)
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > num_cores:
        yield Check(
            "threads",
            "warning",
            f"OMP_NUM_THREADS is {threads}, but {num_cores} cores may be used: they will be contended",
            f"export OMP_NUM_THREADS={thread_settings.recommended(num_cores)}",
        )
    else:
        yield Check("threads", "ok", f"{num_cores} cores may be used")
    for setting in thread_settings.describe():
        who = "by default" if setting.is_default else "by you"
        said = f"{setting.value}, set {who}"
        if setting.is_late:
            said += ", but after the library that reads it was loaded"
            yield Check(setting.name, "warning", said, f"export {setting.name}={setting.value}")
        else:
            yield Check(setting.name, "ok", said)
    by = "oneDNN, MKL being slow on this CPU" if linear.uses_onednn() else "torch's own choice"
    fuses = [str(dtype)[6:] for dtype in (torch.float32, torch.bfloat16) if fused.pays(dtype)]
    among = " and ".join(fuses) or "no precision"
    yield Check("products", "ok", f"float32 by {by}; fused with activations in {among}")
    if torch.cuda.is_available():
        yield Check("cuda", "ok", f"{torch.cuda.get_device_name()}; --device cpu does without")
    elif shutil.which("nvidia-smi"):
        yield Check(
            "cuda",
            "warning",
            f"there is an NVIDIA driver, but torch {torch.__version__} finds no device: the CPU computes",
            "install a build of torch for this CUDA: https://pytorch.org/get-started/locally",
        )
    else:
        yield Check("cuda", "ok", "none: the CPU computes, which these networks are small enough for")


def check_reverb(prober: Prober) -> Check:
    """Checks Reverb and the TensorFlow that it needs; without it replay is kept in memory."""
    version, tensorflow = _version("dm-reverb"), _version("tensorflow")
    if version is None:
        if sys.version_info[:2] == (3, 11) and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            mend = "pip install 'dm-reverb[tensorflow]==0.14.0'"
        else:
            mend = "for Reverb: Python 3.11 on x86-64 Linux"
        return Check("reverb", "warning", "not installed: replay is kept in this process's memory", mend)
    result = prober(_REVERB)
    if result.error:
        return Check(
            "reverb",
            "wrong",
            f"{version} is installed with TensorFlow {tensorflow}, but does not load: {result.error}",
            "pip install 'dm-reverb[tensorflow]==0.14.0' 'numpy<2', or train with --replay memory",
        )
    return Check("reverb", "ok", f"{version} with TensorFlow {tensorflow}, loaded in {result.seconds:.1f} s")


def check_package(name: str, code: str, prober: Prober, *, mend: str) -> Check:
    """Checks that a package does what training needs of it."""
    version = _version(name)
    if version is None:
        return Check(name, "wrong", "not installed", mend)
    result = prober(code)
    if result.error:
        return Check(name, "wrong", f"{version} does not work: {result.error}", mend)
    beside = f", mujoco {_version('mujoco')}" if name == "dm_control" else ""
    return Check(name, "ok", f"{version}{beside}")


def check_rendering(prober: Prober) -> Check:
    """Checks what MuJoCo can draw with; only `minerva video` needs it."""
    if _version("mujoco") is None:
        return Check("rendering", "warning", "MuJoCo is not installed", "pip install 'mujoco>=3.3,<4'")
    works = [name for name in _BACKENDS if not _draws(name, prober)]
    if works:
        chosen = os.environ.get("MUJOCO_GL")
        if chosen in _BACKENDS and chosen not in works:
            return Check(
                "rendering",
                "warning",
                f"MUJOCO_GL is {chosen}, which does not work; {' and '.join(works)} would",
                f"export MUJOCO_GL={works[0]}",
            )
        return Check("rendering", "ok", " and ".join(works))
    return Check(
        "rendering",
        "warning",
        "none of egl, osmesa and glfw works: no videos, training does without",
        "apt-get install libegl1 libosmesa6",
    )


def check_extras() -> Check:
    """Says which packages of single commands are there."""
    extras = {"plot": "matplotlib", "video": "imageio_ffmpeg", "wandb": "wandb"}
    missing = [extra for extra, module in extras.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return Check("extras", "ok", ", ".join(extras))
    there = [extra for extra in extras if extra not in missing] or ["none"]
    command = f"pip install 'minerva-acme[{','.join(missing)}]'"
    return Check("extras", "ok", f"{', '.join(there)}; not {', '.join(missing)}, for which: {command}")


def check_disk(directory: pathlib.Path) -> Check:
    """Checks the place for runs."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check("disk", "wrong", f"{existing} cannot be written to", "train with --directory elsewhere")
    free = shutil.disk_usage(existing).free / 1e9
    words = f"{free:.1f} GB free for {directory}"
    if free < _MIN_DISK_GB:
        return Check("disk", "wrong", words, "make room, or train with --directory elsewhere")
    if free < _LITTLE_DISK_GB:
        return Check("disk", "warning", f"{words}: little", "make room, or train with --no-checkpoint-replay")
    return Check("disk", "ok", words)


def check_shared_memory(folder: pathlib.Path) -> Check:
    """Checks the memory that processes share."""
    if not folder.is_dir():
        return Check("shared", "ok", f"no {folder} on this system")
    free = shutil.disk_usage(folder).free / 1e6
    if free < _LITTLE_SHM_MB:
        return Check(
            "shared",
            "warning",
            f"{free:.0f} MB free in {folder}: environments in processes of their own may fail",
            "in a container: docker run --shm-size=1g ...",
        )
    return Check("shared", "ok", f"{free:,.0f} MB free in {folder}")


def check_port() -> Check:
    """Checks that a server can listen, as Reverb's does."""
    try:
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
    except OSError as error:
        return Check("port", "warning", f"none can be listened on: {error}", "train with --replay memory")
    return Check("port", "ok", f"free ones, such as {port}")


def _draws(backend: str, prober: Prober) -> str:
    offscreen = {} if backend == "glfw" else {"PYOPENGL_PLATFORM": backend}
    return prober(_DRAW, MUJOCO_GL=backend, **offscreen).error


def _num_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
