"""What can go wrong because of the user's files, settings or machine, said in one way.

Every error names *what is wrong, with the value; what was expected; what to do* (the hint). The command line prints
``error:`` and ``hint:`` and exits with 2; only a bug of ours shows a traceback.
"""

from __future__ import annotations

from pathlib import Path


class LongtailError(Exception):
    """Base of all errors that a user can act upon."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ConfigError(LongtailError):
    """A setting or an argument is unknown, out of bounds or contradicts another."""


class DataError(LongtailError):
    """A data file is broken; ``file`` and (one-based) ``line`` say where."""

    def __init__(
        self, message: str, hint: str = "", *, file: Path | str | None = None, line: int | None = None
    ) -> None:
        self.file = Path(file) if file is not None else None
        self.line = line
        place = "" if file is None else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(place + message, hint)


class BundleError(LongtailError):
    """A saved model is incomplete, altered, foreign or of another format version."""


class UnknownKind(BundleError):
    """A part of a kind that neither longtail nor an installed package declares."""

    def __init__(self, message: str, hint: str, kind: str) -> None:
        super().__init__(message, hint)
        self.kind = kind


class RunError(LongtailError):
    """A run folder cannot be used as asked (it belongs to another command, is locked, or the disk is full)."""


class RunTaken(RunError):
    """Another process is training in the run folder at this moment."""


class MissingExtra(LongtailError):
    """A dependency is needed and not installed; `extra` brings it, or where that is empty its own name does."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed",
            f"pip install 'longtail[{extra}]'" if extra else f"pip install {package}",
        )
