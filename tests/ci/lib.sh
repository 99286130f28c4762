# shellcheck shell=bash
# What the scripts of this folder share. It runs with the bash 3.2 of macOS, too.
#
# A script is a list of steps, each a function with a deadline. What is not to be had on a machine is
# said and skipped; everything else that fails ends the script. LOGS is where logs go.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

VENV="${VENV:-.venv}"
work="$(mktemp -d)" # the script's own: gone at the end
step_pid=""

say() { printf '%s\n' "$*"; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# not_here WHAT: not shown by this run, and why.
not_here() {
	printf 'not here: %s\n' "$*" | tee -a "$work/not-here"
}

# step SECONDS FUNCTION [WORDS...]: run it in a shell of its own. What it leaves running goes on,
# unless it fails or takes longer: then all of it ends.
step() {
	local seconds="$1" code=0 began=$SECONDS
	shift
	say
	say "== $* (at most $seconds s)"
	set -m # a process group of its own
	(
		set +m # and the same one for all that it starts
		set -e
		"$@"
	) &
	step_pid=$!
	set +m
	while kill -0 "$step_pid" 2>/dev/null; do
		if [ $((SECONDS - began)) -ge "$seconds" ]; then
			end_step
			die "not done within $seconds s: $*"
		fi
		sleep 0.1
	done
	wait "$step_pid" || code=$?
	if [ "$code" -ne 0 ]; then
		end_step
		die "failed: $*"
	fi
	say "-- done in $((SECONDS - began)) s"
	step_pid=""
}

# The step under way, with all that it has started.
end_step() {
	local tries=0
	[ -n "$step_pid" ] || return 0
	kill -TERM -- "-$step_pid" 2>/dev/null || true
	while kill -0 -- "-$step_pid" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || kill -KILL -- "-$step_pid" 2>/dev/null || true
		sleep 0.1
	done
	step_pid=""
}

# until_true SECONDS WHAT COMMAND...: tried again and again.
until_true() {
	local seconds="$1" what="$2" began=$SECONDS
	shift 2
	until "$@" >"$work/tried" 2>&1; do
		if [ $((SECONDS - began)) -ge "$seconds" ]; then
			cat "$work/tried" >&2
			die "not within $seconds s: $what"
		fi
		sleep 0.3
	done
}

# keep_running NAME COMMAND...: in the background, until the script ends. It prints to LOGS/NAME.log.
keep_running() {
	local name="$1"
	shift
	: >"$LOGS/$name.log" # that of an earlier run is no sign of this one
	"$@" >"$LOGS/$name.log" 2>&1 </dev/null &
	echo $! >"$work/$name.pid"
}

stop_running() {
	local file pid
	for file in "$work"/*.pid; do
		[ -e "$file" ] || continue
		pid="$(cat "$file")"
		kill "$pid" 2>/dev/null || true
		( until_true 20 "the end of $file" is_gone "$pid" ) || kill -KILL "$pid"
		rm -f "$file"
	done
}

is_gone() { ! kill -0 "$1" 2>/dev/null; }

# The same environment as `make check` has; VENV names another one.
have_venv() {
	[ -x "$VENV/bin/reconcile" ] || make "$VENV/.dev"
}

# keeping_failures COMMAND...: runs of tests.suite. What those that failed have kept goes to LOGS, but
# for models, which are large, and known.
keeping_failures() {
	local code=0 folder
	mkdir "$work/runs"
	TMPDIR="$work/runs" "$@" || code=$?
	for folder in "$work"/runs/fleet-tests-*; do
		[ -d "$folder" ] || continue
		find "$folder" -type f -size -2048 ! -path '*/models/*' -print0 |
			tar --null -T - -czf "$LOGS/$(basename "$folder").tgz" || true
	done
	return "$code"
}

# At the very end, whatever happened: which of all this was not shown.
finish() {
	local code="$1"
	end_step
	stop_running
	say
	if [ -s "$work/not-here" ]; then
		say "$(basename "$0"): not shown by this run:"
		sed 's/^not here: /  /' "$work/not-here"
	fi
	[ "$code" -ne 0 ] || say "$(basename "$0"): everything that it can show here holds"
	rm -rf "$work"
}
