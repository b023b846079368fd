"""What newcomers tried, and what was silently wrong or a traceback then."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import longtail
from longtail.cli import main
from longtail.config import resolve
from longtail.data.read import read
from longtail.errors import ConfigError, DataError, LongtailError
from longtail.recipes import make_recipe

TRAIN = ["--recipe", "tiny", "-q"]


def shop(path: Path, rows: int = 60) -> Path:
    """Names repeat, as those of products do; descriptions are the same for a brand."""
    names = ["red lamp", "blue lamp", "oak chair", "pine chair", "tea cup", "wool rug"]
    lines = [
        f"S{n},{names[n % 6]} {n % 25},{n}.5,brand {n % 3},made by brand {n % 3} with care,tag{n % 6}"
        for n in range(rows)
    ]
    path.write_text("sku,product_name,price,brand,description,keywords\n" + "".join(f"{line}\n" for line in lines))
    return path


def errors(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


def test_names_that_repeat_are_still_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = shop(tmp_path / "shop.csv")
    assert "could be the text: 'product_name'" in errors(capsys, "data", "check", str(table))
    assert main(["data", "check", str(table), "--text", "product_name"]) == 0
    assert "'description'" in capsys.readouterr().out


def test_another_id_than_that_of_training_is_a_contradiction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run = shop(tmp_path / "shop.csv"), str(tmp_path / "run")
    assert main(["train", str(table), "--text", "product_name", "--id", "sku", "--out", run, *TRAIN]) == 0
    capsys.readouterr()
    shown = errors(capsys, "predict", run, "--input", str(table), "--id", "brand")
    assert "brand" in shown
    assert "sku" in shown
    assert main(["predict", run, "--input", str(table), "--id", "", "--format", "jsonl"]) == 0


def test_a_table_on_standard_input_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, run = shop(tmp_path / "shop.csv"), str(tmp_path / "run")
    assert main(["train", str(table), "--text", "product_name", "--out", run, *TRAIN]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    assert "a table, read as lines of text" in errors(capsys, "predict", run, "--input", "-")


def test_what_json_lines_are_read_as_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run = shop(tmp_path / "shop.csv"), str(tmp_path / "run")
    assert main(["train", str(table), "--text", "product_name", "--id", "sku", "--out", run, *TRAIN]) == 0
    (tmp_path / "d.jsonl").write_text('{"sku": "A", "product_name": "red lamp", "price": 3}\n')
    capsys.readouterr()
    assert main(["predict", run, "--input", str(tmp_path / "d.jsonl")]) == 0
    assert "text: product_name; id: sku; ignored: price\n" in capsys.readouterr().err


def test_input_and_output_may_not_be_one_file(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"title": "an owl"}\n')
    assert "both --input and --output" in errors(
        capsys, "predict", str(tiny_run), "--input", str(texts), "--output", str(texts)
    )
    assert texts.read_text() == '{"title": "an owl"}\n'


def test_labels_of_fasttext_lines_are_no_text(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.txt").write_text("__label__id-cat an owl\nan owl\n")
    assert main(["predict", str(tiny_run), "--input", str(tmp_path / "t.txt"), "--format", "jsonl", "-k", "2"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["scores"] == second["scores"]


def test_labels_beside_a_frame_must_have_its_index() -> None:
    frame = pd.DataFrame({"title": ["an owl", "a cat"] * 5, "tags": ["owl", "cat"] * 5})
    with pytest.raises(ConfigError, match="another index"):
        read(frame[["title"]], text="title", labels=frame["tags"].sort_index(ascending=False))
    assert len(read(frame[["title"]], text="title", labels=frame["tags"]).train) == 10


def test_calls_that_were_tracebacks(tiny_run: Path) -> None:
    frame = pd.DataFrame({"title": ["an owl", "a cat"] * 5, "tags": ["owl", "cat"] * 5})
    with pytest.raises(ConfigError, match="name of a column"):
        longtail.train(frame, text=frame["title"], labels="tags", recipe="tiny")
    model = longtail.Predictor.open(tiny_run)
    with pytest.raises(ConfigError, match="whole number"):
        model.predict(["an owl"], k=2.0)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="DataFrame"):
        longtail.evaluate(model, frame)


def test_one_column_is_not_text_and_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = shop(tmp_path / "shop.csv")
    line = ["data", "check", str(table), "--text", "product_name", "--labels", "product_name"]
    assert "both text and labels" in errors(capsys, *line)
    with pytest.raises(LongtailError) as caught:
        longtail.train(pd.DataFrame({"x": ["a text"]}), text="x", labels="x", recipe="tiny")
    assert caught.value.hint == "name another one: text='COLUMN' or labels='COLUMN'"


def test_a_column_of_addresses_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"red lamp {n},https://shop.example/some-lamp/{n},tag{n % 3}\n" for n in range(30))
    (tmp_path / "links.csv").write_text("title,link,tags\n" + rows)
    assert main(["data", "check", str(tmp_path / "links.csv")]) == 0
    shown = capsys.readouterr().out
    assert "text: title; " in shown
    assert "warning: the column 'link'" not in shown


def test_an_empty_group_column_groups_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"red lamp {n},,tag{n % 3}\n" for n in range(30))
    (tmp_path / "t.csv").write_text("title,shop,tags\n" + rows)
    line = [
        "train",
        str(tmp_path / "t.csv"),
        "--holdout",
        "0.2",
        "--group",
        "shop",
        "--out",
        str(tmp_path / "r"),
        *TRAIN,
    ]
    assert "'shop' is empty" in errors(capsys, *line)


def test_long_cells_are_read(tmp_path: Path) -> None:
    rows = "".join(f'"{"word " * 40_000}{n}",tag{n % 2}\n' for n in range(2))
    (tmp_path / "t.csv").write_text("title,tags\n" + rows)
    assert len(read(tmp_path / "t.csv").train) == 2


def test_changed_data_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run = shop(tmp_path / "shop.csv"), str(tmp_path / "run")
    line = ["train", str(table), "--text", "product_name", "--out", run, *TRAIN]
    assert main(line) == 0
    shop(table, 66)
    assert "begun with other data" in errors(capsys, *line)


def test_a_run_with_held_out_documents_is_measured_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run = shop(tmp_path / "shop.csv"), str(tmp_path / "run")
    line = ["train", str(table), "--text", "product_name", "--holdout", "0.2", "--out", run, *TRAIN]
    assert main(line) == 0
    assert main(["evaluate", run, str(table)]) == 0
    shown = capsys.readouterr()
    assert "12 test documents" in shown.out
    assert "note: measured on documents held out of training; the threshold of F1 was chosen on them\n" in shown.err


def test_a_run_remembers_that_it_had_a_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "voc.tsv").write_text("<http://x/1>\tbees\n<http://x/2>\troses\n<http://x/3>\thives\n")
    (tmp_path / "train.tsv").write_text("keeping bees\t<http://x/1>\npruning roses\t<http://x/2>\n")
    (tmp_path / "test.tsv").write_text("old hives\t<http://x/3>\nold bees\t<http://x/1>\n")
    line = ["train", str(tmp_path / "train.tsv"), "--vocabulary", str(tmp_path / "voc.tsv"), *TRAIN]
    assert main([*line, "--out", str(tmp_path / "run")]) == 0
    measure = ["evaluate", str(tmp_path / "run"), str(tmp_path / "train.tsv"), "--test", str(tmp_path / "test.tsv")]
    assert main(measure) == 0
    assert "warning: the model was trained with the vocabulary voc.tsv" in capsys.readouterr().err
    assert main([*measure, "--vocabulary", str(tmp_path / "voc.tsv")]) == 0
    assert "warning: the model" not in capsys.readouterr().err


def test_settings_with_dots() -> None:
    config = make_recipe("tiny", settings={"classify.neighbours": 3, "features": {"pairs": False}}).config
    assert (config.classify.neighbours, config.features.pairs) == (3, False)
    both = resolve(config, {"classify": {"power": 2.0}, "classify.neighbours": 7}, "here")
    assert (both.classify.power, both.classify.neighbours) == (2.0, 7)


def test_presets_of_no_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bogus" in errors(capsys, "config", "bogus", "--presets")


def test_a_document_without_a_known_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError)):
        read(pd.DataFrame({"title": [], "tags": []}), text="title", labels="tags")


def test_a_table_that_was_converted_can_be_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No field of the folder is called title."""
    table = shop(tmp_path / "shop.csv")
    assert main(["data", "convert", str(table), str(tmp_path / "lf"), "--text", "product_name", "-q"]) == 0
    assert main(["train", str(tmp_path / "lf"), *TRAIN, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "oak chair", "-k", "1"]) == 0
    assert "tag2" in capsys.readouterr().out


