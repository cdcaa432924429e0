"""Runs all suites, as many side by side as the machine has lanes for.

    python -m conformance.side_by_side [NAME…]

A suite is a run of pytest with servers and a data directory of its own, so that it meets the others
in the kernel only. Suites that wait leave the processors to others. `SHOAL_TEST_LANES` is the number
of lanes. The output of a suite is shown when it ends; a failed suite does not stop the others.

`TIMES` is a file for the time of each suite. `SHOAL_TEST_END` is a time in seconds since 1970: then all suites are interrupted and
their output is printed. CI has a time limit of its own, after which it prints nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .shared import ROOT, WORK, images, remove

HOSTILE = ROOT / "conformance" / "hostile"

#: Data directories and output of the suites.
LANES = WORK / "lanes"

#: More than a machine has.
ALONE = 1000

#: How long an interrupted suite may clean up, in seconds.
GRACE = 120

#: Plugins that only generated cases use. Their import takes two seconds of a processor in each process.
GENERATORS = ["-p", "no:schemathesis", "-p", "no:hypothesispytest"]


@dataclass
class Suite:
    """A run of pytest, or of another module."""

    name: str
    #: Its timeout in seconds.
    seconds: int
    arguments: list[str]
    module: str = "pytest"
    #: How many processes it keeps busy; `ALONE` for no other suite.
    lanes: int = 1
    #: The suite that must have ended before this one starts.
    after: str | None = None
    #: Whether its cases are generated.
    generated: bool = False
    #: Whether its lanes are kept free until the suite that it waits for has ended: it takes longest.
    kept: bool = False
    #: The number of the first real node of its cluster. Suites side by side have different ones.
    nodes: int | None = None

    process: subprocess.Popen | None = field(default=None, repr=False)
    begun: float = 0
    interrupted: float = 0
    seconds_taken: float = 0

    @property
    def directory(self) -> Path:
        return LANES / self.name

    @property
    def log(self) -> Path:
        return LANES / f"{self.name}.log"

    def start(self) -> None:
        remove(self.directory)
        self.directory.mkdir(parents=True)
        command = [sys.executable, "-m", self.module]
        if self.module == "pytest":
            command += ["-c", "conformance/pytest.ini", "--rootdir", "."]
            command += [] if self.generated else GENERATORS
        # Suites that share images copy them, so no suite may change the ones that are copied.
        environment = os.environ | {
            "SHOAL_TEST_DATA": str(self.directory / "data"), "SHOAL_TEST_IMAGES": str(images()),
        }
        if self.nodes is not None:
            environment["SHOAL_TEST_NODES"] = str(self.nodes)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *self.arguments], cwd=ROOT, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, preexec_fn=interruptible,
            )
        self.begun = time.monotonic()

    def ended(self) -> bool:
        """Whether it has ended. Interrupts it after its timeout, so that its servers are stopped."""
        if self.process.poll() is not None:
            self.seconds_taken = time.monotonic() - self.begun
            return True
        now = time.monotonic()
        if self.interrupted and now > self.interrupted + GRACE:
            self.process.kill()
        elif not self.interrupted and now > self.begun + self.seconds:
            self.interrupt()
        return False

    def interrupt(self) -> None:
        self.interrupted = time.monotonic()
        self.process.send_signal(signal.SIGINT)

    def show(self) -> bool:
        """Prints its output; whether it succeeded."""
        succeeded = self.process.returncode == 0 and not self.interrupted
        sys.stdout.flush()
        sys.stdout.buffer.write(self.log.read_bytes())
        outcome = "passed" if succeeded else "timed out" if self.interrupted else "FAILED"
        free = shutil.disk_usage(LANES).free >> 30
        print(f"conformance: {self.name}: {outcome} after {self.seconds_taken:.0f} s, {free} GiB free", flush=True)
        if times := os.environ.get("TIMES"):
            with open(times, "a") as file:
                file.write(f"{self.seconds_taken:.0f}\tconformance: {self.name}, beside others\n")
        if succeeded:
            remove(self.directory)
        return succeeded


def interruptible() -> None:
    """A program that a shell started in the background ignores interrupts, and so would its suites."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


