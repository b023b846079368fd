"""Models on the hub: addresses, cards, and a local stand-in that speaks as the hub does."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from longtail import Predictor, hub, labels
from longtail.cli import main
from longtail.errors import BundleError, ConfigError, MissingExtra, RunError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("hf://me/animals", ("me/animals", None)),
        ("hf://me/animals@v1.0", ("me/animals", "v1.0")),
        ("hf://me/an_i-mals.x@refs/pr/1", ("me/an_i-mals.x", "refs/pr/1")),
    ],
)
def test_addresses(address: str, expected: tuple[str, str | None]) -> None:
    assert hub.parsed(address) == expected


@pytest.mark.parametrize("address", ["hf://me", "hf://me/", "hf://a/b/c", "hf://../x", "hf://me/..@x", "hf://me/a b"])
def test_no_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        hub.parsed(address)


class StandIn(ThreadingHTTPServer):
    """The file layout of the hub over a folder: what its library asks for when it takes a snapshot."""

    folder: Path

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


class Answers(BaseHTTPRequestHandler):
    server: StandIn

    def log_message(self, *_: object) -> None: ...

    def _send(self, body: bytes, headers: dict[str, str] | None = None, code: int = 200) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        files = self.server.files()
        about = [
            {"type": "file", "path": n, "size": len(b), "oid": hashlib.sha1(b).hexdigest()} for n, b in files.items()
        ]
        if re.match(r"/api/models/me/animals/tree/", self.path):
            self._send(json.dumps(about).encode(), {"Content-Type": "application/json"})
        elif re.match(r"/api/models/me/animals", self.path):
            siblings = [{"rfilename": name} for name in files]
            body = {"id": "me/animals", "modelId": "me/animals", "sha": COMMIT, "siblings": siblings, "tags": []}
            self._send(json.dumps(body).encode(), {"Content-Type": "application/json"})
        elif (found := re.match(r"/me/animals/resolve/[^/]+/(.+)", self.path)) and found[1] in files:
            body_of = files[found[1]]
            self._send(body_of, {"ETag": f'"{hashlib.sha1(body_of).hexdigest()}"'})
        else:
            self._send(b"{}", {"X-Error-Code": "RepoNotFound"}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the hub shows as hf://me/animals."""
    import huggingface_hub.constants as constants

    server = StandIn(("127.0.0.1", 0), Answers)
    server.folder = tmp_path / "remote"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield server.folder
    server.shutdown()
    server.server_close()


def test_a_model_of_the_hub_is_fetched_checked_and_opened(
    stand_in: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny_run / "bundle", stand_in / "bundle")
    (stand_in / "README.md").write_text(hub.card(Predictor.open(tiny_run).bundle, "hf://me/animals"))
    model = Predictor.open("hf://me/animals")
    assert model.predict("an owl", k=1) == Predictor.open(tiny_run).predict("an owl", k=1)
    assert model.bundle.folder.is_relative_to(hub.cache_folder())
    assert not any(path.is_symlink() for path in model.bundle.folder.rglob("*"))
    assert main(["predict", "hf://me/animals", "an owl", "-k", "1"]) == 0
    assert "id-owl" in capsys.readouterr().out


def test_an_altered_model_of_the_hub_is_refused(stand_in: Path, tiny_run: Path) -> None:
    shutil.copytree(tiny_run / "bundle", stand_in / "bundle")
    config = stand_in / "bundle" / "config.toml"
    config.write_bytes(config.read_bytes()[::-1])
    with pytest.raises(BundleError, match="SHA-256"):
        Predictor.open("hf://me/animals")


