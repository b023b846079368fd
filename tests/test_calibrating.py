"""Making a model give probabilities: maps against oracles, documents it has seen, bundles that change in one step."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import planted_dataset

import longtail
from longtail import calibrating
from longtail.bundle import find_bundle
from longtail.calibrating import (
    Groups,
    Judged,
    cross_fitted,
    fitted,
    isotonic,
    precision_thresholds,
    temperature,
    unseen,
)
from longtail.cli import main
from longtail.data.dataset import Dataset, Items
from longtail.data.from_texts import with_digest
from longtail.data.read import write
from longtail.errors import BundleError, ConfigError, DataError
from longtail.evaluation import Yardstick, evaluate
from longtail.metrics import binned
from longtail.models.calibration import STEPS
from longtail.persistence import read_json
from longtail.predictor import Predictor
from longtail.training.progress import PlainDisplay, SilentDisplay
from longtail.types import TopK

QUERIES = ["owl pig", "the frog noise3", "cat dog bee ant", "zzz", "noise7 noise9"]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return planted_dataset(400, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    where = tmp_path_factory.mktemp("data") / "planted"
    write(data, where, "lf")
    return where


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "tiny"
    longtail.train(folder, run, "tiny", holdout=0.3)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to be calibrated."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


# ---- maps ----


def planted_scores(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Scores whose true probability is their square."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    return scores, (rng.random(n) < scores**2).astype(np.float64)


def test_an_isotonic_map_finds_the_true_probabilities() -> None:
    found = isotonic(*planted_scores(20_000))
    asked = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(found(asked), asked**2, atol=0.04)


def test_an_isotonic_map_is_that_of_scikit_learn() -> None:
    """Steps of theirs, drawn through their middles here: the mean probability of each of our blocks is the same."""
    sklearn = pytest.importorskip("sklearn.isotonic")
    scores, right = planted_scores(5_000)
    theirs = sklearn.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, right)
    order = np.argsort(scores)
    gap = isotonic(scores, right)(scores) - theirs.predict(scores)
    assert np.abs(np.add.reduceat(gap[order], np.arange(0, 5_000, 500)) / 500).max() < 0.02


def test_few_labels_make_no_step_of_their_own() -> None:
    """Three labels that are right by chance are not certain."""
    scores, right = np.append(np.linspace(0, 0.5, 997), [0.9, 0.95, 0.99]), np.append(np.zeros(997), [1, 1, 1])
    assert isotonic(scores, right)(np.array([0.99]))[0] < 0.1


def test_a_temperature_is_found() -> None:
    """Log-odds that were doubled and shifted are brought back."""
    rng = np.random.default_rng(1)
    true = rng.normal(-1, 1.5, 50_000)
    right = (rng.random(50_000) < 1 / (1 + np.exp(-true))).astype(np.float64)
    said = 1 / (1 + np.exp(-(2 * true + 1)))
    found = temperature(said, right)
    asked = 1 / (1 + np.exp(-(2 * np.linspace(-3, 2, 11) + 1)))
    np.testing.assert_allclose(found(asked), 1 / (1 + np.exp(-np.linspace(-3, 2, 11))), atol=0.02)


def test_scores_beyond_one_have_a_temperature_too() -> None:
    scores = np.random.default_rng(2).normal(3, 4, 5_000)
    right = (scores > 5).astype(np.float64)
    found = temperature(scores, right)
    assert found(np.array([12.0]))[0] > 0.95
    assert found(np.array([-5.0]))[0] < 0.05
    assert temperature(np.full(50, 7.0), np.append(np.ones(20), np.zeros(30)))(np.array([7.0]))[0] == pytest.approx(
        0.4, abs=0.01
    )


# ---- fitting ----


def judged_lists(n: int, seed: int = 0) -> Judged:
    """Lists of 6 places. A label is right with its score squared, half as often if it is rare, or not at place 1."""
    rng = np.random.default_rng(seed)
    counts = np.array([1] * 20 + [200] * 20)
    ids = np.stack([rng.permutation(40)[:6] for _ in range(n)]).astype(np.int32)
    scores = -np.sort(-rng.random((n, 6))).astype(np.float32)
    chance = scores**2 * np.where(counts[ids] == 1, 0.5, 1) * np.where(np.arange(6) == 0, 1.0, 0.5)
    counted = np.ones((n, 6), dtype=np.bool_)
    counted[:, 5] = rng.random(n) < 0.5
    return Judged(TopK(ids, scores), (rng.random((n, 6)) < chance).astype(np.float64), counted, counts)


def error(said: TopK, judged: Judged) -> float:
    return binned(said.scores[judged.counted], judged.worth[judged.counted]).error()


def test_groups_need_enough_right_labels() -> None:
    many, few = judged_lists(4_000), judged_lists(100)
    assert calibrating.place_groups(many) == (0, 1, 2)  # too few labels of the sixth place are right
    assert calibrating.label_groups(many, (0, 1, 2)) == (0, 2)  # 0 and 1 document together, then all others
    assert calibrating.label_groups(many, (0,))[0] == 0
    assert calibrating.place_groups(few) == calibrating.label_groups(few, (0,)) == (0,)


@pytest.mark.parametrize("method", ["isotonic", "temperature"])
@pytest.mark.parametrize("groups", [Groups(), Groups((0, 1)), Groups((0, 1), (0, 2))])
def test_other_documents_are_calibrated_and_their_ranking_stays(method: str, groups: Groups) -> None:
    found, others = fitted(judged_lists(4_000), method, groups), judged_lists(4_000, seed=1)
    said = found.calibrated(others.top, found.label_groups(others.counts))
    assert error(said, others) < error(others.top, others) / 4
    assert (said.ids == others.top.ids).all()
    assert ((np.diff(said.scores) < 0) == (np.diff(others.top.scores) < 0)).all()


def test_groups_tell_rare_labels_and_lower_places_apart() -> None:
    others = judged_lists(8_000, seed=1)
    rare = others.counts[others.top.ids] == 1

    def gap(groups: Groups) -> float:
        """Between what is said of rare labels at the first place, and what is right."""
        found = fitted(judged_lists(8_000), "isotonic", groups)
        said = found.calibrated(others.top, found.label_groups(others.counts)).scores
        return abs(float((said - others.worth)[:, 0][rare[:, 0]].mean()))

    assert gap(Groups()) > 0.08
    assert gap(Groups((0, 1), (0, 2))) < 0.02


def test_cross_fitting_judges_no_document_by_itself() -> None:
    """Truth that follows no score at all: in the sample a map finds something, on others it must not."""
    judged = judged_lists(300)
    noise = replace(judged, worth=(np.random.default_rng(5).random(judged.worth.shape) < 0.3).astype(np.float64))
    said = cross_fitted(noise, "isotonic", Groups())
    own = fitted(noise, "isotonic", Groups()).calibrated(noise.top, np.zeros(40, dtype=np.int64))
    assert calibrating.unlikeliness(said, noise) > calibrating.unlikeliness(own, noise)
    assert not np.array_equal(said.scores, own.scores)


def test_thresholds_of_a_precision_are_counted() -> None:
    """100 labels: the first 50 right, then every other one; a standard error is taken off."""
    right = np.append(np.ones(50), np.tile([1.0, 0.0], 25))
    said = TopK(np.zeros((100, 1), np.int32), np.linspace(0.99, 0.5, 100, dtype=np.float32)[:, None])
    judged = Judged(said, right[:, None], np.ones((100, 1), np.bool_), np.zeros(1, np.int64))
    found = precision_thresholds(said, judged)
    assert found.shape == (STEPS + 1,)
    for asked in (0.97, 0.9, 0.8, 0.5):
        shown = said.scores[:, 0] >= found[round(asked * STEPS)]
        share = right[shown].mean()
        assert share - np.sqrt(share * (1 - share) / shown.sum()) >= asked - 1e-9
        longer = int(shown.sum()) + np.arange(1, 101 - int(shown.sum()))
        worse = np.array([right[:n].mean() for n in longer])
        assert (worse - np.sqrt(worse * (1 - worse) / longer) < asked).all()  # no longer list would do
    assert found[STEPS] == said.scores[50, 0]  # as all of the first 51 are right
    wrong = replace(judged, worth=np.zeros((100, 1)))
    assert np.isinf(precision_thresholds(said, wrong)[1:]).all()


def test_masked_pairs_are_not_judged_but_keep_their_place(data: Dataset, trained: Path) -> None:
    model = Predictor.open(trained)
    everything = Yardstick.of(replace(data, test=replace(data.need_test(), masked=np.zeros((0, 2), np.int64))))
    whole = calibrating.judged_by(model, everything, "none", SilentDisplay())
    first = np.stack([np.arange(60), whole.top.ids[:, 0].astype(np.int64)], axis=1)
    masked = calibrating.judged_by(
        model, Yardstick.of(replace(data, test=replace(data.need_test(), masked=first))), "none", SilentDisplay()
    )
    assert (masked.top.ids == whole.top.ids).all()
    assert not masked.counted[:, 0].any()
    assert (masked.counted[:, 1:] == whole.counted[:, 1:]).all()


def test_missing_labels_make_probabilities_larger(run: Path, data: Dataset) -> None:
    listed = calibrating.calibrate(run, data)
    first = Predictor.open(run).predict(QUERIES, k=3)
    right = calibrating.calibrate(run, data, missing="propensity")
    assert listed["missing"] == "none"
    assert right["missing"] == "propensity"
    assert listed["propensity"] == right["propensity"] == {"A": 0.55, "B": 1.5, "family": "default"}
    assert listed["right"]["with missing ones"] > listed["right"]["listed"]
    second = Predictor.open(run).predict(QUERIES, k=3)
    assert (
        np.mean([b.score > a.score for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)])
        > 0.7
    )


# ---- documents that training has seen ----


def test_held_out_documents_are_calibrated_on(run: Path, data: Dataset) -> None:
    before = evaluate(run, data)
    found = calibrating.calibrate(run, data)
    assert found["documents"] == 120
    assert found["after"]["ECE@5"] < found["before"]["ECE@5"] / 2
    after = evaluate(run, data)
    assert after["ECE@5"] < before["ECE@5"] / 2
    assert after["P@1"] == before["P@1"]
    assert after["threshold"] == found["threshold"] != before["threshold"]
    assert after["MicroF1"] == pytest.approx(before["MicroF1"], abs=5)
    said = io.StringIO()
    evaluate(run, replace(data, test=None), PlainDisplay(said))
    assert (
        "note: measured on documents held out of training; the threshold of F1 and probabilities were"
        in said.getvalue()
    )


def test_a_model_of_all_documents_needs_others(tiny_run: Path, planted: Dataset, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(BundleError, match="trained on all documents"):
        calibrating.calibrate(run, planted)
    assert calibrating.calibrate(run, planted, on_test=True)["from"] == "other documents"


def others_of(data: Dataset, rows: Any, **changed: Any) -> Dataset:
    split = data.train.rows(np.array(rows, dtype=np.int64))
    return replace(data, test=replace(split, documents=replace(split.documents, **changed)))


def test_documents_that_training_has_seen_are_refused(
    run: Path, data: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Predictor.open(run)
    held = set(model.bundle.held_out() or ())
    seen = [row for row, uid in enumerate(data.train.documents.uids) if uid not in held]
    fresh = [row for row, uid in enumerate(data.train.documents.uids) if uid in held]
    with pytest.raises(DataError, match=r"trained on 40 of these 40 documents"):
        calibrating.calibrate(run, others_of(data, seen[:40]), on_test=True)
    # by text, whatever their ids and their upper case
    renamed = [f"new-{n}" for n in range(40)]
    texts = {"title": [data.train.documents.fields["title"][row].upper() for row in seen[:40]]}
    with pytest.raises(DataError, match="trained on 40 of these"):
        calibrating.calibrate(run, others_of(data, seen[:40], uids=renamed, fields=texts), on_test=True)
    # by id, where they were given, whatever their text
    other = {"title": [f"something else {n}" for n in range(40)]}
    with pytest.raises(DataError, match="trained on 40 of these"):
        calibrating.calibrate(run, others_of(data, seen[:40], fields=other), on_test=True)
    # what was held out is not seen; a few that are seen are left out
    left = unseen(model, others_of(data, [*fresh, *seen[:3]]), PlainDisplay())
    assert len(left.need_test()) == len(fresh)
    assert "3 of 123 documents are training documents, and are left out" in capsys.readouterr().err


def test_vectors_that_training_has_seen_are_refused(tmp_path: Path, data: Dataset) -> None:
    def vectors(split: Any, seed: int) -> Any:
        made = split.targets.toarray() + 0.1 * np.random.default_rng(seed).random(split.targets.shape)
        return replace(split, documents=Items(split.documents.uids, vectors=made.astype(np.float32)))

    given = with_digest(replace(data, train=vectors(data.train, 0), test=vectors(data.need_test(), 1)))
    longtail.train(given, tmp_path / "run", "tiny")
    model = Predictor.open(tmp_path / "run")
    assert len(unseen(model, given, SilentDisplay()).need_test()) == 60
    with pytest.raises(DataError, match="trained on 400 of these"):
        unseen(
            model,
            replace(
                given,
                test=replace(given.train, documents=replace(given.train.documents, uids=[f"n{i}" for i in range(400)])),
            ),
            SilentDisplay(),
        )


def test_numbers_of_rows_are_no_ids(tmp_path: Path) -> None:
    """Tables without an id column: documents are called by their row in both files."""
    texts = [f"{animal} noise{n}" for n in range(20) for animal in ("cat", "dog", "owl")]
    for name, which in (("train", texts[:40]), ("more", [f"{text} other" for text in texts])):
        rows = "".join(f"{text},{text.split()[0]}\n" for text in which)
        (tmp_path / f"{name}.csv").write_text("title,labels\n" + rows)
    longtail.train(tmp_path / "train.csv", tmp_path / "run", "tiny")
    found = calibrating.calibrate(tmp_path / "run", tmp_path / "train.csv", on=tmp_path / "more.csv")
    assert found["documents"] == 60
    with pytest.raises(DataError, match="trained on 40 of these 40"):
        calibrating.calibrate(tmp_path / "run", tmp_path / "train.csv", on=tmp_path / "train.csv")


def test_other_data_than_that_of_training_is_refused(run: Path, data: Dataset) -> None:
    with pytest.raises(DataError, match="is not the data that the model was trained on"):
        calibrating.calibrate(run, replace(data, digest="0"), on_test=True)
    with pytest.raises(DataError, match="is not the data that the model was trained on"):
        calibrating.calibrate(run, replace(data, digest="0"))


def test_too_few_documents_are_refused(run: Path, data: Dataset) -> None:
    some = replace(data, test=data.need_test().rows(np.arange(15)))
    with pytest.raises(DataError, match=r"15 documents, .* too few to learn from"):
        calibrating.calibrate(run, some, on_test=True)
    assert "calibration" not in read_json(find_bundle(run) / "manifest.json")


def test_unknown_ways_are_refused(run: Path, data: Dataset) -> None:
    for wrong in ({"method": "magic"}, {"missing": "all"}):
        with pytest.raises(ConfigError, match="expected"):
            calibrating.calibrate(run, data, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_test"):
        calibrating.calibrate(run, data, on="file.csv")


# ---- the bundle ----


def contents(run: Path) -> dict[str, bytes]:
    bundle = find_bundle(run)
    return {path.relative_to(bundle).as_posix(): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}


def test_undoing_gives_the_bundle_of_before_byte_by_byte(run: Path, data: Dataset) -> None:
    before = contents(run)
    calibrating.calibrate(run, data)
    once = contents(run)
    calibrating.calibrate(run, data)
    assert contents(run) == once  # equal calibrations give equal bytes
    assert {name: once[name] for name in before if name != "manifest.json"} == {
        name: before[name] for name in before if name != "manifest.json"
    }
    assert calibrating.undo(run)
    assert contents(run) == before
    assert not calibrating.undo(run)


def test_another_calibration_takes_the_place_of_the_first(run: Path, data: Dataset) -> None:
    calibrating.calibrate(run, data, method="isotonic")
    calibrating.calibrate(run, data, method="temperature")
    about = Predictor.open(run).bundle.manifest["calibration"]
    assert about["method"] == "temperature"
    assert [path.name for path in find_bundle(run).glob("*calibration*")] == [about["part"]]


@pytest.mark.parametrize("moment", ["_digest_of_part", "save_part", "_write_manifest"])
def test_a_kill_in_between_leaves_the_model_as_it_was(
    run: Path, data: Dataset, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Also with what lies about when not even cleaning up was possible."""
    scores = Predictor.open(run).predict(QUERIES)

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"longtail.bundle.{moment}", killed)
        patched.setattr("longtail.bundle.shutil.rmtree", lambda *a, **k: None)
        with pytest.raises(KeyboardInterrupt):
            calibrating.calibrate(run, data)
    (find_bundle(run) / "calibration-0123456789ab").mkdir()
    (find_bundle(run) / "calibration-0123456789ab" / "part.json").write_text("{")
    assert Predictor.open(run).predict(QUERIES) == scores
    calibrating.calibrate(run, data)
    assert Predictor.open(run).calibration is not None


