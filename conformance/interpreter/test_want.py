"""Cells that exhaust resources are reported, and the next cell runs."""

from __future__ import annotations

import pytest
from e2b.exceptions import TimeoutException
from e2b_code_interpreter import Sandbox

from ..installation import wait_until


@pytest.fixture
def sandbox(server):
    with Sandbox.create(timeout=300, **server.options()) as made:
        yield made


def test_a_cell_that_uses_up_the_memory_ends_its_kernel_and_nothing_else(sandbox):
    sandbox.files.write("/home/user/kept", "kept")
    other = sandbox.create_code_context()
    assert sandbox.run_code("x = 41", context=other).error is None
    said = sandbox.run_code("a = []\nwhile True: a.append(bytearray(1 << 20))")
    assert said.error.name == "ContextRestarting"
    assert "it used up the sandbox's memory" in said.error.value
    assert sandbox.run_code("1 + 1").text == "2"
    assert sandbox.run_code("x + 1", context=other).text == "42"
    assert sandbox.files.read("/home/user/kept") == "kept"


def test_a_thread_that_uses_up_the_memory_between_cells_ends_its_kernel_and_nothing_else(sandbox):
    sandbox.files.write("/home/user/kept", "kept")
    kernel = sandbox.run_code("import os; os.getpid()").text
    begun = sandbox.run_code("""
import os, threading
def hog():
    while not os.path.exists("/tmp/go"): pass
    a = []
    while True: a.append(bytearray(1 << 20))
threading.Thread(target=hog).start()""")
    assert begun.error is None
    sandbox.files.write("/tmp/go", "")
    wait_until(lambda: not sandbox.files.exists(f"/proc/{kernel}"), 60, "the kernel has ended")
    said = sandbox.run_code("1 + 1")
    assert said.text == "2" and "The context was restarted" in "".join(said.logs.stderr)
    assert sandbox.files.read("/home/user/kept") == "kept"


def test_a_child_process_is_ended_and_the_cell_continues(sandbox):
    hog = "a = []\\nwhile True: a.append(bytearray(1 << 20))"
    said = sandbox.run_code(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{hog}''']).returncode")
    assert said.text == "-9"


@pytest.mark.parametrize(("private", "mapped"), [(0, 3000), (1000, 900)])
def test_mapped_files_end_nothing(sandbox, private, mapped):
    """The host reclaims them, so they may be larger than the memory, or use what a process leaves."""
    said = sandbox.run_code(f"""
import mmap
held = b"x" * ({private} << 20)
with open("/home/user/big", "wb") as big:
    big.truncate({mapped} << 20)
with open("/home/user/big", "rb") as big:
    pages = mmap.mmap(big.fileno(), 0, prot=mmap.PROT_READ)
sum(pages[at] for at in range(0, len(pages), mmap.PAGESIZE))""")
    assert said.text == "0" and said.error is None


def test_a_result_of_two_hundred_megabytes_is_omitted_with_a_message(sandbox):
    said = sandbox.run_code("""
class Huge:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "huge", "text/html": "x" * (200 << 20)}

Huge()""")
    assert said.error.name == "OutputTooLarge" and "64 MiB" in said.error.value
    assert sandbox.run_code("1 + 1").text == "2"


def test_a_fork_bomb_harms_only_its_sandbox_and_is_reported(server, sandbox):
    try:
        sandbox.run_code("import os\nwhile True: os.fork()", timeout=20)
        survived = sandbox.run_code("1 + 1", timeout=20).text
    except TimeoutException as ended:
        # The kernel was killed, or does not respond any more.
        assert "sandbox" in str(ended) or "timed out" in str(ended)
    else:
        assert survived == "2"
    sandbox.kill()
    with Sandbox.create(timeout=60, **server.options()) as another:
        assert another.run_code("1 + 1").text == "2"
