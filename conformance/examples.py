"""Runs the programs of `examples/` as their readers do."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from .js.packages import PACKAGES, install, node, pointing_at
from .shared import ROOT

EXAMPLES = ROOT / "examples"

#: The output of each program, as a regular expression.
OUTPUT = {
    "agent.py": r"run: exit code 2: .*No such file.*\nwrite: wrote .*/primes\.py\nrun: 17\nrun: 1060\nanswer: 1060\n",
    "analysis.py": r"mean +13\.5\nmax +21\.0\na plot of \d+ KiB\npoints of the chart: \[.*\(4.*, 21.*\)\]\n",
    "parallel.py": r"6: 8 steps\n7: 16 steps\n27: 111 steps\n97: 118 steps\n",
    "pause.py": r"paused at \d+\ncontinued at \d+\n",
    "preview.py": r"<h1>Hello from /agents</h1>\n",
    "rollouts.py": r"start: 1\nsteady: 7\njumper: .*\nlost: 1\nbest: .*\n",
    "session.py": r"hello 42\nblue\n\['project/main\.py', 'project/output\.txt'\]\nhello 42\n",
    "snapshot.mjs": r"seven: 7\neight: 8\n",
    "untrusted.py": r"honest: 5050\nendless: took longer than 10 s\ngreedy: .*out of memory.*\ncurious: .*URLError.*\n",
    "watch.mjs": r"page 1\npage 2\npage 3\ncreated: 1\.html 2\.html 3\.html\n",
}

#: The SDK's HTTP client may abort the interpreter by this signal after the program has ended: curioswitch/pyqwest#164.
ABORTED = signal.SIGABRT


def programs() -> set[str]:
    return {path.name for path in EXAMPLES.iterdir() if path.suffix != ".md"}


def check(name: str, server, scratch: Path) -> None:
    """Runs a program against a server and compares its output."""
    program, environment = EXAMPLES / name, pointing_at(server)
    if program.suffix == ".py":
        command = [sys.executable, program]
        environment["PYTHONPATH"] = str(ROOT / "clients" / "python")
    else:
        install()
        # Node looks for packages beside the program.
        (scratch / "node_modules").symlink_to(PACKAGES / "node_modules")
        (scratch / name).write_text(program.read_text())
        command = [node(), scratch / name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=scratch, timeout=200)
    aborted = program.suffix == ".py" and done.returncode == -ABORTED
    assert done.returncode == 0 or aborted, done.stdout + done.stderr
    assert re.fullmatch(OUTPUT[name], done.stdout), done.stdout