@pytest.mark.parametrize("spoil", ["alter", "delete", "rename", "another kind"])
def test_a_spoilt_calibration_is_refused(run: Path, data: Dataset, spoil: str) -> None:
    calibrating.calibrate(run, data)
    bundle = find_bundle(run)
    part = next(bundle.glob("calibration-*"))
    if spoil == "alter":
        (part / "part.json").write_bytes((part / "part.json").read_bytes().replace(b"2", b"3"))
    elif spoil == "delete":
        shutil.rmtree(part)
    elif spoil == "rename":
        part.rename(bundle / "calibration-000000000000")
    else:
        from longtail.bundle import set_calibration
        from longtail.persistence import StringTable

        set_calibration(run, StringTable.of(["a"]))
    with pytest.raises(BundleError):
        Predictor.open(run)


def test_foreign_files_are_still_refused(run: Path) -> None:
    (find_bundle(run) / "calibrations").mkdir()
    (find_bundle(run) / "calibrations" / "x").write_text("")
    with pytest.raises(BundleError, match="does not know"):
        Predictor.open(run)


# ---- asking a calibrated model ----


def test_saved_and_sent_models_give_the_same_probabilities(run: Path, data: Dataset, tmp_path: Path) -> None:
    calibrating.calibrate(run, data)
    model = Predictor.open(run)
    model.save(tmp_path / "copy")
    for again in (Predictor.open(tmp_path / "copy"), Predictor.from_files(model.files())):
        assert again.predict(QUERIES) == model.predict(QUERIES)
        assert again.bundle.manifest["calibration"] == model.bundle.manifest["calibration"]


