# Every verb is one line that also works without just.

# Lists the verbs.
default:
    @just --list

# Brings what is missing: Rust, a C compiler, nats-server, Redis or Valkey.
prepare:
    ./dev prepare

# Builds the binaries.
build:
    ./dev build

# Formats the code.
fmt:
    cargo fmt --all

# Checks format and lints.
lint:
    ./dev lint

# Runs all tests; arguments go to `cargo test`.
test *ARGS:
    ./dev test {{ ARGS }}

# Soaks a fleet: 10,000 calls in 10 minutes with a fault about every second; --calls, --minutes, --seed.
soak *ARGS:
    ./dev soak {{ ARGS }}

# Runs one model message with several tool calls over a fleet of its own.
demo:
    ./dev demo

# Runs a fleet with the example tools until it is stopped.
up *ARGS:
    ./dev up {{ ARGS }}
