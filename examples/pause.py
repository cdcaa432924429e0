"""A pause keeps memory: a process counts, sleeps on disk with its sandbox, and continues with its next number.

    python pause.py
"""

import time

from e2b import Sandbox

COUNT = "i=0; while true; do i=$((i+1)); echo $i > next; mv next count; sleep 0.1; done"


def count(sandbox: Sandbox) -> int:
    return int(sandbox.files.read("count"))


sandbox = Sandbox.create(timeout=300)
try:
    sandbox.commands.run(COUNT, background=True, timeout=0)
    sandbox.commands.run("until test -e count; do sleep 0.1; done")
    before = count(sandbox)
    sandbox.pause()
    print("paused at", before)

    time.sleep(2)

    # Any process that knows the id can do this, also after the machine was restarted.
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    after = count(sandbox)
    print("continued at", after)
    # A new process would begin at 1; one that ran all the time would be 20 further.
    assert before <= after < before + 20
finally:
    sandbox.kill()
