from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from longtail.recipes.direct.objective import smoothed_targets


def test_neighbours_of_given_labels_get_a_share_of_the_most() -> None:
    targets = csr_array(np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32))
    graph = csr_array(np.array([[2, 1, 1], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    soft = smoothed_targets(targets, graph, 0.4).toarray()
    np.testing.assert_allclose(soft, [[1, 0.1, 0.1], [1, 1, 0.1]], rtol=1e-6)


def test_no_more_than_the_most() -> None:
    targets = csr_array(np.ones((1, 4), dtype=np.float32) * np.array([1, 1, 1, 0], dtype=np.float32))
    targets.eliminate_zeros()
    graph = csr_array(np.array([[0, 0, 0, 1]] * 3 + [[0, 0, 0, 1]], dtype=np.float32))
    np.testing.assert_allclose(smoothed_targets(targets, graph, 0.3).toarray(), [[1, 1, 1, 0.3]], rtol=1e-6)
