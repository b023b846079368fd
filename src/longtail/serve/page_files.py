"""The page: files of the folder ``page``, read when a worker starts. Nothing else can be asked for."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from longtail.serve.problems import Problem
from longtail.serve.service import Service

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
# The page runs its own files and talks to its own server; nothing else, also not where a label's name is HTML.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class File:
    content: bytes
    packed: bytes
    type: str
    tag: str


def read_files(folder: Path = FOLDER) -> dict[str, File]:
    """Every file of the folder by its path in it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): _read(path) for path in found}


def _read(path: Path) -> File:
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return File(content, gzip.compress(content, mtime=0), kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


class Page:
    def __init__(self, folder: Path = FOLDER) -> None:
        self.files = read_files(folder)

    async def index(self, service: Service, request: Request) -> Response:
        return self._sent("index.html", request)

    async def file(self, service: Service, request: Request) -> Response:
        return self._sent(request.path_params["path"], request)

    def _sent(self, name: str, request: Request) -> Response:
        file = self.files.get(name)
        if file is None:
            raise Problem(404, "no such file of the page")
        headers = {
            "Content-Security-Policy": POLICY,
            "ETag": file.tag,
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
            "Content-Type": file.type,
        }
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", "") and len(file.packed) < len(file.content):
            return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(file.content, headers=headers)
