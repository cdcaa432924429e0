"""Every method of the Python SDK, sync and async, with both runtimes."""
