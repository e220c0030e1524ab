"""What the tests of the pages share."""

import importlib.util
import pathlib
import types

import pytest


@pytest.fixture(scope="session")
def hooks(repository: pathlib.Path) -> types.ModuleType:
    """The hooks of the site, `docs/site_hooks.py`."""
    spec = importlib.util.spec_from_file_location("site_hooks", repository / "docs" / "site_hooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
