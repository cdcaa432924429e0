"""Sessions on the template that they get, `session-v1`."""
