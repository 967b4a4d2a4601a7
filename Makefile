# Every target works alone, on a fresh Debian machine that has Go.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test bench world world-full soak lint fmt build deb need-go need-postgres need-race need-roots need-node need-npm need-chromium

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Given to pharos serve: make run ARGS='--config pharos.yaml'
ARGS ?=
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := mvdan.cc/gofumpt@v0.12.0
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
# Where the Node.js that npm brings is, when the machine's is too old.
NODE_PACKAGE := node-linux-$(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x64)
export PATH := $(CURDIR)/bin/node/node_modules/$(NODE_PACKAGE)/bin:$(PATH)
# Directories with a package.json, for tests.
NPM_DIRS := api/webtest probe/interop publisher/interop
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: need-go need-postgres need-roots build ## build and start pharos serve (ARGS='--config FILE')
	exec ./bin/pharos serve $(ARGS)

build: need-go ## build ./bin/pharos
	$(BUILD) -o bin/pharos ./cmd/pharos

# The package arrows are held by a test in cmd/pharos; -short is never used and
# nothing is skipped where PostgreSQL, Node.js or the browser is missing.
test: need-go need-postgres need-race need-npm need-chromium lint build ## all checks and tests
	CGO_ENABLED=1 go test -race -timeout 15m ./...

bench: need-go need-postgres ## the benchmarks of the README, each beside its floor
	CGO_ENABLED=0 go test -run '^$$' -bench '^BenchmarkP[0-9]' -p 1 -timeout 30m ./... | grep -v -e 'no test files' -e '^PASS'

# Rows of a Markdown table; a promise that is not kept fails.
WORLD := CGO_ENABLED=0 go test -count=1 -v -timeout 6h -run '^TestWorld$$' ./cmd/pharos/world -relays 3000 -days 30

world: need-go ## 30 days of 3 000 relays and 5 vantages that fail: what is wrongly called dead, and what is missed
	@$(WORLD) -vantages 5 -seeds 1 | { grep -v -e '^===' -e '^---' -e '^PASS' || true; }

world-full: need-go ## the same five times each, with 1, 3, 5 and 10 vantages: the table of the README (half an hour)
	@$(WORLD) -vantages 1,3,5,10 -seeds 5 | { grep -v -e '^===' -e '^---' -e '^PASS' || true; }

# SOAK='-kills 10 -away 10m' changes how often, and for how long.
SOAK ?=

soak: need-go need-postgres ## kill real vantages and a core while they work, 50 times each: what is lost (a quarter of an hour)
	@CGO_ENABLED=0 go test -count=1 -v -timeout 3h -tags soak -run '^TestSoak$$' ./cmd/pharos $(SOAK) | { grep -v -e '^===' -e '^---' -e '^PASS' || true; }

deb: need-go build ## build dist/pharos_VERSION_ARCH.deb
	./bin/pharos config check --config deploy/pharos.yaml
	@mkdir -p dist
	@version='$(VERSION:v%=%)'; arch="$$(go env GOARCH)"; \
	if ! grep -q '^[0-9]*[.]' <<<"$$version"; then version="0~git.$$version"; fi; \
	file="dist/pharos_$${version//-/.}_$$arch.deb"; \
	DEB_VERSION="$${version//-/.}" ARCH="$$arch" go run $(NFPM) package --config deploy/nfpm.yaml --packager deb --target "$$file"

lint: need-go ## gofmt, go vet, golangci-lint where it is installed, else staticcheck
	@unformatted=$$(find . -name node_modules -prune -o -name '*.go' -exec gofmt -l {} +); [ -z "$$unformatted" ] || { echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -tags soak ./cmd/pharos
	@if command -v golangci-lint >/dev/null; then \
		echo golangci-lint run; golangci-lint run; \
	else \
		echo go run $(STATICCHECK) ./...; go run $(STATICCHECK) ./...; \
	fi

fmt: need-go ## format the code
	go run $(GOFUMPT) -w .

need-go:
	@command -v go >/dev/null || { echo "Go 1.26 or newer is needed: see https://go.dev/dl"; exit 1; }

# install,PACKAGES[,WHAT TO NAME] — as root, or by sudo; says what is coming.
define install
	if ! command -v apt-get >/dev/null; then \
		echo "Please install with your system's package manager: $(or $(2),$(1))"; exit 1; \
	fi; \
	sudo=; \
	if [ "$$(id -u)" != 0 ]; then \
		command -v sudo >/dev/null || { echo "Please run as root: apt-get install $(or $(2),$(1))"; exit 1; }; \
		sudo=sudo; \
	fi; \
	echo "This installs with apt-get: $(1)"; \
	{ $$sudo apt-get update -qq && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); } || \
	{ echo "Could not install $(1): mend what apt-get says above, or install it yourself, and run make again."; exit 1; }
endef

# Pharos runs a PostgreSQL of its own from the server's programs. Debian's
# package would also make and start a cluster that nobody asked for.
need-postgres:
	@if ! command -v initdb >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! compgen -G '/usr/pgsql-*/bin/initdb' >/dev/null; then \
		echo "PostgreSQL's programs are missing: Pharos keeps its history in a private PostgreSQL."; \
		$(call install,postgresql-common,postgresql); \
		$$sudo sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf; \
		$(call install,postgresql); \
	fi

# The race detector needs a C compiler and the C library's headers.
need-race:
	@if ! command -v gcc >/dev/null || ! echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1; then \
		echo "A C compiler is missing: the race detector needs one."; \
		$(call install,gcc libc6-dev); \
	fi

# Node.js 20.19 or newer runs the Nostr clients and the browser's tests. Debian
# 12's is older: then npm brings one into ./bin, which only make uses.
need-node: need-roots
	@new='const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || a == 20 && b >= 19 ? 0 : 1)'; \
	if ! command -v npm >/dev/null; then \
		echo "npm is missing: tests run the clients that people read relay reports with."; \
		$(call install,npm); \
	fi; \
	if ! command -v node >/dev/null || ! node -e "$$new"; then \
		echo "Node.js is missing or older than 20.19: npm brings one into ./bin."; \
		mkdir -p bin/node; \
		npm install --prefix bin/node --no-save --no-package-lock --no-audit --no-fund --ignore-scripts $(NODE_PACKAGE)@22.23.5; \
		hash -r; \
		node -e "$$new"; \
	fi

need-npm: need-node $(NPM_DIRS:%=%/node_modules/.package-lock.json)

# As the lock files say; anew when one of them changes.
%/node_modules/.package-lock.json: %/package.json %/package-lock.json | need-node
	cd $* && npm ci --prefer-offline --no-audit --no-fund --ignore-scripts
	@touch $@

need-chromium:
	@if ! command -v chromium >/dev/null; then \
		echo "Chromium is missing: tests look at the page with it."; \
		$(call install,chromium); \
	fi

# Without CA certificates every wss:// relay would look untrusted.
need-roots:
	@if [ ! -e /etc/ssl/certs/ca-certificates.crt ] && command -v apt-get >/dev/null; then \
		echo "CA certificates are missing: without them no wss:// relay can be verified."; \
		( $(call install,ca-certificates) ) || echo "They could not be installed: going on without."; \
	fi
