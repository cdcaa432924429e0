"""Rollouts by fork: one prepared environment, a copy of the running sandbox for each policy, and the best one wins.

Preparation is paid once. Each fork continues from the same memory: the game in it has made its first moves already.

    python rollouts.py
"""

import time

from e2b import Sandbox

#: A walk on a line. It reads moves from a pipe, and reports its position. The process keeps its state in memory.
GAME = """\
import os
position, moves = 0, 0
os.path.exists("moves") or os.mkfifo("moves")
while True:
    with open("moves") as pipe:
        for move in pipe.read().split():
            position += {"left": -1, "right": 1, "jump": 3 if position % 2 else -2}[move]
            moves += 1
    with open("state.new", "w") as state:
        state.write(f"{position} {moves}")
    os.rename("state.new", "state")
"""

POLICIES = {
    "steady": ["right"] * 6,
    "jumper": ["right", "jump"] * 3,
    "lost": ["left", "right"] * 3,
}


def play(sandbox: Sandbox, moves: list[str], total: int) -> int:
    """Makes the moves, and returns the position after `total` moves."""
    sandbox.commands.run(f"echo {' '.join(moves)} > moves")
    for _ in range(100):
        if sandbox.files.exists("state"):
            position, made = map(int, sandbox.files.read("state").split())
            if made == total:
                return position
        time.sleep(0.1)
    raise TimeoutError("the game does not answer")


with Sandbox.create(timeout=300) as sandbox:
    sandbox.files.write("game.py", GAME)
    sandbox.commands.run("python3 game.py", background=True, timeout=0)
    sandbox.commands.run("until test -p moves; do sleep 0.1; done")
    start = play(sandbox, ["right"], 1)
    print("start:", start)

    forks = sandbox.fork(count=len(POLICIES), timeout=300)
    failed = [fork for fork in forks if isinstance(fork, Exception)]
    if failed:
        raise failed[0]
    try:
        ends = {
            name: play(fork, moves, 1 + len(moves))
            for fork, (name, moves) in zip(forks, POLICIES.items(), strict=True)
        }
    finally:
        for fork in forks:
            fork.kill()

for name, position in ends.items():
    print(f"{name}: {position}")
print("best:", max(ends, key=ends.get))
