"""What is installed is what the folders hold."""

import configparser
import email
import email.message
import hashlib
import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from packaging import requirements, utils

import minerva_acme
from minerva_acme import results
from minerva_acme.cli import demo, doctor

from . import other_pythons, tested_pins

TEMPLATES = ("agent", "environment", "tests", "pyproject", "readme")  # of `minerva init`
PYTHONS = ("3.11", *other_pythons.PYTHONS)


@pytest.fixture(scope="module")
def setup_cfg(repository: pathlib.Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(repository / "setup.cfg")
    return config


@pytest.fixture(scope="module")
def sdist(repository: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The unpacked archive of the sources, built from a copy: no build folder stays or is reused."""
    copy = tmp_path_factory.mktemp("source") / "copy"
    other_pythons.copy_sources(repository, copy)
    command = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    built = tmp_path_factory.mktemp("sdist")
    done = subprocess.run(
        [sys.executable, "-c", command, str(built)], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(built, filter="data")
    (folder,) = (path for path in built.iterdir() if path.is_dir())
    return folder


@pytest.fixture(scope="module")
def wheel(sdist: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A wheel, built from the archive of the sources, as an installer would."""
    built = tmp_path_factory.mktemp("wheel")
    command = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", command, str(built)], cwd=sdist, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: pathlib.Path) -> email.message.Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


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


@pytest.mark.promise("Type annotations")
def test_the_wheel_holds_every_module_and_nothing_else(
    repository: pathlib.Path,
    wheel: pathlib.Path,
    source_files: dict[str, pathlib.Path],
    setup_cfg: configparser.ConfigParser,
) -> None:
    files = (repository / "minerva_acme" / "results").rglob("*")
    data = [path for path in files if path.suffix in (".csv", ".json")]
    weights = [*(repository / "minerva_acme" / "results" / "weights").glob("*.safetensors")]
    assert sum(path.stat().st_size for path in weights) < 1_100_000
    left_out = setup_cfg["options.exclude_package_data"]["minerva_acme.results"].split(", ")
    data = [path for path in data if not any(path.match(pattern) for pattern in left_out)]
    assert sum(path.stat().st_size for path in data) < 450_000  # an installed package stays small
    expected = {
        "minerva_acme/names/foreign_names.toml",
        "minerva_acme/plotting/paper.mplstyle",
        "minerva_acme/plotting/report_page.html",
        "minerva_acme/runs/tasks.toml",
        "minerva_acme/py.typed",
        *(f"minerva_acme/cli/templates/{name}.txt" for name in TEMPLATES),
        *(str(path.relative_to(repository)) for path in [*data, *weights]),
    }
    for name, path in source_files.items():
        stem = name.replace(".", "/")
        expected.add(f"{stem}/__init__.py" if path.name == "__init__.py" else f"{stem}.py")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    pages = [repository / "README.md", *repository.glob("docs/**/*.md"), *repository.glob("agents/*/*.md")]
    reports = re.findall(r"^minerva report (.*)", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    named = {word for line in reports for word in line.split()} & {*results.load()}
    assert "mpo_modern_saturated" in named and demo.EXPERIMENT in results.load()
    for name in (*named, demo.EXPERIMENT):
        assert f"minerva_acme/results/data/{name}.csv" in held


def test_the_wheel_trains_in_a_new_environment_as_the_readme_says(
    repository: pathlib.Path,
    wheel: pathlib.Path,
    source_files: dict[str, pathlib.Path],
    tmp_path: pathlib.Path,
) -> None:
    """What it needs comes from this environment; the package itself does not."""
    new, elsewhere = tmp_path / "new", tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(*words: object) -> str:
        command = [*map(str, words)]
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", new)
    python = new / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = new.glob("lib/*/site-packages")
    needed = [path for path in sys.path if path.endswith("-packages")]
    (site / "needed.pth").write_text("\n".join(needed))
    modules = [name for name, path in source_files.items() if path.name == "__init__.py"]
    code = f"""
import importlib.util
for name in {modules}:  # of which it imports the packages above
    assert importlib.util.find_spec(name).origin.startswith({str(site)!r}), name
"""
    run(python, "-c", code)
    readme = (repository / "README.md").read_text()
    (training,) = re.findall("run `minerva (train [^`]+)`", readme)
    run(new / "bin" / "minerva", *training.split(), "--num-env-steps", "2048", "--evaluation-episodes", "1")
    assert (elsewhere / "runs" / "CartPole-v1" / "ppo_default-seed0" / "evaluator.csv").exists()


def test_the_archive_of_the_sources_holds_what_its_tests_and_pages_need(
    repository: pathlib.Path, sdist: pathlib.Path
) -> None:
    for folder in ("docs", "examples", "tests"):
        files = (path.relative_to(repository) for path in (repository / folder).rglob("*") if path.is_file())
        missing = [path for path in files if "__pycache__" not in path.parts and not (sdist / path).exists()]
        assert not missing
    for name in ("CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "constraints.txt", "mkdocs.yml"):
        assert (sdist / name).exists()


def test_the_dockerfile_installs_and_runs_what_the_pages_say(
    repository: pathlib.Path, wheel: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """By the commands of the README and of docs/installing.md, from files that hold the whole package."""
    lines = (repository / "Dockerfile").read_text().splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if not line.startswith("#")]
    assert instructions[0] == ["FROM", f"python:{PYTHONS[0]}-slim"]
    installs = [words for name, words in instructions if name == "RUN" and words.startswith("pip ")]
    readme, page = ((repository / name).read_text() for name in ("README.md", "docs/installing.md"))
    assert {*installs} <= {*readme.splitlines(), *page.splitlines()}
    name, command = instructions[-1]
    assert name == "CMD" and f"\n{installs[-1]}\n{' '.join(json.loads(command))}\n" in readme
    for path in re.findall(r"^!(.+)$", (repository / ".dockerignore").read_text(), re.MULTILINE):
        copy = shutil.copytree if (repository / path).is_dir() else shutil.copy
        copy(repository / path, tmp_path / path)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (tmp_path / "dist").glob("*.whl")
    assert {*zipfile.ZipFile(built).namelist()} == {*zipfile.ZipFile(wheel).namelist()}


def test_the_version_stands_in_one_place(repository: pathlib.Path) -> None:
    assert importlib.metadata.version("minerva-acme") == minerva_acme.__version__
    assert f"version: {minerva_acme.__version__}\n" in (repository / "CITATION.cff").read_text()


def test_the_metadata_says_what_the_package_is_and_where_it_runs(metadata: email.message.Message) -> None:
    classifiers = metadata.get_all("Classifier", [])
    for python in PYTHONS:
        assert f"Programming Language :: Python :: {python}" in classifiers
    assert "Typing :: Typed" in classifiers
    assert "reinforcement learning" in metadata["Keywords"]
    assert "# minerva-acme" in str(metadata.get_payload())


def test_every_extra_is_described(repository: pathlib.Path, metadata: email.message.Message) -> None:
    page = (repository / "docs" / "installing.md").read_text()
    extras = metadata.get_all("Provides-Extra", [])
    assert "tested" in extras
    assert [extra for extra in extras if f"| `{extra}` |" not in page] == []


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="all that is pinned is installed on 3.11 alone")
def test_the_extra_tested_has_the_pins_of_constraints(repository: pathlib.Path) -> None:
    assert (repository / "tested.txt").read_text() == tested_pins.render(), (
        "write it anew: python -m tests.tested_pins > tested.txt"
    )


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.promise("Installation")
def test_the_extra_tested_pins_each_package_once_on_every_python(
    metadata: email.message.Message, python: str
) -> None:
    """As many packages as of the extra are pinned, each to one version, and within its range."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": "tested"}
    lines = map(requirements.Requirement, metadata.get_all("Requires-Dist", []))
    applying = [line for line in lines if line.marker is None or line.marker.evaluate(environment)]
    pinned = {}
    for line in applying:
        if line.marker is not None and "extra" in str(line.marker):
            (version,) = line.specifier
            assert version.operator == "==" and utils.canonicalize_name(line.name) not in pinned
            pinned[utils.canonicalize_name(line.name)] = version.version
    for line in applying:
        assert line.specifier.contains(pinned[utils.canonicalize_name(line.name)])
    assert ("tensorflow" in pinned) == (python == "3.11" and sys.platform == "linux")
    assert ("dm-control" in pinned) == (python != "3.13")
    assert "pygame" in pinned  # the README's first video is of CartPole


def test_constraints_pin_every_requirement_within_its_range(setup_cfg: configparser.ConfigParser) -> None:
    pins = {utils.canonicalize_name(pin.name): pin.specifier for pin in tested_pins.constraints()}
    extras = {name: text for name, text in setup_cfg["options.extras_require"].items() if name != "tested"}
    for line in "\n".join([setup_cfg["options"]["install_requires"], *extras.values()]).splitlines():
        if line and not line.startswith("#"):
            requirement = requirements.Requirement(line)
            (pin,) = pins[utils.canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin.version), f"{line}: constraints.txt has {pin}"


def declared(package: str) -> tested_pins.Requirements:
    """What an installed package needs without extras."""
    lines = map(requirements.Requirement, importlib.metadata.requires(package) or ())
    return {utils.canonicalize_name(line.name): line for line in lines if "extra" not in str(line.marker)}


def test_on_python_3_13_dm_control_is_installed_without_labmaze(
    repository: pathlib.Path,
) -> None:
    """What this package needs in any case, without Reverb, is left out."""
    pytest.importorskip("dm_control")
    command = doctor.DM_CONTROL_WITHOUT_LABMAZE
    packages, _, pin = command.partition(" && pip install --no-deps ")
    assert pin in map(str, tested_pins.constraints())
    needed, own = declared("dm_control"), declared("minerva-acme")
    del own["dm-control"], own["dm-reverb"]
    installed = packages.removeprefix("pip install ").split()
    assert installed == sorted(installed)
    # Tensorboard does not need requests on 3.13.
    assert set(installed) == set(needed) - (tested_pins.needed_by(own) - {"requests"}) - {"labmaze"}
    assert f"\n{command}\n" in (repository / "docs" / "installing.md").read_text()


def test_constraints_are_plain_pins_in_alphabetical_order() -> None:
    pins = tested_pins.constraints()
    # A local version such as 2.13.0+cpu exists on one index alone.
    assert not [pin for pin in pins if not re.fullmatch(r"==[0-9a-z.]+", str(pin.specifier))]
    names = [utils.canonicalize_name(pin.name) for pin in pins]
    assert names == sorted(names)


def test_the_sources_compile_without_a_warning_on_the_newest_python_that_is_here(
    repository: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """It warns of all that an older one does. This one imports all of them, in other tests."""
    code = """
import pathlib, sys, warnings
warnings.simplefilter("error")
for folder in sys.argv[1:]:
    for path in pathlib.Path(folder).rglob("*.py"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
print(f"{sys.version_info[0]}.{sys.version_info[1]}")
"""
    folders = [str(repository / name) for name in ("minerva_acme", "adders", "agents", "examples", "tests")]
    this = f"{sys.version_info[0]}.{sys.version_info[1]}"
    programs = ((python, other_pythons.find(python)) for python in reversed(PYTHONS) if python != this)
    python, program = next((found for found in programs if found[1]), (this, sys.executable))
    command = [str(program), "-c", code, *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == (python, 0), done.stderr


def test_golden_data_is_as_it_was_received(repository: pathlib.Path) -> None:
    golden = repository / "tests" / "golden"
    expected = dict(reversed(line.split()) for line in (golden / "SHA256SUMS").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in golden.glob("*.npz")}
    assert found == expected
