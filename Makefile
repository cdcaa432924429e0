# Targets for people and for CI.
.PHONY: run build envd ui image dist manifests test lint fmt bench bench-cluster bench-checkpoints bench-replicas bench-ui fuzz deny

TARGET := x86_64-unknown-linux-gnu
ENVD := target/$(TARGET)/envd/shoal-envd
RUNSC := target/$(TARGET)/envd/shoal-runsc

# Install missing tools, build, create the template `base`, and serve.
run:
	scripts/setup run
	$(MAKE) build
	$(if $(filter 0,$(shell id -u)),,sudo) target/release/shoal serve $(ARGS)

# The program, and beside it the daemon for sandboxes and the wrapper around runsc.
build: envd ui
	cargo build --release --locked -p shoal-server
	install -m 755 $(ENVD) $(RUNSC) target/release

# The daemon, and the wrapper around runsc. Static, because they run in every image and on every node.
envd:
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --profile envd --locked \
		-p shoal-envd -p shoal-runsc --target $(TARGET)

# The web UI: web/dist, which a release build of the server contains and a debug build reads.
ui:
	npm ci --prefix web --silent
	npm run build --prefix web --silent

# The operator's image, as an OCI archive: target/image/shoal.tar.
image: build
	python3 scripts/oci_archive.py target/release/shoal target/image/shoal.tar $(ARGS)

# What people install: target/dist, with a tarball, a package for Debian, the image, the chart, the bill of materials and digests.
dist: build
	python3 scripts/dist.py target/release target/dist

# What is generated for Kubernetes: the chart's definitions, and the chart as one file.
manifests:
	cargo build --locked -p shoal-server
	python3 -m conformance.cluster.manifests

# Compare Shoal with the bare tools; writes BENCHMARKS.md.
bench:
	scripts/setup bench
	$(MAKE) build
	cargo build --release --locked -p shoal-bench
	$(if $(filter 0,$(shell id -u)),,sudo) target/release/shoal-bench $(ARGS)

# Runs a benchmark of `conformance` on the release build: $(call measure,module,page that it writes).
define measure
	scripts/setup test
	conformance/packages
	$(MAKE) build
	SHOAL_BIN=$(CURDIR)/target/release/shoal target/conformance/venv/bin/python -m $(1) --output $(2) $(ARGS)
endef

# Compare the operator with the reference controller. `SHOAL_BENCH_REFERENCE` is a checkout of
# kubernetes-sigs/agent-sandbox, with bin/agent-sandbox-controller; without it there are no ratios.
bench-cluster:
	$(call measure,conformance.cluster.bench,docs/kubernetes-benchmarks.md)

# Compare checkpoints of pods with the bare runtime and with pods that start cold.
bench-checkpoints:
	$(call measure,conformance.cluster.bench.checkpoints,docs/kubernetes-checkpoint-benchmarks.md)

# Measure one replica of the E2B API in a cluster, beside the API server and nginx.
bench-replicas:
	scripts/setup bench
	$(call measure,conformance.cluster.bench.replicas,docs/kubernetes-api-benchmarks.md)

# Measure the web UI in Chromium, and MCP beside the API.
bench-ui:
	$(call measure,conformance.ui.bench,docs/ui-benchmarks.md)

# cargo-deny is on the path, or where `setup lint` installed it.
TOOLS := PATH="$$PATH:$(CURDIR)/target/tools/bin"

lint:
	scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	@if $(TOOLS) command -v cargo-deny >/dev/null; then $(MAKE) --no-print-directory deny; \
		else echo "lint: skipped: checking dependencies needs cargo-deny"; fi

test:
	scripts/test

# Every fuzz target for a minute (FUZZ_SECONDS). `test` runs the seeds.
fuzz:
	RUSTUP_TOOLCHAIN=nightly fuzz/run

# Check licences, bans and sources of dependencies; and advisories, if their database is reachable.
deny:
	$(TOOLS) cargo deny --locked check --hide-inclusion-graph licenses bans sources
	@if $(TOOLS) timeout 30 cargo deny fetch db >/dev/null 2>&1; then \
		$(TOOLS) cargo deny --locked check advisories; \
		else echo "deny: skipped: the advisory database is unreachable"; fi

fmt:
	cargo fmt --all
