"""Work on a Ray cluster (extra `cluster`): `longtail.cluster.predict`, and ``--cluster`` of predict and train.

The only room that imports ray. docs/scale.md says how it is used.
"""

from __future__ import annotations

from longtail.cluster.ray_data import predict

__all__ = ["predict"]
