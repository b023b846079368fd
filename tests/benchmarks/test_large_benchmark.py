"""Planted texts of very many labels: what is in them."""

from __future__ import annotations

from benchmarks.large import LABELS_OF_WORD, TESTED, WORDS_OF_LABEL, planted, spellings


def test_words_differ() -> None:
    assert len({word.tobytes() for word in spellings(50_000)}) == 50_000


def test_a_document_has_the_words_of_its_label() -> None:
    data = planted(2000, 300)
    assert len(data.labels) == 2000
    assert len(data.train) == 300
    assert data.test is not None
    assert len(data.test) == TESTED
    for split in (data.train, data.test):
        assert split.targets.shape == (len(split), 2000)
        for row, title in enumerate(split.documents.fields["title"]):
            (label,) = split.targets.indices[split.targets.indptr[row] : split.targets.indptr[row + 1]].tolist()
            assert set(data.labels.fields["title"][label].split()) <= set(title.split())
    words = {word for title in data.labels.fields["title"] for word in title.split()}
    assert len(words) <= WORDS_OF_LABEL * 2000 // LABELS_OF_WORD
    assert planted(2000, 300).digest == data.digest