def test_a_packed_model_stays_calibrated(direct_run: Path, planted: Dataset, tmp_path: Path) -> None:
    run = shutil.copytree(direct_run, tmp_path / "run")
    calibrating.calibrate(run, planted, on_test=True)
    longtail.pack(run, tmp_path / "packed", "int8", index="exact")
    packed, model = Predictor.open(tmp_path / "packed"), Predictor.open(run)
    assert packed.bundle.manifest["calibration"] == model.bundle.manifest["calibration"]
    asked = QUERIES[:2]
    np.testing.assert_allclose(packed.rank_texts(asked, 1).scores, model.rank_texts(asked, 1).scores, atol=0.1)


def test_thresholds_and_precisions_act_on_probabilities(run: Path, data: Dataset) -> None:
    uncalibrated = Predictor.open(run)
    with pytest.raises(ConfigError, match="not calibrated"):
        uncalibrated.predict(QUERIES, precision=0.8)
    calibrating.calibrate(run, data)
    model = Predictor.open(run)
    everything = model.predict(QUERIES, k=12)
    lowest = model.lowest_score(precision=0.8)
    assert lowest is not None
    kept = [[one for one in each if one.score >= lowest] for each in everything]
    assert model.predict(QUERIES, k=12, precision=0.8) == kept
    assert model.predict(QUERIES, k=12, threshold=lowest) == kept
    assert kept[3] == []  # of a text without a known word nothing is sure
    assert [[why.label for why in each] for each in model.explain(QUERIES, k=12, precision=0.8)] == [
        [one.label for one in each] for each in kept
    ]
    with pytest.raises(ConfigError, match="both"):
        model.predict(QUERIES, precision=0.8, threshold=0.5)


