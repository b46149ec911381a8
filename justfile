# Recipes for everyday work; `just --list` shows them. What must pass before a change lands is .ci/run.

# Everything that needs no other program.
test:
    cargo test --workspace

# All tests but the simulation, which takes most of the time.
test-fast:
    cargo test --workspace --exclude evenkeel-sim

# Formatting, lints and documentation as CI checks them.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --document-private-items

# A control plane on this machine.
up *ARGS:
    cargo run --release -- up {{ARGS}}

# Upstream's programs, for the suites that compare with them (needs Go).
upstream:
    tests/upstream/build target/upstream

# The end-to-end suite on upstream's API server.
e2e-upstream: upstream
    EVENKEEL_UPSTREAM_BIN=$PWD/target/upstream cargo test --workspace --test e2e

# What must pass before a change lands.
ci:
    .ci/run
