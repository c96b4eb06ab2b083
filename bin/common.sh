# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
#
# What the scripts of bin/ share; sourced by them, never run. Sets `root`, the
# top of the tree, goes there, and gives say, die, run_bazel, install_package
# and as_root.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
script="bin/$(basename "$0")"
cd "$root"

say() { printf '== %s\n' "$*"; }

die() {
  printf '\n%s: %s\n' "$script" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

# Bazel, with progress that suits a terminal or, every few seconds, a log.
run_bazel() {
  local command="$1"
  shift
  if [ -t 2 ]; then
    bazel "$command" "$@"
  else
    bazel "$command" --color=no --curses=no --show_progress_rate_limit=10 "$@"
  fi
}

# Puts the Python package into .venv; pip has Bazel build it, which is quick if
# it's built already.
install_package() {
  .venv/bin/python -m pip install --disable-pip-version-check --quiet \
    --no-build-isolation --no-deps . ||
    die "installing the package trnccl into .venv failed: see above."
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -- "$@"
  fi
}
