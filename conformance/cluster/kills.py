"""Kills of the programs of a real node."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from .node import Node

AGENT, WRAPPER, KUBELET, CONTAINERD, SHIM = "agent", "wrapper", "kubelet", "containerd", "shim"


def processes(node: Node) -> dict[int, list[str]]:
    """The command lines of the node's processes: all below its first one, to which orphans return."""
    parents, words = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    first = node.first_process()

    def is_below(process: int) -> bool:
        while process and process != first:
            process = parents.get(process, 0)
        return process == first

    return {process: line for process, line in words.items() if is_below(process)}


def is_kind(kind: str, words: list[str], sandboxes: Collection[str]) -> bool:
    """Whether a process is of the kind, by its command line. A shim is that of one of these pod sandboxes."""
    program = Path(words[0]).name
    if kind == AGENT:
        return program == "shoal" and "node" in words[1:2]
    if kind == WRAPPER:
        # Its short-lived commands, and not the processes that are a sandbox.
        commands = {"create", "start", "restore", "checkpoint", "kill", "delete", "state"}
        return program in ("runsc", "shoal-runsc") and bool(commands & set(words)) and "boot" not in words
    if kind == SHIM:
        return program == "containerd-shim-runsc-v1" and bool(set(sandboxes) & set(words))
    return program == kind


def kill(node: Node, kind: str, sandboxes: Collection[str] = ()) -> int:
    """Kills all processes of a kind, and returns how many there were."""
    killed = 0
    for identifier, words in processes(node).items():
        if is_kind(kind, words, sandboxes):
            try:
                os.kill(identifier, 9)
                killed += 1
            except ProcessLookupError:
                pass
    return killed
