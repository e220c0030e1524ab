import re
from importlib import metadata

import pytest

import minerva_acme
from minerva_acme.runs import provenance

NUMBERS = '[{"version": 1, "commit": null, "packages": {}, "machine": "m"}]'
NO_PACKAGES = '[{"version": "1", "commit": null, "packages": null, "machine": "m"}]'


def test_a_session_says_its_version_commit_packages_and_machine(tmp_path):
    provenance.note(tmp_path)
    (session,) = provenance.read(tmp_path)
    assert session == provenance.describe()
    assert session["version"] == minerva_acme.__version__
    assert session["packages"]["torch"] == metadata.version("torch") and "numpy" in session["packages"]
    assert "pytest" not in session["packages"]  # an extra
    assert session["commit"] is None or re.fullmatch(r"[0-9a-f]{12,}(-dirty)?", session["commit"])
    assert re.search(r"\d+ cores, \d+ torch thread", session["machine"])


def test_only_a_session_that_was_made_differently_is_added(tmp_path, monkeypatch):
    provenance.note(tmp_path)
    provenance.note(tmp_path)
    assert len(provenance.read(tmp_path)) == 1
    monkeypatch.setattr(provenance, "_commit", lambda: "0123456789ab")
    provenance.note(tmp_path)
    commits = [session["commit"] for session in provenance.read(tmp_path)]
    assert len(commits) == 2 and commits[1] == "0123456789ab"
    assert [path.name for path in tmp_path.iterdir()] == [provenance.FILE]


def test_outside_of_a_clone_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "minerva_acme" / "experiments" / "x.py"))
    provenance._commit.cache_clear()
    try:
        assert provenance._commit() is None
    finally:
        provenance._commit.cache_clear()


def test_a_run_of_an_older_version_says_nothing(tmp_path):
    assert provenance.read(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    ["", "[", "3", '[{"version": "1"}]', "[3]", "[" * 100_000, NUMBERS, NO_PACKAGES],
    ids=range(8),
)
def test_a_damaged_file_is_told_by_its_name(tmp_path, content):
    (tmp_path / provenance.FILE).write_text(content)
    with pytest.raises(ValueError, match="provenance.json must list the versions .* Remove the file"):
        provenance.read(tmp_path)


def test_a_file_of_noise_is_refused_without_repeating_it(tmp_path):
    (tmp_path / provenance.FILE).write_bytes(b"\xff" * 100_000)
    with pytest.raises(ValueError, match="must list the versions .* can't decode byte") as raised:
        provenance.read(tmp_path)
    assert len(str(raised.value)) < 1000
