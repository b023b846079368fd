"""The report as a file: what is in it, what is left out, what it refuses."""

from __future__ import annotations

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail.cli import main
from longtail.data.dataset import Dataset
from longtail.errors import BundleError, ConfigError, MissingExtra
from longtail.evaluation import evaluate
from longtail.model_report.document import write_report
from longtail.model_report.findings import sampled
from longtail.model_report.markup import Markup
from longtail.model_report.sections import sections
from longtail.predictor import Predictor

SECTIONS = [key for key, _, _ in sections(texts=True)]
# Elements without an end.
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """The text of each section, and whether elements end in the order in which they began."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.section = ""
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "section":
            self.section = str(given["id"])
        assert not [name for name in given if name.startswith("on")]
        for name in ("src", "href"):
            assert str(given.get(name, "#")).startswith(("#", "data:,")), given
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self.section = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts[self.section] = self.texts.get(self.section, "") + data


def made(run: Path, data: Dataset, folder: Path, **options: object) -> tuple[Page, str]:
    path = write_report(run, data, folder / "report.html", resamples=30, **options)  # type: ignore[arg-type]
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    assert "url(http" not in text
    return page, text


@pytest.fixture(scope="module")
def tiny_report(tiny_run: Path, planted: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    return made(tiny_run, planted, tmp_path_factory.mktemp("report"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn: that is most of the time, and plots have tests of their own."""
    monkeypatch.setattr("longtail.model_report.plots.svg", lambda *_: Markup("<svg></svg>"))


def test_numbers_are_those_of_evaluate(tiny_report: tuple[Page, str], tiny_run: Path, planted: Dataset) -> None:
    page, _ = tiny_report
    scores = evaluate(tiny_run, planted)
    said = re.search(r"PSP.*?scored\)([\d.]+) ", page.texts["metrics"], flags=re.S)
    assert said is not None
    assert float(said[1]) == pytest.approx(scores["PSP@1"], abs=0.051)
    assert f"{scores['P@1']:.1f}%" in page.texts[""]
    assert "all 30 test documents" in page.texts["metrics"]
    for k in (1, 3, 5):
        assert f"@{k}" in page.texts["metrics"]


def test_every_section_says_something(tiny_report: tuple[Page, str]) -> None:
    page, text = tiny_report
    assert "tiny" in page.texts["model"]
    assert "pairs of a document and a label" in page.texts["data"]
    assert "100+" in page.texts["frequency"]
    assert "Can scores be read as probabilities?" in page.texts["curves"]
    assert "0_prepare" in page.texts["training"]
    assert "logs no losses" in page.texts["training"]
    assert "featurizer" in page.texts["size"]
    assert "tiny has no plots of its own" in page.texts["inside"]
    assert "Never found" in page.texts["weak"]
    assert "cat" in page.texts["examples"]
    assert "Given, and probably wrong" in page.texts["suspects"]
    assert text.count("<svg") >= 9
    assert len(text) < 500_000


