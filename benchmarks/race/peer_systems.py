"""Systems that a user would pick instead, each from raw text to named labels. Runs in an environment of their own
(Python 3.10 or newer), without longtail.

    PEER_PYTHON -m benchmarks.race.peer_systems check NAME
    PEER_PYTHON -m benchmarks.race.peer_systems train NAME INPUTS FOLDER THREADS
    PEER_PYTHON -m benchmarks.race.peer_systems serve NAME INPUTS FOLDER THREADS

NAME: one of `SYSTEMS`, or ``module:Class`` of another with the methods of `Peer`. Each has the settings that its
authors recommend or ship, and its default beam. TF-IDF is PECOS's own for PECOS, scikit-learn's for the others, which
bring none.

`make race` installs what peers.txt names.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.race.serving import peak_mb, serve


class Peer(Protocol):
    """texts: raw.  targets: (N, L) SciPy CSR matrix of ones.  folder: holds all that is saved."""

    NEEDS: tuple[str, ...]

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None: ...

    def open(self, folder: Path, threads: int) -> None: ...

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        """Label numbers and scores, best first, at most `k`."""
        ...


class Pecos:
    """XR-Linear: labels clustered by the features of their documents (PIFA, hierarchical k-means), a linear tree,
    beam 10.
    """

    NEEDS: tuple[str, ...] = ("pecos",)

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        vectorizer = self._vectorizers().train(texts)
        features, targets = self._features(vectorizer, texts, threads), targets.astype(np.float32)
        xmc, xlinear = importlib.import_module("pecos.xmc"), importlib.import_module("pecos.xmc.xlinear.model")
        chain = xmc.Indexer.gen(
            xmc.LabelEmbeddingFactory.create(targets, features, method="pifa"),
            indexer_type="hierarchicalkmeans",
            threads=threads,
        )
        vectorizer.save(str(folder / "vectorizer"))
        xlinear.XLinearModel.train(features, targets, C=chain, threads=threads).save(str(folder / "model"))

    def open(self, folder: Path, threads: int) -> None:
        xlinear = importlib.import_module("pecos.xmc.xlinear.model")
        self._vectorizer, self._threads = self._vectorizers().load(str(folder / "vectorizer")), threads
        self._model = xlinear.XLinearModel.load(str(folder / "model"), is_predict_only=True)

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        features = self._features(self._vectorizer, texts, self._threads)
        return _best_of_rows(self._model.predict(features, only_topk=k, threads=self._threads), k)

    @staticmethod
    def _vectorizers() -> Any:
        return importlib.import_module("pecos.utils.featurization.text.vectorizers").Vectorizer

    @staticmethod
    def _features(vectorizer: Any, texts: list[str], threads: int) -> Any:
        features = vectorizer.predict(texts, threads=threads).tocsr().astype(np.float32)
        features.sort_indices()
        return features


class _OnTfidf:
    """What the others share: TF-IDF rows by scikit-learn at its defaults, with its vocabulary as JSON."""

    def _learn(self, texts: list[str], folder: Path) -> Any:
        self._vectorizer = self._tfidf()
        rows = self._vectorizer.fit_transform(texts)
        vocabulary = {word: int(number) for word, number in self._vectorizer.vocabulary_.items()}
        (folder / "tfidf.json").write_text(
            json.dumps({"vocabulary": vocabulary, "idf": self._vectorizer.idf_.tolist()}), encoding="utf-8"
        )
        return rows

    def _recall(self, folder: Path) -> None:
        kept = json.loads((folder / "tfidf.json").read_text(encoding="utf-8"))
        self._vectorizer = self._tfidf(vocabulary=kept["vocabulary"])
        self._vectorizer.idf_ = np.array(kept["idf"])

    @staticmethod
    def _tfidf(**settings: Any) -> Any:
        return importlib.import_module("sklearn.feature_extraction.text").TfidfVectorizer(dtype=np.float32, **settings)


class OmikujiBonsai(_OnTfidf):
    """omikuji with its Bonsai settings: three wide shallow trees, beam 10."""

    NEEDS: tuple[str, ...] = ("omikuji", "sklearn")

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        omikuji, rows = importlib.import_module("omikuji"), self._learn(texts, folder)
        settings = omikuji.Model.default_hyper_param()
        settings.cluster_k, settings.cluster_balanced, settings.max_depth, settings.min_branch_size = 100, False, 3, 100
        written = folder / "train.txt"
        _write_repository_format(written, rows, targets)
        omikuji.Model.train_on_data(str(written), settings, n_threads=threads).save(str(folder / "model"))
        written.unlink()

    def open(self, folder: Path, threads: int) -> None:
        self._recall(folder)
        self._model = importlib.import_module("omikuji").Model.load(str(folder / "model"))
        self._model.init_prediction_thread_pool(threads)

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        rows = self._vectorizer.transform(texts)
        return [
            self._model.predict(_pairs(rows, n), top_k=k) if rows.indptr[n] < rows.indptr[n + 1] else []
            for n in range(len(texts))
        ]


class NapkinxcPlt(_OnTfidf):
    """napkinXC: a probabilistic label tree by hierarchical k-means, searched exactly."""

    NEEDS: tuple[str, ...] = ("napkinxc", "sklearn")

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        model = importlib.import_module("napkinxc.models").PLT(str(folder / "model"), threads=threads, verbose=0)
        model.fit(self._learn(texts, folder), targets)

    def open(self, folder: Path, threads: int) -> None:
        self._recall(folder)
        self._model = importlib.import_module("napkinxc.models").PLT(str(folder / "model"), threads=threads, verbose=0)
        self._model.load()

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        return [list(row) for row in self._model.predict_proba(self._vectorizer.transform(texts), top_k=k)]


class SparseKnn(_OnTfidf):
    """The labels of the 50 nearest training documents by TF-IDF cosine: a floor."""

    NEEDS: tuple[str, ...] = ("scipy", "sklearn")
    NEIGHBOURS = 50

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        save_npz = importlib.import_module("scipy.sparse").save_npz
        save_npz(folder / "documents.npz", self._learn(texts, folder))
        save_npz(folder / "targets.npz", targets)

    def open(self, folder: Path, threads: int) -> None:
        self._recall(folder)
        load_npz = importlib.import_module("scipy.sparse").load_npz
        self._words, self._targets = load_npz(folder / "documents.npz").T.tocsr(), load_npz(folder / "targets.npz")

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        found: list[list[tuple[int, float]]] = []
        for start in range(0, len(texts), 256):
            near = (self._vectorizer.transform(texts[start : start + 256]) @ self._words).tocsr()
            for row in range(near.shape[0]):
                values = near.data[near.indptr[row] : near.indptr[row + 1]]
                if len(values) > self.NEIGHBOURS:
                    values[np.argpartition(-values, self.NEIGHBOURS)[self.NEIGHBOURS :]] = 0
            near.eliminate_zeros()
            found += _best_of_rows(near @ self._targets, k)
        return found


SYSTEMS: dict[str, Any] = {"pecos": Pecos, "omikuji": OmikujiBonsai, "napkinxc": NapkinxcPlt, "knn": SparseKnn}


def system(name: str) -> Any:
    if ":" in name:
        module, _, of_module = name.partition(":")
        return getattr(importlib.import_module(module), of_module)()
    return SYSTEMS[name]()


class Opened:
    """A peer with the names of its labels: what `serving.serve` asks."""

    def __init__(self, peer: Peer, names: list[str]) -> None:
        self.peer, self.names = peer, names

    def predict(self, texts: list[str], k: int) -> list[list[tuple[str, float]]]:
        return [[(self.names[label], score) for label, score in row] for row in self.peer.rank(texts, k)]

    def rank(self, texts: list[str], k: int) -> tuple[Any, Any]:
        ids, scores = np.full((len(texts), k), -1, np.int32), np.full((len(texts), k), -np.inf, np.float32)
        for number, row in enumerate(self.peer.rank(texts, k)):
            ids[number, : len(row)], scores[number, : len(row)] = (
                [label for label, _ in row],
                [score for _, score in row],
            )
        return ids, scores


def _best_of_rows(scores: Any, k: int) -> list[list[tuple[int, float]]]:
    """The k largest of every row of a CSR matrix."""
    scores = scores.tocsr()
    found = []
    for start, end in zip(scores.indptr[:-1], scores.indptr[1:], strict=True):
        order = np.argsort(-scores.data[start:end], kind="stable")[:k]
        found.append(
            list(zip(scores.indices[start:end][order].tolist(), scores.data[start:end][order].tolist(), strict=True))
        )
    return found


def _pairs(rows: Any, number: int) -> list[tuple[int, float]]:
    part = slice(rows.indptr[number], rows.indptr[number + 1])
    return list(zip(rows.indices[part].tolist(), rows.data[part].tolist(), strict=True))


def _write_repository_format(path: Path, rows: Any, targets: Any) -> None:
    """``N D L``, then ``label,label word:value word:value`` for each document that has a word."""
    rows.sort_indices()
    kept = [n for n in range(rows.shape[0]) if rows.indptr[n] < rows.indptr[n + 1]]
    with path.open("w", encoding="utf-8") as file:
        print(len(kept), rows.shape[1], targets.shape[1], file=file)
        for n in kept:
            labels = ",".join(map(str, targets.indices[targets.indptr[n] : targets.indptr[n + 1]].tolist()))
            print(labels, *(f"{word}:{value:.6g}" for word, value in _pairs(rows, n)), file=file)


def check(name: str) -> None:
    """Prints the versions of what the system needs; ImportError where something is missing."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for needed in system(name).NEEDS:
        importlib.import_module(needed)
        package = {"sklearn": "scikit-learn", "pecos": "libpecos"}.get(needed, needed)
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    print(json.dumps({"versions": versions}))


