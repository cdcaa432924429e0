"""E2B's code interpreter, sync and async, before the template `code-interpreter-v1`."""
