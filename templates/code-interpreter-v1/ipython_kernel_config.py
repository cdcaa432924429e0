"""Settings of every Python kernel: what comes out is read by programs."""

c = get_config()  # noqa: F821 (IPython gives it)

# Tracebacks are passed on as text.
c.InteractiveShell.colors = "nocolor"
# A list is shown to its end, however long it is.
c.PlainTextFormatter.max_seq_length = 0
# Nobody looks for what was run before, and a sandbox that was cloned shares no file with its twin.
c.HistoryManager.hist_file = ":memory:"
