"""What people say of answers becomes lines that training reads."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve.servers import Server, start

import longtail
from longtail.data.columns import Columns
from longtail.errors import ConfigError
from longtail.serve.corrections import Corrections, as_row, check_file
from longtail.serve.limits import Limits
from longtail.serve.problems import Problem

TEXT = "an owl and a pig"
ODD = '\u05e9\u05dc\u05d5\u05dd\n\u2028"owl" \U0001f989'


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "corrections.jsonl"


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, file: Path) -> Iterator[Server]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("a secret of 16 or more")
    running = start(
        tmp_path_factory.mktemp("serve"),
        f"tiny={tiny_run}",
        "--corrections",
        file,
        "--token-file",
        token,
        "--workers",
        "2",
    )
    running.session.headers["Authorization"] = "Bearer a secret of 16 or more"
    yield running
    assert running.stop() == 0


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def correct(server: Server, **body: Any) -> Any:
    return server.post("/api/v1/models/tiny/corrections", body)


def test_a_correction_is_a_line_that_training_reads(keeping: Server, file: Path) -> None:
    before = len(lines(file))
    answer = keeping.predict("tiny", [TEXT]).json()
    assert keeping.get("/api/v1/models/tiny").json()["abilities"]["corrections"]
    sent = correct(
        keeping, text=TEXT, right=["id-owl"], wrong=["id-cat"], missing=["id-pig"], version=answer["version"]
    )
    assert (sent.status_code, sent.json()) == (200, {"kept": True})
    assert correct(keeping, text=ODD, missing=["id-owl"]).status_code == 200
    first, second = lines(file)[before:]
    assert (first["title"], first["labels"], first["not_labels"]) == (TEXT, ["id-owl", "id-pig"], ["id-cat"])
    assert (first["model"], first["version"]) == ("tiny", answer["version"])
    assert first["time"].endswith("Z")
    assert first["uid"] != second["uid"]
    assert second["title"] == ODD
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # All of it is read again as data, and nothing in it is taken for something else.
    data = longtail.read(file)
    assert data.train.documents.uids[before] == first["uid"]
    assert sorted(data.labels.uids) == ["id-owl", "id-pig"]
    assert data.columns is not None
    assert data.columns.ignored == ("not_labels", "model", "version", "time")
    # Nothing was learnt.
    assert keeping.predict("tiny", [TEXT]).json() == answer


def test_workers_append_at_once(keeping: Server, file: Path) -> None:
    """On connections of their own, which the two workers share among themselves."""
    import threading

    import requests

    def send(number: int) -> None:
        with requests.Session() as session:
            session.headers.update(keeping.session.headers)
            for turn in range(10):
                body = {"text": f"text {number} {turn} " + "owl " * 3000, "right": ["id-owl"]}
                answer = session.post(f"{keeping.url}/api/v1/models/tiny/corrections", json=body, timeout=30)
                assert answer.status_code == 200

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [row["title"].split(" owl", 1)[0] for row in lines(file)]
    assert {one for one in found if one.startswith("text ")} == {f"text {n} {t}" for n in range(8) for t in range(10)}


def test_what_is_wrong_is_said_and_not_kept(keeping: Server, file: Path) -> None:
    before = file.read_bytes()
    for body, status, said in (
        ({"right": ["id-owl"]}, 400, "expected an object with a text"),
        ({"text": TEXT}, 400, "right, wrong or missing"),
        ({"text": TEXT, "right": [], "wrong": []}, 400, "right, wrong or missing"),
        ({"text": "  ", "right": ["id-owl"]}, 400, "empty"),
        ({"text": 3, "right": ["id-owl"]}, 400, "expected a string"),
        ({"text": TEXT, "right": ["nonsense"]}, 400, "nonsense"),
        ({"text": TEXT, "right": "id-owl"}, 400, "expected a list"),
        ({"text": TEXT, "right": ["id-owl"], "wrong": ["id-owl"]}, 400, "named twice"),
        ({"text": TEXT, "right": ["id-owl"], "file": "/etc/passwd"}, 400, "unknown field"),
        ({"text": TEXT, "right": ["id-owl"], "version": "../../x"}, 400, "version"),
        ({"text": TEXT, "right": ["id-owl"] * 2000}, 413, "at most"),
        ({"text": "owl " * 50_000, "right": ["id-owl"]}, 413, "characters"),
    ):
        answer = correct(keeping, **body)
        assert answer.status_code == status, body
        assert said in answer.json()["detail"], body
    assert keeping.post("/api/v1/models/other/corrections", {"text": TEXT}).status_code == 404
    body = {"text": TEXT, "right": ["id-owl"]}
    stranger = keeping.post("/api/v1/models/tiny/corrections", body, headers={"Authorization": "Bearer wrong"})
    assert stranger.status_code == 401
    assert file.read_bytes() == before


def test_a_server_keeps_none_unless_it_is_asked_to(server: Server) -> None:
    assert server.get("/api/v1/models/tiny").json()["abilities"]["corrections"] is False
    answer = correct(server, text=TEXT, right=["id-owl"])
    assert answer.status_code == 403
    assert "--corrections" in answer.json()["detail"]


# ---- the file


def test_a_file_that_was_cut_or_moved_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    kept = Corrections(str(file), Limits())
    kept.append({"a": 1})
    file.write_text(file.read_text()[:-1])  # an editor took the last line break
    kept.append({"a": 2})
    assert lines(file) == [{"a": 1}, {"a": 2}]
    file.rename(tmp_path / "old.jsonl")
    kept.append({"a": 3})
    assert lines(file) == [{"a": 3}]


def test_a_full_file_takes_no_more(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    kept = Corrections(str(file), replace(Limits(), corrections_bytes=33))
    kept.append({"a": 1})
    kept.append({"b": "x" * 9})
    before = file.read_bytes()
    assert len(before) == 26
    with pytest.raises(Problem, match="at most 33") as raised:
        kept.append({"c": 1})
    assert raised.value.status == 507
    assert file.read_bytes() == before
    kept.path = str(tmp_path / "gone" / "c.jsonl")
    with pytest.raises(Problem, match="No such file"):
        kept.append({"d": 1})


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Corrections(str(tmp_path / "c.jsonl"), Limits())
    kept.append({"a": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:5]))
    with pytest.raises(Problem, match="no space"):
        kept.append({"b": 2})
    assert lines(tmp_path / "c.jsonl") == [{"a": 1}]


def test_what_is_not_on_the_disk_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Problem, match="Input/output error"):
        Corrections(str(tmp_path / "c.jsonl"), Limits()).append({"a": 1})


def append_many(path: str, first: int) -> None:
    kept = Corrections(path, Limits())
    for number in range(first, first + 200):
        kept.append({"number": number, "text": "x" * 20_000})


def test_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    file = tmp_path / "c.jsonl"
    writers = [context.Process(target=append_many, args=(str(file), 1000 * n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(row["number"] for row in lines(file)) == [1000 * n + m for n in range(2) for m in range(200)]


def test_more_than_people_can_click_is_refused() -> None:
    kept = Corrections("nowhere.jsonl", replace(Limits(), corrections_per_minute=2))
    kept.check_rate()
    kept.check_rate()
    with pytest.raises(Problem, match="too many") as raised:
        kept.check_rate()
    assert raised.value.status == 503
    assert 1 <= int(raised.value.headers["Retry-After"]) <= 61
    kept._lately[0] -= 61
    kept.check_rate()


@pytest.mark.parametrize(
    ("name", "said"), [("c.csv", ".jsonl"), ("gone/c.jsonl", "cannot be written"), ("", "expected")]
)
def test_a_file_that_cannot_be_kept_is_told_at_the_start(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_file(tmp_path / name)


# ---- the rows


def test_rows_have_the_columns_of_the_training_table(tmp_path: Path) -> None:
    columns = Columns(("product_name", "description"), (1.0, 1.0), "keywords", "sku", "|")
    more: dict[str, Any] = {"fields": ("product_name", "description"), "model": "m", "version": "v"}
    row = as_row("red shoe", ["shoes"], ["cups"], columns=columns, **more)
    assert (row["product_name"], row["description"], row["keywords"]) == ("red shoe", "", ["shoes"])
    assert row["sku"].startswith("correction-")
    file = tmp_path / "c.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(as_row("cup", ["a|b"], [], columns=columns, **more)) + "\n")
    data = longtail.read(file, columns=columns)
    assert data.train.documents.uids[0] == row["sku"]
    assert data.train.documents.fields["product_name"][:1] == ["red shoe"]
    clash = as_row("x", ["shoes"], [], columns=Columns(("time",), (1.0,), "model"), **{**more, "fields": ("time",)})
    assert (clash["time"], clash["model"]) == ("x", ["shoes"])
