"""Many sandboxes at once, with the asynchronous SDK: a function of Python applied to each input, each in its own sandbox.

    python parallel.py
"""

import asyncio
import json

from e2b import AsyncSandbox

PROGRAM = """\
import json, sys
number = json.load(open("input.json"))
steps = 0
while number != 1:
    number = number // 2 if number % 2 == 0 else 3 * number + 1
    steps += 1
json.dump(steps, sys.stdout)
"""

INPUTS = [6, 7, 27, 97]
#: How many sandboxes exist at a time.
AT_ONCE = 2


async def apply(number: int, room: asyncio.Semaphore) -> int:
    async with room, await AsyncSandbox.create(timeout=120) as sandbox:
        await sandbox.files.write("input.json", json.dumps(number))
        await sandbox.files.write("program.py", PROGRAM)
        result = await sandbox.commands.run("python3 program.py")
        return json.loads(result.stdout)


async def main() -> None:
    room = asyncio.Semaphore(AT_ONCE)
    results = await asyncio.gather(*(apply(number, room) for number in INPUTS))
    for number, steps in zip(INPUTS, results, strict=True):
        print(f"{number}: {steps} steps")


asyncio.run(main())
