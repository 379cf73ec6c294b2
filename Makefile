# Thin on purpose: what a target does is written in xtask/, in Rust.
#
# Reserved, so taken by nothing else: `build-all`, `build-all-linux`, `build-all-script` and
# `build-version`.

.DEFAULT_GOAL := help
.PHONY: help build check chart test e2e demo bench install tools clean toolchain

help: ## print this
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

build: toolchain ## build the release binaries for this machine into dist/bin
	@cargo xtask build

check: toolchain ## the quick loop: format, lints, unit tests, dependencies, docs
	@cargo xtask check

chart: toolchain ## lint the Helm chart, render it with many values, and look at what comes of it
	@cargo xtask chart

test: toolchain ## everything, from a fresh machine on (root)
	@cargo xtask test

e2e: toolchain ## what needs a real Kubernetes, which is built first: that takes long (root)
	@cargo xtask e2e

demo: toolchain ## three nodes, their pods, and what these see of each other (root); KEEP=1 leaves it up
	@cargo xtask demo $(if $(filter-out 0,$(KEEP)),--keep)

bench: toolchain ## measure (root); PART=daemon, delegate, ipam, mesh or native for one, ITERATIONS=200
	@cargo xtask bench $(PART) --iterations $(or $(ITERATIONS),200)

install: toolchain ## put dist/bin into $(DESTDIR)/opt/cni/bin and $(DESTDIR)/usr/local/bin
	@cargo xtask install --destdir '$(DESTDIR)'

tools: toolchain ## fetch the real components that tests run against; PART=kubernetes those of e2e
	@cargo xtask tools $(PART)

# rustup installs the pinned toolchain on first use, unless the machine forbids it to.
toolchain:
	@cargo --version >/dev/null 2>&1 || rustup toolchain install --no-self-update

clean: ## remove what was built; fetched tools stay
	cargo clean
	rm -rf dist
