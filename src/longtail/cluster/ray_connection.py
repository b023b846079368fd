"""The connection to a cluster."""

from __future__ import annotations

import os
from typing import Any

from longtail.errors import ConfigError, MissingExtra

# What `--cluster` says for a cluster that is started on this machine for the one command.
LOCAL = "local"


def connected(address: str, purpose: str) -> Any:
    """The module `ray`, connected to the cluster at `address` (``local``: one of this machine, for this process)."""
    # Ray would else install the packages of a project that is run by uv anew on every worker.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "cluster", purpose) from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, include_dashboard=False if address == LOCAL else None, log_to_driver=True)
        except (ConnectionError, ValueError) as problem:
            raise ConfigError(
                f"--cluster {address}: no Ray cluster answers there ({problem})",
                "give its address (ray start --head prints it), 'auto' on one of its machines, or 'local'",
            ) from problem
    return ray
