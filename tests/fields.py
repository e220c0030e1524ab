"""The settings of tests that go over all agents."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def of_fields(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those settings for which a config class has a field."""
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in settings.items() if name in names}
