"""The extra `tested`: the pins of constraints.txt for what the library needs, with plots and films.

    python -m tests.tested_pins > tested.txt

To be run where `.[dev]` is installed with constraints.txt, on Python 3.11. Nothing is downloaded.
"""

import configparser
import importlib.metadata
import pathlib

from packaging import markers, requirements, utils

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_HEADER = """\
# The extra `tested`: pip install 'minerva-acme[tested]' installs these versions, tested together.
# Written from constraints.txt by `python -m tests.tested_pins > tested.txt`.
"""
_EXTRAS = ("plot", "video")
# What only some Pythons and platforms have: first what more of them have.
_CONDITIONAL = ("dm-control", "dm-reverb")
_OLDEST_AND_NEWEST = ("3.11", "3.13")
_MACHINES = [
    {"python_version": python, "sys_platform": "linux", "platform_machine": "x86_64"}
    for python in ("3.11", "3.12", "3.13")
]

Requirements = dict[str, requirements.Requirement]


def constraints() -> list[requirements.Requirement]:
    """The pins of constraints.txt, in their order."""
    lines = (_ROOT / "constraints.txt").read_text().splitlines()
    return [requirements.Requirement(line) for line in lines if not line.startswith("#")]


def declared() -> Requirements:
    """What setup.cfg asks for, with plots and films."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(_ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"]]
    texts += [setup["options.extras_require"][extra] for extra in _EXTRAS]
    lines = [line for line in "\n".join(texts).splitlines() if line and not line.startswith("#")]
    found = map(requirements.Requirement, lines)
    return {utils.canonicalize_name(requirement.name): requirement for requirement in found}


def render() -> str:
    """Returns what tested.txt must hold."""
    wanted = declared()
    marker_of = {}
    # The weakest marker comes last: what is needed without the conditional ones has none.
    for number in range(len(_CONDITIONAL), -1, -1):
        some = {name: wanted[name] for name in wanted if name not in _CONDITIONAL[number:]}
        marker = wanted[_CONDITIONAL[number - 1]].marker if number else None
        marker_of |= dict.fromkeys(needed_by(some), marker)
    lines = []
    for pin in constraints():
        name = utils.canonicalize_name(pin.name)
        if name in marker_of:
            parts = [str(marker) for marker in (pin.marker, marker_of[name]) if marker]
            if len(parts) > 1 and parts[0] in parts[1]:
                del parts[0]
            condition = " and ".join(parts)
            if condition and not any(map(markers.Marker(condition).evaluate, _MACHINES)):
                continue  # for the Pythons that do not need the package
            lines.append("; ".join([f"{pin.name}{pin.specifier}", *[condition] * bool(condition)]))
    return _HEADER + "\n".join(lines) + "\n"


def needed_by(wanted: Requirements) -> set[str]:
    """These packages, those that they need, and so on, on any Python that is supported."""
    found: set[str] = set()
    left = list(wanted.values())
    while left:
        requirement = left.pop()
        name = utils.canonicalize_name(requirement.name)
        if name in found and not requirement.extras:
            continue
        found.add(name)
        try:
            lines = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # another Python's, or torch's libraries for CUDA, which torch itself pins
        needed = map(requirements.Requirement, lines)
        left += [other for other in needed if _applies(other, ("", *requirement.extras))]
    return found


def _applies(requirement: requirements.Requirement, extras: tuple[str, ...]) -> bool:
    return requirement.marker is None or any(
        requirement.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}
        )
        for python in _OLDEST_AND_NEWEST
        for extra in extras
    )


if __name__ == "__main__":
    print(render(), end="")
