#!/usr/bin/env bash
# `make soak`, with what failed kept in a folder: each round in a new order and with new examples.
#
#   ROUNDS=10 tests/ci/soak.sh
#   ROUNDS=2 T=tests/core/test_planner.py tests/ci/soak.sh    a part
#
# A round that fails ends nothing; the last lines say how to repeat it. LOGS is where the log and what
# failed tests leave goes (build/ci/soak).

LOGS="${LOGS:-$(dirname "${BASH_SOURCE[0]}")/../../build/ci/soak}"
mkdir -p "$LOGS"
LOGS="$(cd "$LOGS" && pwd)"
# shellcheck source=tests/ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export ROUNDS="${ROUNDS:-10}"
HOURS=5 # a job of GitHub's has six

main() {
	trap 'finish $?' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	[ -z "${CI:-}" ] || die "with CI=$CI every round would take the same examples: unset it"
	step 900 have_venv
	step 60 "$VENV/bin/python" -m tests.suite.preflight
	step $((HOURS * 3600)) keeping_failures "$VENV/bin/python" -m tests.suite.soak
}

main 2>&1 | tee "$LOGS/soak.log"
