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

# Dependencies: unused ones, licenses, bans, sources, advisories (needs cargo-shear and cargo-deny).
deps:
    cargo shear
    cargo deny check

# A control plane on this machine.
up *ARGS:
    cargo run --release -- up {{ARGS}}

# Upstream's programs, for the suites that compare with them (needs Go).
upstream:
    tests/upstream/build target/upstream

# The end-to-end suite on upstream's API server.
e2e-upstream: upstream
    EVENKEEL_UPSTREAM_BIN=$PWD/target/upstream cargo test --workspace --test e2e

# The operators of examples/ on upstream's API server.
examples-upstream: upstream
    EVENKEEL_UPSTREAM_BIN=$PWD/target/upstream cargo test --workspace --test upstream

# Scenarios on upstream's API server, with upstream's programs and with ours: both must write the same.
scenarios *NAMES:
    tests/upstream/build target/upstream kubectl kubemark
    cargo build --release
    EVENKEEL_UPSTREAM_BIN=$PWD/target/upstream tests/scenarios/run {{NAMES}}

# The tables that are recorded from upstream's programs: are they what those say? `just record --write` makes them so.
record *ARGUMENTS:
    tests/upstream/build target/upstream cloud-controller-manager
    tests/upstream/record {{ARGUMENTS}}

# Mutants of a crate, or of the files whose paths have one of the parts: which do its unit tests not catch?
mutants CRATE *PARTS:
    cargo run --manifest-path tests/mutants/Cargo.toml -- unit --package {{CRATE}} {{PARTS}}

# Programs that forget one thing: does the simulation notice each?
crippled *NAMES:
    cargo run --manifest-path tests/mutants/Cargo.toml -- simulation {{NAMES}}

# The packages, as a project outside of this workspace uses them.
outsider *VERSIONS:
    tests/outsider/run {{VERSIONS}}

# What must pass before a change lands.
ci:
    .ci/run

# The book of docs/ below target/book, with its commands run (needs mdbook and kubectl).
book:
    cargo build --release
    cargo build --package site-operator
    tests/docs/run $(which kubectl) target/release/evenkeel
    mdbook build docs

# The pages of the book's reference.
reference:
    cargo run -- man --markdown docs/reference
