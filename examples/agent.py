"""An agent with two tools, `run` and `write`, in a sandbox of its own.

A language model would choose the calls. Here a fixed list takes its place, so the program needs no other service:
replace `model` by a call of yours. The tools and the loop stay as they are.

    python agent.py
"""

from collections.abc import Iterator

from e2b import CommandExitException, Sandbox

PROGRAM = """\
import sys

def primes(limit):
    found = []
    for number in range(2, limit):
        if all(number % prime for prime in found):
            found.append(number)
    return found

print(sum(primes(int(sys.argv[1]))))
"""


def model(results: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The calls of a model that is asked for the sum of the primes below 100, and tests its program."""
    yield "run", {"command": "python3 primes.py 10"}
    if "No such file" in results[-1]:
        yield "write", {"path": "primes.py", "content": PROGRAM}
        yield "run", {"command": "python3 primes.py 10"}
    assert results[-1] == "17\n"
    yield "run", {"command": "python3 primes.py 100"}


def run(sandbox: Sandbox, command: str) -> str:
    try:
        return sandbox.commands.run(command, timeout=30).stdout
    except CommandExitException as failure:
        # The model reads what failed, and decides.
        return f"exit code {failure.exit_code}: {failure.stderr}"


def write(sandbox: Sandbox, path: str, content: str) -> str:
    return f"wrote {sandbox.files.write(path, content).path}"


TOOLS = {"run": run, "write": write}

with Sandbox.create(timeout=300) as sandbox:
    results: list[str] = []
    for tool, arguments in model(results):
        results.append(TOOLS[tool](sandbox, **arguments))
        print(f"{tool}: {results[-1].strip()}")
print("answer:", results[-1].strip())
