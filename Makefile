# `make up` and `make test` do everything; the rest is for those who change dapple.

DAPPLE := target/debug/dapple

.PHONY: up down test upstream bench release strangers outage leader stories sim fuzz fmt lint coverage crds build

up: build            ## A real local cluster with dapple and an example fleet
	$(DAPPLE) up --detach

down: build          ## Stops it and leaves nothing behind
	$(DAPPLE) down

test: lint upstream  ## Everything that CI runs
	bash scripts/test

upstream:            ## Builds etcd, Kubernetes, kwok and containerd once into the user's cache
	cargo run -q -p dapple-testbed --example obtain

bench:               ## Measures; every figure is a ratio taken in one run
	cargo run --release -p dapple-bench --bin caches
	cargo run --release -p dapple-bench --bin startup
	cargo run --release -p dapple-bench --bin merge
	cargo run --release -p dapple-bench --bin plan
	cargo run --release -p dapple-bench --bin decide
	cargo run --release -p dapple-bench --bin marker
	cargo run --release -p dapple-bench --bin extender
	cargo run --release -p dapple-bench --bin daemonset
	cargo run --release -p dapple-bench --bin memory
	cargo build --release -p dapple
	cargo run --release -p dapple-bench --bin admission
	cargo run --release -p dapple-bench --bin groups
	cargo run --release -p dapple-bench --bin pools

release:             ## The program for others: target/dist/dapple, stripped, with its symbols beside it
	cargo build --release -p dapple
	mkdir -p target/dist
	objcopy --only-keep-debug target/release/dapple target/dist/dapple.debug
	cd target/dist && objcopy --strip-all --add-gnu-debuglink=dapple.debug ../release/dapple dapple

strangers:           ## Writes while strangers hold every connection, and the API server comes anew
	cargo build --release -p dapple
	cargo run --release -p dapple-bench --bin admission strangers

outage:              ## The first write after minutes without an API server, with 10,000 nodes
	cargo run --release -p dapple-bench --bin outage

leader:              ## What is read and written after a change of leader, with 10,000 nodes and 20 DaemonSets
	cargo run --release -p dapple-bench --bin leader

stories:             ## The stories of node groups in full: about 15 minutes
	DAPPLE_SCALINGS=50 DAPPLE_MOVES=50 cargo test -p dapple-control-tests group::
	DAPPLE_RELABELLINGS=600 cargo test -p dapple --test it bursts

SEEDS ?= 10000
sim:                 ## The controllers under faults: SEEDS runs of every family
	cargo run --release -p dapple-sim --features mutants -- --seeds $(SEEDS)

fuzz:                ## A million hostile inputs for each target; needs a nightly compiler
	bash scripts/fuzz manifest
	bash scripts/fuzz patch
	bash scripts/fuzz edits
	bash scripts/fuzz review

fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	bash scripts/one-stack
	cargo clippy --workspace --all-targets --features dapple-sim/mutants -- -D warnings

coverage:            ## Lines per crate; api, edit and plan stay above 80 %
	bash scripts/coverage

crds: build          ## Writes the generated CRDs into config/
	$(DAPPLE) crds --write config/crds

build:
	cargo build -p dapple
