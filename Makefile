# The doors for people and for continuous integration.
.PHONY: run build envd test lint fmt bench fuzz deny

TARGET := x86_64-unknown-linux-gnu
ENVD := target/$(TARGET)/envd/shoal-envd

# Installs what is missing, builds, makes the template `base`, and serves.
run:
	scripts/setup run
	$(MAKE) build
	$(if $(filter 0,$(shell id -u)),,sudo) target/release/shoal serve $(ARGS)

# The program and, beside it, the daemon that runs inside sandboxes.
build: envd
	cargo build --release --locked -p shoal-server
	install -m 755 $(ENVD) target/release/shoal-envd

# The daemon: static, because it runs in every image.
envd:
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --profile envd --locked \
		-p shoal-envd --target $(TARGET)

# What Shoal is beside the bare tools, into BENCHMARKS.md.
bench:
	scripts/setup bench
	$(MAKE) build
	cargo build --release --locked -p shoal-bench
	$(if $(filter 0,$(shell id -u)),,sudo) target/release/shoal-bench $(ARGS)

# cargo-deny is on the path, or where `setup lint` has put it.
TOOLS := PATH="$$PATH:$(CURDIR)/target/tools/bin"

lint:
	scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@if $(TOOLS) command -v cargo-deny >/dev/null; then $(MAKE) --no-print-directory deny; \
		elif [ -n "$$CI" ]; then echo "lint: cargo-deny is missing"; exit 1; \
		else echo "lint: skipped: dependencies are not looked at without cargo-deny"; fi

test:
	scripts/test

# Every fuzz target for a minute; FUZZ_SECONDS says how long. The seeds are part of `test`.
fuzz:
	RUSTUP_TOOLCHAIN=nightly fuzz/run

# What may be depended on, and what is known against it: that needs a database, which not every
# machine reaches.
deny:
	$(TOOLS) cargo deny --locked check --hide-inclusion-graph licenses bans sources
	@if $(TOOLS) timeout 30 cargo deny fetch db >/dev/null 2>&1; then \
		$(TOOLS) cargo deny --locked check advisories; \
		else echo "deny: skipped: advisories, as their database is not reached"; fi

fmt:
	cargo fmt --all