def test_fields_that_are_not_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of folders the title alone is read; who has more is told so."""
    texts = [{"title": f"owl {n}", "content": f"a bird {n}", "empty": ""} for n in range(4)]
    longtail.data.read.write(longtail.Dataset.from_texts(texts, [["x"], ["y"]] * 2), tmp_path / "lf", "lf")
    line = ["train", str(tmp_path / "lf"), "--recipe", "tiny", "--out"]
    assert main([*line, str(tmp_path / "a")]) == 0
    said = capsys.readouterr().err
    assert "note: title is read, not content; --set features.fields=title,content reads all" in said
    assert main([*line, str(tmp_path / "b"), "--set", "features.fields=title"]) == 0
    assert "is read, not" not in capsys.readouterr().err


def test_the_group_is_not_said_to_be_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["train", str(shop(tmp_path / "shop.csv")), "--text", "product_name", "--recipe", "tiny", "--holdout", "0.3"]
    assert main([*line, "--group", "Sku", "--out", str(tmp_path / "run")]) == 0
    assert "; group: sku; ignored: price, brand, description\n" in capsys.readouterr().err


def test_what_f1_belongs_to_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The threshold; and documents that no answer could be right for."""
    table, test = shop(tmp_path / "shop.csv"), tmp_path / "test.csv"
    test.write_text("product_name,keywords\nred lamp,tag0\nblue lamp,never seen\n")
    assert main(["train", str(table), "--text", "product_name", *TRAIN, "--out", str(tmp_path / "run")]) == 0
    measure = ["evaluate", str(tmp_path / "run"), str(table), "--test", str(test)]
    capsys.readouterr()
    assert main(measure) == 0
    shown = capsys.readouterr()
    assert "note: 1 of 2 test documents have no label that is known here; they count as misses" in shown.err
    assert "MicroF1" not in shown.out
    assert main([*measure, "--threshold", "0.25"]) == 0
    assert "; MicroF1 and MacroF1 of labels that score at least 0.25\n" in capsys.readouterr().out


def test_json_lines_show_what_a_field_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shop(tmp_path / "shop.csv")
    out = str(tmp_path / "run")
    assert main(["train", str(table), "--text", "product_name:2,description", *TRAIN, "--out", out]) == 0
    lines = b'{"product_name": "oak chair", "description": "good"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    capsys.readouterr()
    assert main(["predict", out]) == 0
    assert "text: product_name:2, description; id: none" in capsys.readouterr().err
