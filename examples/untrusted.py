"""Untrusted code: no internet, a time limit, and limits of memory and processes that it cannot leave.

    python untrusted.py
"""

from e2b import CommandExitException, Sandbox, TimeoutException

#: Programs of users.
SUBMISSIONS = {
    "honest": "print(sum(range(101)))",
    "endless": "while True: pass",
    "greedy": "b = bytearray(64 << 30)",
    "curious": "import urllib.request; urllib.request.urlopen('http://198.51.100.1', timeout=5)",
}


def judge(sandbox: Sandbox, name: str, code: str) -> str:
    sandbox.files.write(f"{name}.py", code)
    try:
        return sandbox.commands.run(f"python3 {name}.py", timeout=10).stdout.strip()
    except TimeoutException:
        return "took longer than 10 s"
    except CommandExitException as failure:
        return failure.stderr.strip().splitlines()[-1]


with Sandbox.create(allow_internet_access=False, timeout=300) as sandbox:
    for name, code in SUBMISSIONS.items():
        print(f"{name}: {judge(sandbox, name, code)}")