def train(name: str, inputs: Path, folder: Path, threads: int) -> None:
    """Reads what the race wrote; prints the seconds from raw text to saved model, and the peak of memory."""
    from scipy.sparse import csr_matrix

    texts: list[str] = json.loads((inputs / "train.json").read_text(encoding="utf-8"))
    with np.load(inputs / "targets.npz", allow_pickle=False) as kept:
        targets = csr_matrix(
            (np.ones(len(kept["indices"]), np.float32), kept["indices"], kept["indptr"]), shape=tuple(kept["shape"])
        )
    started = time.perf_counter()
    system(name).train(texts, targets, folder, threads)
    print(json.dumps({"seconds": time.perf_counter() - started, "peak_mb": peak_mb()}))


def main(arguments: list[str]) -> None:
    command, name = arguments[:2]
    if command == "check":
        check(name)
        return
    inputs, folder, threads = Path(arguments[2]), Path(arguments[3]), int(arguments[4])
    if command == "train":
        train(name, inputs, folder, threads)
        return
    names = json.loads((inputs / "labels.json").read_text(encoding="utf-8"))

    def open_model() -> Opened:
        peer = system(name)
        peer.open(folder, threads)
        return Opened(peer, names)

    serve(open_model)


if __name__ == "__main__":
    main(sys.argv[1:])
