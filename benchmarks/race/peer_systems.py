"""Systems that a user would pick instead, each from raw text to named labels. Runs in an environment of their own
(Python 3.10 or newer), without longtail.

    PEER_PYTHON -m benchmarks.race.peer_systems check NAME
    PEER_PYTHON -m benchmarks.race.peer_systems train NAME INPUTS FOLDER THREADS
    PEER_PYTHON -m benchmarks.race.peer_systems serve NAME INPUTS FOLDER THREADS
    PEER_PYTHON -m benchmarks.race.peer_systems rows NAME INPUTS FOLDER THREADS

NAME: one of `SYSTEMS`, or ``module:Class`` of another with the methods of `Peer`. Each has the settings that its
authors recommend or ship, and its default beam. TF-IDF is PECOS's own for PECOS, scikit-learn's for the others, which
bring none. `rows` is for `benchmarks.peers`: it trains on feature rows that are given, and ranks others.

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


class PeerOnRows(Protocol):
    """A peer that also takes feature rows (SciPy CSR, sorted) in the place of texts. beam: None is its default."""

    def fit(self, rows: Any, targets: Any, folder: Path, threads: int) -> None: ...

    def load(self, folder: Path, threads: int) -> None: ...

    def rank_rows(self, rows: Any, k: int, beam: int | None = None) -> list[list[tuple[int, float]]]: ...


class Pecos:
    """XR-Linear: labels clustered by the features of their documents (PIFA, hierarchical k-means), a linear tree,
    beam 10.
    """

    NEEDS: tuple[str, ...] = ("pecos",)

    def train(self, texts: list[str], targets: Any, folder: Path, threads: int) -> None:
        vectorizer = self._vectorizers().train(texts)
        vectorizer.save(str(folder / "vectorizer"))
        self.fit(self._features(vectorizer, texts, threads), targets, folder, threads)

    def fit(self, rows: Any, targets: Any, folder: Path, threads: int) -> None:
        targets = targets.astype(np.float32)
        xmc, xlinear = importlib.import_module("pecos.xmc"), importlib.import_module("pecos.xmc.xlinear.model")
        chain = xmc.Indexer.gen(
            xmc.LabelEmbeddingFactory.create(targets, rows, method="pifa"),
            indexer_type="hierarchicalkmeans",
            threads=threads,
        )
        xlinear.XLinearModel.train(rows, targets, C=chain, threads=threads).save(str(folder / "model"))

    def open(self, folder: Path, threads: int) -> None:
        self._vectorizer = self._vectorizers().load(str(folder / "vectorizer"))
        self.load(folder, threads)

    def load(self, folder: Path, threads: int) -> None:
        xlinear = importlib.import_module("pecos.xmc.xlinear.model")
        self._threads = threads
        self._model = xlinear.XLinearModel.load(str(folder / "model"), is_predict_only=True)

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        return self.rank_rows(self._features(self._vectorizer, texts, self._threads), k)

    def rank_rows(self, rows: Any, k: int, beam: int | None = None) -> list[list[tuple[int, float]]]:
        beam_size = {} if beam is None else {"beam_size": beam}
        return _best_of_rows(self._model.predict(rows, only_topk=k, threads=self._threads, **beam_size), k)

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
        self.fit(self._learn(texts, folder), targets, folder, threads)

    def fit(self, rows: Any, targets: Any, folder: Path, threads: int) -> None:
        omikuji = importlib.import_module("omikuji")
        settings = omikuji.Model.default_hyper_param()
        settings.cluster_k, settings.cluster_balanced, settings.max_depth, settings.min_branch_size = 100, False, 3, 100
        written = folder / "train.txt"
        _write_repository_format(written, rows, targets)
        omikuji.Model.train_on_data(str(written), settings, n_threads=threads).save(str(folder / "model"))
        written.unlink()

    def open(self, folder: Path, threads: int) -> None:
        self._recall(folder)
        self.load(folder, threads)

    def load(self, folder: Path, threads: int) -> None:
        self._model = importlib.import_module("omikuji").Model.load(str(folder / "model"))
        self._model.init_prediction_thread_pool(threads)

    def rank(self, texts: list[str], k: int) -> list[list[tuple[int, float]]]:
        return self.rank_rows(self._vectorizer.transform(texts), k)

    def rank_rows(self, rows: Any, k: int, beam: int | None = None) -> list[list[tuple[int, float]]]:
        # With its own beam, 10, whatever is asked for.
        return [
            self._model.predict(_pairs(rows, n), top_k=k) if rows.indptr[n] < rows.indptr[n + 1] else []
            for n in range(rows.shape[0])
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
        return _as_arrays(self.peer.rank(texts, k), k)


def _as_arrays(ranked: list[list[tuple[int, float]]], k: int) -> tuple[Any, Any]:
    """(n, k) label numbers, -1 where there are fewer, and scores."""
    ids, scores = np.full((len(ranked), k), -1, np.int32), np.full((len(ranked), k), -np.inf, np.float32)
    for number, row in enumerate(ranked):
        ids[number, : len(row)] = [label for label, _ in row]
        scores[number, : len(row)] = [score for _, score in row]
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


def rows(name: str, inputs: Path, folder: Path, threads: int) -> None:
    """Reads train_x.npz, train_y.npz, test_x.npz and k.json; writes ranking.npz to the folder; prints seconds."""
    from scipy.sparse import load_npz

    peer: PeerOnRows = system(name)
    train_x, train_y, test_x = (load_npz(inputs / f"{part}.npz").tocsr() for part in ("train_x", "train_y", "test_x"))
    for matrix in (train_x, train_y, test_x):
        matrix.data = matrix.data.astype(np.float32)
        matrix.sort_indices()
    k = int(json.loads((inputs / "k.json").read_text(encoding="utf-8")))
    started = time.perf_counter()
    peer.fit(train_x, train_y, folder, threads)
    trained = time.perf_counter()
    peer.load(folder, threads)
    opened = time.perf_counter()
    ids, scores = _as_arrays(peer.rank_rows(test_x, k, beam=max(10, k)), k)
    seconds = time.perf_counter() - opened
    np.savez(folder / "ranking.npz", ids=ids, scores=scores)
    found = {"train_s": trained - started, "predict_ms_doc": 1000 * seconds / len(ids), "peak_mb": peak_mb()}
    print(json.dumps({key: round(value, 4) for key, value in found.items()}))


def main(arguments: list[str]) -> None:
    command, name = arguments[:2]
    if command == "check":
        check(name)
        return
    inputs, folder, threads = Path(arguments[2]), Path(arguments[3]), int(arguments[4])
    if command in ("train", "rows"):
        (train if command == "train" else rows)(name, inputs, folder, threads)
        return
    names = json.loads((inputs / "labels.json").read_text(encoding="utf-8"))

    def open_model() -> Opened:
        peer = system(name)
        peer.open(folder, threads)
        return Opened(peer, names)

    serve(open_model)


if __name__ == "__main__":
    main(sys.argv[1:])
