"""Runs the tests in Rust, several of their programs at a time.

    python3 scripts/rust_tests.py

`cargo test` runs one program after the other, and most of them wait: for timers, programs and the kernel. The arguments of
cargo are those of `compile` in `scripts/test`, so nothing is compiled again. There are no documentation tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BUILD = ["cargo", "test", "--workspace", "--all-features", "--locked", "--no-run"]

#: They take longest, so they start first.
FIRST = ["envd", "driver", "shoal_gateway", "images"]

#: The timeout of one program, in seconds.
TIMEOUT = 600


@dataclass(frozen=True)
class Program:
    """A program with tests."""

    name: str
    path: str
    #: The directory of its crate, in which cargo would run it.
    directory: Path


def programs() -> list[Program]:
    built = subprocess.run([*BUILD, "--message-format=json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    tests = [one for one in messages if one.get("executable") and one["profile"]["test"]]
    assert tests, "cargo has built no test"
    found = [
        Program(one["target"]["name"], one["executable"], Path(one["manifest_path"]).parent) for one in tests
    ]
    rank = {name: number for number, name in enumerate(FIRST)}
    return sorted(found, key=lambda program: rank.get(program.name, len(FIRST)))


def run(program: Program) -> tuple[bool, str, float]:
    """Whether its tests pass, its output, and its time."""
    begun = time.monotonic()
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.directory)}
    try:
        done = subprocess.run(
            [program.path], cwd=program.directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        return False, f"{output}\nit did not end within {TIMEOUT} s\n", TIMEOUT
    return done.returncode == 0, done.stdout.decode(errors="replace"), time.monotonic() - begun


def main() -> int:
    at_once = (os.cpu_count() or 2) * 3 // 2
    failed = []
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(run, program): program for program in programs()}
        for ended in as_completed(running):
            program = running[ended]
            passed, output, seconds = ended.result()
            name = f"{program.name} ({program.directory.relative_to(ROOT)})"
            # A success needs the totals and the ignored tests only.
            kept = [line for line in output.splitlines() if not passed or line.startswith("test result:") or "ignored" in line]
            print("\n".join([*kept, f"rust: {name}: {'passed' if passed else 'FAILED'} after {seconds:.0f} s"]), flush=True)
            if not passed:
                failed.append(name)
    if failed:
        print(f"rust: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