@pytest.mark.usefixtures("quick")
def test_no_texts_leaves_texts_out(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    page, text = made(tiny_run, planted, tmp_path, texts=False)
    assert "noise" not in text
    assert re.search(r"test-\d+", page.texts["examples"])
    assert re.search(r"test-\d+", page.texts["suspects"])
    assert "id-cat" in text or "the cat" in text


HOSTILE = "</script></td><script>alert('x')</script><img src=x onerror=alert(1)> & \"quotes\" $x_1$ \u202e"


def test_label_names_and_documents_are_text_and_never_markup(tmp_path: Path) -> None:
    texts = [f"{HOSTILE} {word}" for word in ("red", "green", "blue") for _ in range(6)]
    labels = [[f"{word}<b>"] for word in ("red", "green", "blue") for _ in range(6)]
    names = {f"{word}<b>": f"{word} {HOSTILE}" for word in ("red", "green", "blue")}
    data = Dataset.from_texts(texts, labels, names, test_texts=texts, test_labels=labels[::-1], name=HOSTILE)
    longtail.train(data, tmp_path / "run", "tiny")
    page, _ = made(tmp_path / "run", data, tmp_path)
    assert not {"script", "img", "b"} & page.tags
    assert "onerror=alert(1)>" in page.texts["weak"] + page.texts["suspects"] + page.texts["examples"]


@pytest.mark.usefixtures("quick")
def test_a_bundle_alone_says_what_it_cannot_tell(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    shutil.copytree(tiny_run / "bundle", tmp_path / "alone")
    page, _ = made(tmp_path / "alone", planted, tmp_path)
    assert "bundle alone" in page.texts["training"]
    assert "training" not in page.texts[""].split("looked at here")[1].split("What the model is")[0]


def test_a_second_model_stands_beside_it(tiny_run: Path, direct_run: Path, planted: Dataset, tmp_path: Path) -> None:
    page, _ = made(direct_run, planted, tmp_path, against=tiny_run)
    assert "Beside tiny" in page.texts["metrics"]
    a, b = evaluate(direct_run, planted), evaluate(tiny_run, planted)
    assert f"{a['P@1'] - b['P@1']:+.2f}" in page.texts["metrics"]
    assert "Loss: training" in page.texts["training"]
    assert page.texts["curves"].count("as sure as right") >= 2


@pytest.mark.usefixtures("quick")
def test_a_card_has_the_numbers_of_the_report(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    made(tiny_run, planted, tmp_path, card_file=tmp_path / "CARD.md")
    card = (tmp_path / "CARD.md").read_text()
    assert f"| P@1 | {evaluate(tiny_run, planted)['P@1']:.2f} (" in card
    assert "On 30 test documents of planted" in card
    assert card.startswith("---\n")


@pytest.mark.usefixtures("quick")
def test_documents_that_training_held_out_are_asked_for(planted: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    data = replace(planted, test=None)
    longtail.train(data, tmp_path / "run", "tiny", holdout=0.3)
    page, _ = made(tmp_path / "run", data, tmp_path)
    assert "documents that training held out" in page.texts["metrics"]
    assert "It flatters" not in page.texts["curves"]
    longtail.calibrate(tmp_path / "run", data)
    page, _ = made(tmp_path / "run", data, tmp_path)
    assert "It flatters: these are the documents that probabilities were learnt from" in page.texts["curves"]


def test_without_documents_there_is_no_report(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(BundleError, match="trained on all documents"):
        write_report(tiny_run, replace(planted, test=None), tmp_path / "report.html")
    with pytest.raises(ConfigError, match="resamples 0: out of bounds"):
        write_report(tiny_run, planted, tmp_path / "report.html", resamples=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_a_sample_is_drawn_by_seed_and_said(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    page, _ = made(tiny_run, planted, tmp_path, documents=12)
    assert "a sample of 12 of the 30 test documents" in page.texts["metrics"]
    first, again, other = (sampled(planted, 12, seed).need_test().documents.uids for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert sampled(planted, 0, 0) is planted
    assert sampled(planted, 30, 0) is planted


@pytest.mark.usefixtures("quick")
def test_the_hierarchy_of_a_vocabulary_is_measured(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    from scipy.sparse import csr_array

    from longtail.data.dataset import Graph

    above = np.zeros((12, 12), np.float32)
    above[1:, 0] = 1
    data = replace(planted, graphs={"broader": Graph("broader", label_label=csr_array(above))})
    page, _ = made(tiny_run, data, tmp_path, against=tiny_run)
    assert "hierarchical precision" in page.texts["metrics"]
    assert "hF@5" in page.texts["metrics"]
    assert "No hierarchical metrics" not in page.texts["metrics"]


@pytest.mark.usefixtures("quick", "one_thread")
def test_models_of_given_vectors_have_examples_without_reasons(planted: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    from longtail.data.dataset import Items, Split

    place = np.random.default_rng(0).random((12, 8))

    def vectors(split: Split) -> Split:
        found = (split.targets.toarray() @ place).astype(np.float32)
        return replace(split, documents=Items(split.documents.uids, {}, found))

    data = replace(
        planted, labels=Items(planted.labels.uids), train=vectors(planted.train), test=vectors(planted.need_test())
    )
    settings = {"train": {"epochs": 1}, "encoder": {"width": 8}}
    longtail.train(data, tmp_path / "run", "direct", settings=settings, device="cpu")
    page, _ = made(tmp_path / "run", data, tmp_path)
    assert "knows no words" in page.texts["examples"]


# ---- the command ----


@pytest.mark.usefixtures("quick")
def test_the_command_writes_and_says_so(
    tiny_run: Path, planted_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.html"
    line = ["report", str(tiny_run), str(planted_folder), "--output", str(output), "--card", str(tmp_path / "c.md")]
    assert main([*line, "--resamples", "20"]) == 0
    said = capsys.readouterr()
    assert f"wrote {output}: {output.stat().st_size:,} bytes" in said.out
    assert "report: suspected errors" in said.err
    assert (tmp_path / "c.md").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.md", "report.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "no/such/folder/report.html"], "not a file in a folder that exists"),
        (["--output", "."], "not a file in a folder that exists"),
        (["--output", "r.html", "--resamples", "0"], "'--resamples': 0 is not in the range"),
        (["--output", "r.html", "--documents", "-1"], "documents -1"),
        (["--output", "r.html", "--card", "no/card.md"], "not a file in a folder that exists"),
        (["--output", "r.html", "--against", "nowhere"], "no such run or bundle"),
        ([], "Missing option '--output'"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_bad_requests_end_with_a_hint_and_leave_nothing(
    words: list[str],
    message: str,
    tiny_run: Path,
    planted_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(tiny_run), str(planted_folder), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "hint:" in said
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named_where_it_is_missing(
    tiny_run: Path, planted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="matplotlib") as problem:
        write_report(tiny_run, planted, tmp_path / "report.html")
    assert "longtail[report]" in str(problem.value.hint)


def test_a_file_that_is_there_stays_where_the_report_fails(
    tiny_run: Path, planted: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "report.html"
    output.write_text("before")
    with pytest.raises(ConfigError):
        write_report(tiny_run, planted, output, resamples=0)
    monkeypatch.setattr("longtail.model_report.document.page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tiny_run, planted, output, resamples=5)
    assert output.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert Predictor.open(tiny_run).recipe == "tiny"
