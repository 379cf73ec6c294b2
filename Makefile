# Thin on purpose: what a target does is written in xtask/, in Rust.
# Run every target as yourself: the ones marked "sudo" call sudo for the steps that need root.
#
# Reserved for other uses: `build-all`, `build-all-linux`, `build-all-script` and `build-version`.

.DEFAULT_GOAL := help
.PHONY: help build check chart test e2e demo bench install tools clean toolchain

help: ## print this
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: toolchain ## build the release binaries for this machine into dist/bin
	@cargo xtask build

check: toolchain ## the quick loop: format, lints, unit tests, dependencies, docs
	@cargo xtask check

chart: toolchain ## lint the Helm chart and check what it renders
	@cargo xtask chart

test: toolchain ## every check and test except e2e (sudo)
	@cargo xtask test

e2e: toolchain ## tests on a real Kubernetes, which is built first (sudo)
	@cargo xtask e2e

demo: toolchain ## three nodes and their pods in one mesh, on this machine (sudo); KEEP=1 leaves it up
	@cargo xtask demo $(if $(filter-out 0,$(KEEP)),--keep)

bench: toolchain ## benchmarks (sudo); PART=daemon, delegate, ipam, mesh or native, ITERATIONS=200
	@cargo xtask bench $(PART) --iterations $(or $(ITERATIONS),200)

install: toolchain ## copy dist/bin to $(DESTDIR)/opt/cni/bin and $(DESTDIR)/usr/local/bin
	@cargo xtask install --destdir '$(DESTDIR)'

tools: toolchain ## install what tests run against; PART=kubernetes for e2e (sudo)
	@cargo xtask tools $(PART)

# rustup installs the pinned toolchain on first use, unless the machine forbids that.
toolchain:
	@command -v cargo >/dev/null || { \
		echo 'error: cargo is not in PATH: install rustup (https://rustup.rs).' >&2; \
		test -z "$$SUDO_USER" || echo 'Run make without sudo: it calls sudo where root is needed.' >&2; \
		exit 1; }
	@command -v cc >/dev/null || { echo 'error: no C linker: run "apt-get install gcc libc6-dev".' >&2; exit 1; }
	@cargo --version >/dev/null 2>&1 || rustup toolchain install --no-self-update

clean: ## remove what was built; installed tools stay
	cargo clean
	rm -rf dist 2>/dev/null || sudo rm -rf dist
