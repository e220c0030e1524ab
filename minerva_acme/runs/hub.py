"""Policies on the Hugging Face Hub, by names such as hf:OWNER/NAME@REVISION.

Only one file is read: the weights, a safetensors file whose header holds the content of run.json. Needs the
extra `hub`.
"""

import contextlib
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from minerva_acme import _version
from minerva_acme.names import readable

PREFIX = "hf:"
WEIGHTS = "policy.safetensors"
"""The file that is read."""

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Name(NamedTuple):
    """The name of a policy on the hub."""

    repository: str  # OWNER/NAME
    revision: str | None  # a commit, branch or tag; None for the newest

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def parse(text: str) -> Name:
    """Parses a name.

    Raises:
        ValueError: It is malformed.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"The name must be hf:OWNER/NAME or hf:OWNER/NAME@REVISION, got '{text}'.")
    return Name(found[1], found[2])


def check_installed() -> None:
    """Checks that huggingface_hub is installed.

    Raises:
        ValueError: It is not.
    """
    with _explained("use the hub"):
        _api()


def download(text: str) -> pathlib.Path:
    """Downloads the weights of a commit into the cache of huggingface_hub, and returns their path.

    A branch, a tag or no revision is first resolved to its newest commit, which is logged as a warning, since
    it may be another one tomorrow.

    Args:
        text: The name, hf:OWNER/NAME or hf:OWNER/NAME@REVISION.

    Raises:
        ValueError: The name is malformed, huggingface_hub is not installed, or there are no such weights.
    """
    repository, commit = name = parse(text)
    with _explained(f"read {name}"):
        api = _api()
        if commit is None or not _COMMIT.fullmatch(commit):
            commit = str(api.model_info(repository, revision=commit).sha)
            _LOG.warning("%s is commit %s now. To pin it: %s", name, commit, Name(repository, commit))
        return pathlib.Path(api.hf_hub_download(repository, WEIGHTS, revision=commit))


def upload(files: Iterable[str | os.PathLike[str]], to: Name, *, message: str, private: bool = False) -> Name:
    """Uploads files as one commit, into a repository that is made if there is none.

    Args:
        files: The files, which keep their names.
        to: The repository.
        message: The message of the commit.
        private: Whether a new repository is private.

    Returns:
        The name of the commit.

    Raises:
        ValueError: huggingface_hub is not installed, or the hub refused.
    """
    with _explained(f"upload to {to}"):
        import huggingface_hub

        api = _api()
        api.create_repo(to.repository, private=private, exist_ok=True)
        operations = [
            huggingface_hub.CommitOperationAdd(pathlib.Path(file).name, str(file)) for file in files
        ]
        commit = api.create_commit(
            to.repository, operations, commit_message=message, revision=to.revision or "main"
        )
        return Name(to.repository, commit.oid)


def _api() -> Any:
    import huggingface_hub

    return huggingface_hub.HfApi(library_name="minerva-acme", library_version=_version.__version__)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        needed = readable.missing(error, "pip install 'minerva-acme[hub]'")
        raise ValueError(f"To {what}, you need {needed}") from error
    except Exception as error:  # of several libraries for connections too
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        why = " ".join(lines).rstrip(".")
        raise ValueError(
            f"Could not {what}: {why}. Check the name and the connection; for a private repository or an "
            "upload, log in with `hf auth login`."
        ) from error
