"""The released clients, unmodified, against a server that the tests start themselves."""
