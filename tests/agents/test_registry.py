"""Agents are found by the names that installed packages give them, and by where their builders are."""

import dataclasses
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

from minerva_acme.agents import annotations, on_policy, ppo, registry

MODULE = """
    import dataclasses

    from minerva_acme.agents import ppo


    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TheirConfig(ppo.PPOConfig):
        bonus: float = 0.5


    class TheirBuilder(ppo.PPOBuilder):
        def __init__(self, config: TheirConfig) -> None:
            super().__init__(config)


    PRESETS = {"small": TheirConfig(bonus=0.1), "another agent's": ppo.PPOConfig()}
    not_a_builder = print
"""


@pytest.fixture
def install(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that installs a package which holds agents, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, **agents: str) -> None:
        lines = "".join(f"{name} = {value}\n" for name, value in agents.items())
        folder = tmp_path / f"{package}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (folder / "entry_points.txt").write_text(f"[minerva_acme.agents]\n{lines}")
        (tmp_path / f"{package}.py").write_text(textwrap.dedent(MODULE))
        monkeypatch.syspath_prepend(tmp_path)  # as in a new process
        monkeypatch.setattr(sys, "path", [*sys.path, f"/nowhere/{package}"])
        packages.append(package)

    packages: list[str] = []
    yield install
    for package in packages:
        sys.modules.pop(package, None)


def test_an_agent_of_an_installed_package_has_a_name_and_is_imported_when_it_is_used(
    install: Callable[..., None],
) -> None:
    install("their_package", theirs="their_package:TheirBuilder")
    entry = registry.find("theirs")
    assert list(registry.entries()) == [*registry.AGENTS, "theirs"]
    assert (entry.path, entry.source) == ("their_package:TheirBuilder", "their_package 1.2")
    assert "their_package" not in sys.modules
    assert (entry.builder.__name__, entry.config.__name__) == ("TheirBuilder", "TheirConfig")


def test_its_presets_are_those_of_its_config_beside_the_builder(install: Callable[..., None]) -> None:
    install("their_package", theirs="their_package:TheirBuilder")
    presets = registry.find("theirs").presets
    assert {name: preset.bonus for name, preset in presets.items()} == {"default": 0.5, "small": 0.1}


def test_a_builder_is_found_by_where_it_is() -> None:
    entry = registry.find("minerva_acme.agents.ppo.builder:PPOBuilder")
    assert entry.title == "PPOBuilder"
    assert (entry.builder, entry.config) == (ppo.PPOBuilder, ppo.PPOConfig)
    assert dict(entry.presets) == {"default": ppo.PPOConfig()}


def test_a_name_that_two_packages_have_is_refused_where_it_is_used(install: Callable[..., None]) -> None:
    install("one", twice="one:TheirBuilder", fine="one:TheirBuilder")
    install("other", twice="other:TheirBuilder", ppo="other:TheirBuilder")
    with pytest.raises(ValueError, match=r"'twice' must be of one agent, .*`one:TheirBuilder`.*1\.2"):
        registry.find("twice")
    with pytest.raises(
        ValueError,
        match=r"'ppo' must be of one agent, but is of `minerva_acme\.agents\.ppo:PPOBuilder` by minerva-acme "
        r"and of `other:TheirBuilder` by other 1\.2\. Uninstall one of them, or say which: --agent other:The",
    ):
        registry.find("ppo")
    assert registry.find("fine").builder.__name__ == "TheirBuilder"
    assert registry.find("mpo").title == "MPO"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:A", "agent 'broken' of their_package 1.2 is `no_such_module:A`, which cannot be"),
        ("their_package:Missing", "cannot be imported: their_package has no Missing. Install its package"),
        ("their_package:not_a_builder", "`their_package:not_a_builder` must be a subclass of `AgentBuilder`"),
        ("their_package", "cannot be imported: it is not of the form module:name"),
    ],
)
def test_a_broken_entry_point_is_a_sentence_and_breaks_no_other(
    install: Callable[..., None], value: str, message: str
) -> None:
    install("their_package", broken=value, theirs="their_package:TheirBuilder")
    with pytest.raises(ValueError, match=message):
        assert registry.find("broken").config
    assert registry.find("theirs").config.__name__ == "TheirConfig"
    assert registry.find("ppo").config is ppo.PPOConfig


def test_a_name_that_nobody_has_is_a_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"no agent 'trpo'; there are mpo, vmpo, ppo, sac, td3, d4pg, dqn\. Ins"
    ):
        registry.find("trpo")


# Which config a builder takes.


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 3


@dataclasses.dataclass(frozen=True)
class NeedsSize:
    size: int


class ByArgument:
    def __init__(self, config: Config, other: int = 0) -> None: ...


class ByText:
    def __init__(self, config: "Config") -> None: ...


class ByAttribute:
    config: Config


class Inherits(ByArgument): ...


Given = TypeVar("Given")
Passed = TypeVar("Passed")


class Base(Generic[Passed]):
    def __init__(self, config: Passed) -> None: ...


class Between(Base[Given], Generic[Given]): ...


class OfBetween(Between[Config]): ...


class AlsoBetween(Base[Passed], Generic[Passed]): ...


class OfAlsoBetween(AlsoBetween[Config]): ...


@pytest.mark.parametrize(
    "builder", [ByArgument, ByText, ByAttribute, Inherits, OfBetween, OfAlsoBetween], ids=lambda b: b.__name__
)
def test_the_config_is_what_the_annotations_say(builder: type[Any]) -> None:
    assert annotations.find_config(builder) is Config


def test_a_subclass_of_an_agent_takes_its_config_or_another() -> None:
    class Same(ppo.PPOBuilder): ...

    class Another(on_policy.OnPolicyBuilder[ppo.PPOConfig]): ...

    assert annotations.find_config(Same) is annotations.find_config(Another) is ppo.PPOConfig


class Silent:
    def __init__(self, config) -> None: ...  # type: ignore[no-untyped-def]


class Misses:
    def __init__(self, config: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (
            Silent,
            r"Silent must say which config it takes, .*`def __init__\(self, config: MyConfig\)`, or `config",
        ),
        (Base, "Base must say which config it takes"),
        (type("Plain", (), {}), "Plain must say"),
        (Misses, "annotations of Misses must be names that its module has, but name 'Nowhere'"),
    ],
)
def test_a_builder_that_does_not_say_its_config_is_told_how(builder: type[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        annotations.find_config(builder)


def test_a_config_without_a_default_is_a_sentence() -> None:
    entry = registry.AgentEntry("x", __name__, "NeedsSize", "")
    with pytest.raises(ValueError, match=r"`size` of NeedsSize must have a default, got none\. .*PRESETS = "):
        entry._make_default(NeedsSize)


def test_a_builder_may_make_its_bases_config_from_one_of_its_own():
    class Wrapping(ppo.PPOBuilder):
        def __init__(self, config: Config) -> None:
            super().__init__(ppo.PPOConfig(num_epochs=3))

    assert Wrapping(Config()).config.num_epochs == 3
