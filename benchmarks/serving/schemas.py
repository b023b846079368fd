"""schemathesis against both descriptions: what is described is what is done, and nothing that is sent breaks it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.serving.processes import serving

CONFIG = Path(__file__).with_name("schemathesis.toml")
DESCRIPTIONS = {"native": "/api/v1/openapi.json", "annif": "/v1/openapi.json"}


def checked(run: Path, environment: Path, examples: int) -> dict[str, Any]:
    """Runs every check that schemathesis has. Gives its counts; its words are printed."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(f"model={run}", "--corrections", str(Path(folder) / "kept.jsonl"), quiet=False) as running,
    ):
        for name, path in DESCRIPTIONS.items():
            url = f"http://127.0.0.1:{running.port}{path}"
            command = [str(environment / "bin" / "schemathesis"), "--config-file", str(CONFIG), "run", url]
            command += ["--max-examples", str(examples), "--checks", "all", "--seed", "1", "--no-color"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            print("\n".join(line[:300] for line in (done.stdout + done.stderr).splitlines()))
            cases = re.search(r"([\d,]+) generated", done.stdout)
            failures = re.findall(r"^\s*❌ (.+): (\d+)$", done.stdout, flags=re.M)
            found[name] = {
                "exit_code": done.returncode,
                "cases": int(cases[1].replace(",", "")) if cases else None,
                "failures": {what: int(count) for what, count in failures},
            }
        statuses = [line["status"] for line in running.events("request")]
        found["answers_by_status"] = {str(status): statuses.count(status) for status in sorted(set(statuses))}
        found["errors_of_the_server"] = len(running.events("error"))
    return found
