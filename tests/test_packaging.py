"""What is installed is what the folders hold."""

import configparser
import hashlib
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging import requirements, utils

import minerva_acme


@pytest.fixture(scope="module")
def setup_cfg(repository: pathlib.Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(repository / "setup.cfg")
    return config


@pytest.fixture(scope="module")
def wheel(repository: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A wheel built from a copy of the sources, so that no build folder stays or is reused."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source)
    for name in ("minerva_acme", "adders", "agents"):
        shutil.copytree(repository / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built, source)
    (path,) = built.glob("*.whl")
    return path


def pip(*arguments: str | pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_setup_cfg_lists_every_folder_that_holds_python_files(
    setup_cfg: configparser.ConfigParser, source_files: dict[str, pathlib.Path]
) -> None:
    packages = {
        name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in source_files.items()
    }
    assert setup_cfg["options"]["packages"].split() == sorted(packages)


def test_every_package_has_an_init_file(source_files: dict[str, pathlib.Path]) -> None:
    missing = {path.parent for path in source_files.values() if not (path.parent / "__init__.py").exists()}
    assert not missing


def test_the_wheel_holds_every_module_and_nothing_else(
    repository: pathlib.Path, wheel: pathlib.Path, source_files: dict[str, pathlib.Path]
) -> None:
    files = (repository / "minerva_acme" / "results").rglob("*")
    data = [path for path in files if path.suffix in (".csv", ".json")]
    assert sum(path.stat().st_size for path in data) < 280_000  # an installed package stays small
    expected = {
        "minerva_acme/experiments/tasks.toml",
        "minerva_acme/py.typed",
        *(str(path.relative_to(repository)) for path in data),
    }
    for name, path in source_files.items():
        stem = name.replace(".", "/")
        expected.add(f"{stem}/__init__.py" if path.name == "__init__.py" else f"{stem}.py")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_wheel_works_from_any_folder(
    wheel: pathlib.Path, source_files: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--no-deps", "--no-index", "--target", site, wheel)
    modules = [name for name, path in source_files.items() if path.name == "__init__.py"]
    code = f"""
import importlib, sys
sys.path.insert(0, {str(site)!r})
for name in {modules}:
    assert importlib.import_module(name).__file__.startswith({str(site)!r}), name
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (site / "bin" / "minerva").exists()


def test_the_version_stands_in_one_place() -> None:
    assert importlib.metadata.version("minerva-acme") == minerva_acme.__version__


def test_constraints_pin_every_requirement_within_its_range(
    repository: pathlib.Path, setup_cfg: configparser.ConfigParser
) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {utils.canonicalize_name(name): version for name, version in pins.items()}
    declared = [setup_cfg["options"]["install_requires"], *setup_cfg["options.extras_require"].values()]
    for line in "\n".join(declared).splitlines():
        if line and not line.startswith("#"):
            requirement = requirements.Requirement(line)
            version = pins[utils.canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{line}: constraints.txt has {version}"


def test_constraints_are_plain_pins_in_alphabetical_order(repository: pathlib.Path) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    # A local version such as 2.13.0+cpu exists on one index alone.
    assert not [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9a-z.]+", line)]
    assert pins == sorted(pins, key=lambda line: utils.canonicalize_name(line.split("==")[0]))


def test_golden_data_is_as_it_was_received(repository: pathlib.Path) -> None:
    golden = repository / "tests" / "golden"
    expected = dict(reversed(line.split()) for line in (golden / "SHA256SUMS").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in golden.glob("*.npz")}
    assert found == expected