def test_a_promised_precision_is_kept_on_test(run: Path, data: Dataset) -> None:
    calibrating.calibrate(run, data)
    test = data.need_test()
    top = Predictor.open(run).rank(test.documents, 5, threshold=Predictor.open(run).lowest_score(precision=0.8))
    right = longtail.metrics.hits(top, test.targets)
    assert right[top.ids >= 0].mean() > 0.77


def test_explanations_say_what_they_explain(run: Path, data: Dataset) -> None:
    before = Predictor.open(run).explain(["owl pig"], k=1)[0][0]
    calibrating.calibrate(run, data)
    model = Predictor.open(run)
    after, shown = model.explain(["owl pig"], k=1)[0][0], model.predict(["owl pig"], k=1)[0][0]
    assert after.score == before.score != pytest.approx(shown.score)
    assert after.formula.endswith("calibrated from this score")
    assert after.words == before.words


def test_the_estimator_of_scikit_learn_gives_probabilities(data: Dataset, run: Path) -> None:
    pytest.importorskip("sklearn")
    import copy

    from longtail.sklearn import LongtailClassifier

    texts, labels = data.train.documents.fields["title"], [data.train.targets[[n]].indices.tolist() for n in range(400)]
    classifier = LongtailClassifier("tiny").fit(texts, labels)
    calibrating.calibrate(run, data)
    classifier.model_ = Predictor.open(run)
    again = copy.deepcopy(classifier)  # as a pickle does, by the files of the bundle
    expected = Predictor.open(run).rank_texts(QUERIES, 12)
    found = again.predict_proba(QUERIES)
    assert found.max() == pytest.approx(float(expected.scores.max()))


