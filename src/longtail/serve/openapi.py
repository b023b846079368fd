"""Descriptions of the two APIs."""

from __future__ import annotations

from typing import Any

from longtail.serve.limits import Limits


def native(limits: Limits, token: bool) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "longtail", "version": "1"}, "paths": {}}


def annif(limits: Limits, token: bool) -> dict[str, Any]:
    return {"openapi": "3.0.1", "info": {"title": "Annif REST API", "version": "1.4.3"}, "paths": {}}