#: Cases of the SDKs that a cluster passes, too, but for those that `sdk_cases` names.
SDK_IN_CLUSTER = ["conformance/interpreter/test_streams.py"] + [
    f"conformance/sdk/test_{name}.py"
    for name in (
        "commands", "files", "pty", "watch", "git", "promptness", "life", "mistakes", "gateway", "urls",
        "sessions", "session_files", "session_preview", "session_secrets",
    )
]


def attacks(*names: str) -> list[str]:
    return [str((HOSTILE / f"test_{name}.py").relative_to(ROOT)) for name in names]


def cluster_files(*names: str) -> list[str]:
    """The files of tests with a cluster, or those with these names."""
    directory = ROOT / "conformance" / "cluster"
    paths = [directory / f"test_{name}.py" for name in names] or sorted(directory.glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths]


def suites() -> list[Suite]:
    """All suites, those that take longest first."""
    interpreter = "conformance/interpreter"
    # The pool's cases wait until their server has no sandbox; others use up memory and processes.
    single = [f"{interpreter}/test_{name}.py" for name in ("pool", "template", "want")]
    workers = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    apart = [f"--ignore={path}" for path in single]
    # They disturb the operator, and wait until it has recovered.
    storms = cluster_files("operator_storm", "operator_model")
    # Clusters with a real node, which runs pods.
    node = cluster_files("cluster", "install", "router", "sdk", "sdk_processors", "shoal_cluster", "templates_pools")
    saves = cluster_files(*(f"checkpoints_{part}" for part in ("node", "elsewhere", "peers", "kills", "room", "prepare", "sdk")))
    # They wait for timers: of a schedule, and of what a dead program left.
    timers = cluster_files("kruise_autoscaler", "kruise_nodes", "kruise_quotas", "kruise_update")
    kruise = [path for path in cluster_files() if "/test_kruise_" in path and path not in timers]
    others = [path for path in cluster_files() if path not in {*storms, *node, *saves, *timers, *kruise}]
    found = [
        # They wait: for packages, and for a compiler that began while the server was compiled.
        Suite("interpreter-template", 1000, [], module="conformance.interpreter.server", lanes=0),
        Suite("session-template", 1000, [], module="conformance.sessions.server", lanes=0),
        Suite("cluster-programs", 1500, [], module="conformance.cluster.binaries", lanes=0),
        Suite("cluster-saves", 3000, saves, after="cluster-programs", kept=True, nodes=0),
        Suite("cluster-node", 3000, node, after="cluster-programs", kept=True, nodes=2),
        Suite("cluster-kruise", 2100, kruise, after="cluster-programs", kept=True),
        Suite("sdk", 1500, [*workers, "-m", "not alone", "conformance/sdk"], lanes=2),
        Suite(
            "interpreter", 1500, ["-n", "2", "--dist", "loadfile", interpreter, *apart], lanes=2,
            after="interpreter-template",
        ),
        Suite("cluster-timers", 1500, timers, after="cluster-programs", lanes=0),
        Suite("cluster", 1500, others, after="cluster-programs"),
        Suite("cluster-storm", 1200, storms, after="cluster-programs"),
        Suite(
            "cluster-sdk", 1200, ["-p", "conformance.cluster.sdk_cases", *SDK_IN_CLUSTER], after="cluster-programs",
            nodes=4,
        ),
        Suite("crash-rest", 1200, attacks("crash_rest")),
        # The fake internet exists once on a machine, so one suite has all attacks that use it.
        Suite("internet", 1800, attacks("exhaustion", "egress", "access")),
        Suite("sessions", 900, ["conformance/sessions"], after="session-template"),
        Suite("faults", 1200, attacks("faults")),
        Suite("crash", 900, attacks("crash", "crash_parked")),
        Suite("crash-build", 900, attacks("crash_build")),
        Suite("js", 900, ["conformance/js"]),
        # It waits until sandboxes are parked. A wake on a busy machine may take longer than the timeout of a case.
        Suite(
            "parked", 900,
            ["-p", "conformance.parked", "-k", "[sync-runsc and not timeout", "conformance/sdk/test_commands.py"], lanes=0,
        ),
        Suite("mcp", 900, ["conformance/mcp"]),
        Suite("cli", 900, ["conformance/cli"]),
        Suite("ui", 1500, ["conformance/ui"]),
        Suite("openapi", 900, ["conformance/openapi"], generated=True),
        Suite("limits", 900, attacks("limits", "descriptors")),
        Suite("tenants", 900, attacks("neighbour", "modes", "answers", "audit", "privilege")),
        Suite("churn", 900, attacks("churn")),
        Suite("files", 900, attacks("authorization", "files", "saved")),
        Suite("escape", 900, attacks("escape", "wire")),
        Suite("interpreter-pools", 900, single, after="interpreter"),
        Suite("alone", 900, ["-m", "alone", "conformance/sdk", *attacks("power")], lanes=ALONE),
    ]
    check_complete(found)
    return found