def test_another_version_of_a_model_is_fetched_whole(
    stand_in: Path, tiny_run: Path, direct_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that it has no more do not stay beside it."""
    shutil.copytree(direct_run / "bundle", stand_in / "bundle")
    assert Predictor.open("hf://me/animals").recipe == "direct"
    shutil.rmtree(stand_in / "bundle")
    shutil.copytree(tiny_run / "bundle", stand_in / "bundle")
    monkeypatch.setitem(globals(), "COMMIT", "f" * 40)
    assert Predictor.open("hf://me/animals").recipe == "tiny"


def test_errors_without_a_text() -> None:
    assert hub._said(TimeoutError()) == "TimeoutError: "
    assert hub._said(ValueError("a\nb")) == "ValueError: a"


def test_a_full_disk_is_not_said_to_be_a_broken_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "snapshot_download", full)
    with pytest.raises(RunError, match=f"{tmp_path}.*no space left on the disk"):
        hub.fetch("hf://me/animals")


def test_what_is_not_there_is_a_users_error(stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "hf://me/plants", "an owl"]) == 2
    shown = capsys.readouterr().err
    assert "hf://me/plants: cannot be fetched" in shown
    assert "Traceback" not in shown


def test_pushing_sends_bundle_and_card(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    sent: dict[str, object] = {}

    class Api:
        def __init__(self, **_: object) -> None: ...

        def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> str:
            sent["private"] = private
            return f"https://hub/{repository}"

        def upload_folder(
            self, *, repo_id: str, folder_path: Path, path_in_repo: str, revision: str | None, delete_patterns: str
        ) -> None:
            assert delete_patterns == "*", "files of a model that was pushed before do not stay"
            sent[path_in_repo] = sorted(path.name for path in folder_path.iterdir())

        def upload_file(self, *, repo_id: str, path_or_fileobj: Path, path_in_repo: str, revision: str | None) -> None:
            sent[path_in_repo] = path_or_fileobj.read_text()

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert main(["push", str(tiny_run), "hf://me/animals"]) == 0
    assert capsys.readouterr().out == "pushed to https://hub/me/animals\n"
    assert sent["private"] is True
    assert "manifest.json" in str(sent["bundle"])
    assert 'Predictor.open("hf://me/animals")' in str(sent["README.md"])
    # A model whose labels were changed is sent with the changes inside.
    shutil.copytree(tiny_run / "bundle", tmp_path / "changed")
    labels.retire(tmp_path / "changed", [Predictor.open(tiny_run).labels[0]])
    assert main(["push", str(tmp_path / "changed"), "hf://me/animals"]) == 0
    assert "manifest.json" in str(sent["bundle"])


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="huggingface_hub"):
        hub.fetch("hf://me/animals")


def test_the_card_says_what_the_model_is(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Predictor.open(tiny_run)
    assert main(["card", str(tiny_run)]) == 0
    shown = capsys.readouterr().out
    assert shown == hub.card(model.bundle)
    assert shown.startswith("---\nlibrary_name: longtail\n")
    assert f"| labels | {len(model.bundle.labels):,} |" in shown
    assert "| recipe | tiny |" in shown
    assert str(model.bundle.manifest["data"]["digest"])[:16] in shown
    assert "Nothing was measured" in shown
    assert "[classify]" in shown
    assert main(["card", str(tiny_run), "--out", str(tmp_path / "CARD.md")]) == 0
    assert (tmp_path / "CARD.md").read_text() == shown


def test_a_card_of_forged_numbers(tiny_run: Path) -> None:
    bundle = Predictor.open(tiny_run).bundle
    for metrics in ({"a": 1}, {"scores": 1}, {"scores": {"P@1": "x"}, "propensity": {}, "documents": "n"}):
        with pytest.raises(BundleError, match="'metrics' are not what is measured"):
            hub.card(replace(bundle, manifest={**bundle.manifest, "metrics": metrics}))


def test_the_card_shows_what_was_measured() -> None:
    shown = "\n".join(hub._measured({"scores": {"P@1": 41.234}, "documents": 200, "propensity": {"A": 0.55, "B": 1.5}}))
    assert "On 200 documents" in shown
    assert "A=0.55, B=1.5" in shown
    assert "| P@1 | 41.23 |" in shown
