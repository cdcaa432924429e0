"""Settings of every Python kernel: what comes out is read by programs."""

import sys

c = get_config()  # noqa: F821 (IPython gives it)

# Tracebacks are passed on as text.
c.InteractiveShell.colors = "nocolor"
# A list is shown to its end, however long it is.
c.PlainTextFormatter.max_seq_length = 0
# Nobody looks for what was run before, and a sandbox that was cloned shares no file with its twin.
c.HistoryManager.hist_file = ":memory:"
# Whoever reads waits for the word that all has been said, and not for a time.
c.IPythonKernel._execute_sleep = 0
# Nobody debugs over the kernel's connection, and the debugger is a tenth of its memory. Programs
# may use it: startup/00-debugger.py.
sys.modules["debugpy"] = None
