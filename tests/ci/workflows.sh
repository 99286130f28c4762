#!/usr/bin/env bash
# What actionlint and zizmor find in the workflows; exit 1 where it is anything.
#
#   tests/ci/workflows.sh            those of this repository
#   tests/ci/workflows.sh FILES...   others
#
# actionlint is built from its Go module once, and kept in the cache folder; it has shellcheck look at
# what the steps run. zizmor and shellcheck come with the other tools of `make check`. None of them
# asks the network.

LOGS=/dev/null
# shellcheck source=tests/ci/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VERSION=1.7.12

main() {
	local program
	trap 'rm -rf "$work"' EXIT
	have_venv
	program="${XDG_CACHE_HOME:-$HOME/.cache}/fleet-reconciler/actionlint-$VERSION/actionlint"
	[ -x "$program" ] || build "$(dirname "$program")"
	if [ $# -eq 0 ]; then
		"$program" -shellcheck "$VENV/bin/shellcheck"
		"$VENV/bin/zizmor" --offline --quiet .github action.yml
	else
		"$program" -shellcheck "$VENV/bin/shellcheck" "$@"
		"$VENV/bin/zizmor" --offline --quiet "$@"
	fi
	say "actionlint $VERSION and zizmor find nothing"
}

# What Go itself keeps goes again.
build() {
	command -v go >/dev/null || die "actionlint is built from its Go module: https://go.dev/dl, or brew install go"
	say "building actionlint $VERSION once, into $1"
	GOCACHE="$work/cache" GOMODCACHE="$work/modules" GOFLAGS=-modcacherw GOBIN="$work/bin" \
		go install "github.com/rhysd/actionlint/cmd/actionlint@v$VERSION"
	mkdir -p "$1"
	mv "$work/bin/actionlint" "$1/actionlint"
}

main "$@"
