# The doors for people and for continuous integration.
.PHONY: lint test fmt

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

test:
	cargo test --workspace --locked

fmt:
	cargo fmt --all
