#!/usr/bin/env bash
# The agent on a Mac: kqueue, launchd, vm_stat, Metal, as its own tests show them.
#
#   tests/ci/macos.sh                       every test of the agent that needs no cluster
#   tests/ci/macos.sh tests/e2e/test_launchd.py   a part: words for pytest
#
# It installs nothing but .venv, and needs a llama-server (`brew install llama.cpp`); mlx-lm comes with
# .venv. With CI=true it gives the machine the address 127.0.0.2, by sudo. On Linux the same tests run,
# and what needs macOS is named. LOGS is where its log and what failed tests leave goes
# (build/ci/macos).

LOGS="${LOGS:-$(dirname "${BASH_SOURCE[0]}")/../../build/ci/macos}"
mkdir -p "$LOGS"
LOGS="$(cd "$LOGS" && pwd)"
# shellcheck source=tests/ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

main() {
	trap 'finish $?' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	step 900 have_venv
	step 900 have_llama_server
	step 120 say_what_it_is
	if is_mac; then
		step 30 have_another_address
	else
		not_here "launchd, kqueue, vm_stat, Metal, mlx on a GPU (needs macOS)"
	fi
	if [ $# -eq 0 ]; then
		# Whatever an agent does; not what a cluster, a container or the command line alone does.
		set -- tests/e2e tests/agent tests/agents/test_arrival.py tests/capacity/test_memory_overrides.py \
			tests/kube/test_takeover.py tests/loop/test_slice_loop.py tests/memory tests/project/test_ports.py \
			tests/runtimes/test_runtimes.py tests/source/test_slice.py \
			--ignore-glob='*/agent/test_pod_*.py' \
			--ignore=tests/e2e/test_chart.py --ignore=tests/e2e/test_containers.py \
			--ignore=tests/e2e/test_ci_scripts.py
	fi
	step 4200 tests "$@"
}

is_mac() { [ "$(uname)" = Darwin ]; }

have_llama_server() {
	if is_mac && ! command -v llama-server >/dev/null && [ -z "${LLAMA_SERVER:-}" ]; then
		die "no llama-server: brew install llama.cpp"
	fi
	"$VENV/bin/python" -m tests.support.llama_server # built where there is none
}

# Everything that a person who reads the log must know of the machine.
say_what_it_is() {
	local server
	server="$("$VENV/bin/python" -m tests.support.llama_server | tail -n 1)"
	uname -a
	if is_mac; then
		sw_vers
		sysctl hw.memsize hw.perflevel0.physicalcpu machdep.cpu.brand_string kern.bootsessionuuid || true
		system_profiler SPDisplaysDataType
		vm_stat
		launchctl print "gui/$(id -u)" >/dev/null || say "there is no session of this user for launchd"
	fi
	"$server" --version
	"$server" --list-devices
	"$VENV/bin/python" -c 'import mlx.core; print("mlx computes on", mlx.core.default_device())'
	"$VENV/bin/fleet-agent" --version
	"$VENV/bin/fleet-agent" probe --node here
}

# Linux has all of 127.0.0.0/8; a Mac has what it is given.
have_another_address() {
	if ! ifconfig lo0 | grep -q 'inet 127\.0\.0\.2 '; then
		if [ "${CI:-}" != true ] || ! sudo -n ifconfig lo0 alias 127.0.0.2; then
			not_here "services on an address of their own (needs sudo ifconfig lo0 alias 127.0.0.2)"
		fi
	fi
}

tests() {
	ulimit -n 4096 || true # a Mac gives 256
	keeping_failures "$VENV/bin/python" -m tests.suite -m "not cluster" "$@"
}

main "$@" 2>&1 | tee "$LOGS/macos.log"