# ---- the command ----


def test_the_command(run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        return status, said.out, said.err

    assert call("predict", run, "owl", "--precision", "0.8")[0] == 2
    status, out, _ = call("calibrate", run, folder, "--json", tmp_path / "found.json")
    assert status == 0
    assert out.startswith("calibrated on 120 documents held out of training")
    assert "ECE@5" in out
    assert json.loads((tmp_path / "found.json").read_text())["documents"] == 120
    status, out, _ = call("predict", run, "owl", "zzz", "--precision", "0.8")
    assert "zzz\n  (no label: none is sure enough for a precision of 0.8)" in out
    status, out, _ = call("evaluate", run, folder)
    assert "ECE@5" in out
    status, out, err = call("calibrate", run, folder, "--on", folder / "trn.json.gz")
    assert status == 2
    assert "it knows them by heart" in err
    assert call("calibrate", run, folder, "--on", folder / "tst.json.gz")[0] == 0
    assert call("calibrate", run, folder, "--on", folder / "nothing.json.gz")[0] == 2
    assert call("calibrate", run)[0] == 2
    assert call("calibrate", run, "--undo")[1].endswith("gives scores as before\n")
    assert call("calibrate", run, "--undo")[1].endswith("is not calibrated\n")


def test_documents_of_another_file_beside_a_folder(folder: Path, run: Path, tmp_path: Path) -> None:
    """A copy of the test side under another name has no filter file: pairs are masked as in any data without one."""
    copy = tmp_path / "more.json.gz"
    shutil.copy(folder / "tst.json.gz", copy)
    found = calibrating.read_on(folder, copy)
    assert len(found.need_test()) == 60
    assert calibrating.calibrate(run, folder, on=copy)["documents"] == 60


def test_formats_of_numbers_alone_are_refused(data: Dataset, tmp_path: Path) -> None:
    def vectors(split: Any) -> Any:
        return replace(split, documents=Items(split.documents.uids, vectors=split.targets))

    write(
        with_digest(replace(data, train=vectors(data.train), test=vectors(data.need_test()))), tmp_path / "npz", "npz"
    )
    with pytest.raises(ConfigError, match="format 'npz'"):
        calibrating.read_on(tmp_path / "npz", tmp_path / "x.txt")