def check_complete(found: list[Suite]) -> None:
    """Every file is in a suite, and every file that needs a real node is in one that has it."""
    named = {argument for suite in found for argument in suite.arguments}
    written = {str(path.relative_to(ROOT)) for path in HOSTILE.glob("test_*.py")}
    assert written <= named, f"in no suite: {sorted(written - named)}"
    with_node = {argument for suite in found if suite.nodes is not None for argument in suite.arguments}
    real = {path for path in cluster_files() if "real_cluster" in (ROOT / path).read_text()}
    assert real <= with_node, f"in no suite with a real node: {sorted(real - with_node)}"
    clusters = cluster_files()
    assert set(clusters) <= named, f"in no suite: {sorted(set(clusters) - named)}"


def run_all(waiting: list[Suite], lanes: int, end: float) -> bool:
    """Whether all suites succeeded before the end."""
    running: list[Suite] = []
    over = {suite.after for suite in waiting} - {suite.name for suite in waiting}
    good = True
    try:
        while waiting or running:
            # A suite with several lanes would never start if others took each lane that becomes free.
            overtaken = False
            for suite in list(waiting):
                taken = sum(other.lanes for other in running)
                if not suite.kept:
                    taken += sum(other.lanes for other in waiting if other.kept and other.after not in over)
                fits = suite.lanes == 0 or not overtaken and (taken == 0 or taken + suite.lanes <= lanes)
                if suite.lanes == ALONE:
                    # Those without a lane keep the machine busy too: one of them compiles.
                    fits = not running
                if suite.after in over and fits:
                    waiting.remove(suite)
                    suite.start()
                    running.append(suite)
                elif suite.after in over and 1 < suite.lanes < ALONE:
                    overtaken = True
            time.sleep(0.2)
            if waiting and time.time() > end:
                print(f"conformance: no time is left for: {', '.join(suite.name for suite in waiting)}", flush=True)
                waiting, good = [], False
            for suite in running:
                if time.time() > end and not suite.interrupted:
                    suite.interrupt()
            for suite in [suite for suite in running if suite.ended()]:
                running.remove(suite)
                over.add(suite.name)
                good &= suite.show()
    except KeyboardInterrupt:
        for suite in running:
            suite.interrupt()
        while [suite for suite in running if not suite.ended()]:
            time.sleep(0.2)
        raise
    return good


def stop(*_) -> None:
    raise KeyboardInterrupt


def main(names: list[str]) -> int:
    signal.signal(signal.SIGTERM, stop)
    chosen = [suite for suite in suites() if not names or suite.name in names]
    # More suites at once would not end earlier: the processors are busy. Some of their deadlines would pass.
    lanes = int(os.environ.get("SHOAL_TEST_LANES", "0")) or (os.cpu_count() or 2) * 3 // 2
    end = float(os.environ.get("SHOAL_TEST_END", "inf"))
    return 0 if run_all(chosen, lanes, end) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
