"""A coding session: its machine comes with the first command, and its files outlive the machine.

    pip install ../clients/python                 # or PYTHONPATH=../clients/python
    python session.py
"""

from shoal_sessions import Sessions

sessions = Sessions()  # E2B_API_URL and E2B_API_KEY


def run(session: str, command: str, window: str = "main") -> str:
    """The output of a command that succeeds."""
    shown = ""
    for line in sessions.run_in_session(session, {"command": command, "window": window}):
        if line["type"] == "output":
            shown += line["data"]
        elif line["type"] == "exit" and line["code"] == 0:
            return shown.replace("\r\n", "\n")
        elif line["type"] != "notice":
            raise RuntimeError(f"{command}: {line}")
    raise RuntimeError(f"{command}: no end")


session = sessions.create_session({"metadata": {"project": "example"}})["id"]
try:
    # A file written from here is on the machine; directory and variables of a window stay.
    sessions.write_session_file(session, b"print('hello', 6 * 7)\n", path="project/main.py")
    run(session, "cd project && export COLOUR=blue")
    print(run(session, "python3 main.py > output.txt; cat output.txt; echo $COLOUR"), end="")

    # Without its machine, the session has its files.
    confirmation = sessions.reset_session(session)
    sessions.reset_session(session, {"token": confirmation["token"]})
    print([file["path"] for file in sessions.list_session_files(session)])
    print(run(session, "cat project/output.txt"), end="")
finally:
    sessions.delete_session(session)
