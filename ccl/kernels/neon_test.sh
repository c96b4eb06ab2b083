#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
#
# Compiles the folds for 64-bit Arm and checks them under qemu's emulation.
set -euo pipefail

for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v "$tool" > /dev/null; then
    echo "$tool is missing: apt-get install g++-aarch64-linux-gnu qemu-user"
    exit 1
  fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of the host's headers only these two libraries', which suit any processor.
mkdir "$work/include"
ln -s /usr/include/hwy /usr/include/absl "$work/include"

aarch64-linux-gnu-g++ -std=c++20 -O1 -ffp-contract=off -static \
  -DHWY_COMPILE_ONLY_STATIC -I. -isystem "$work/include" \
  ccl/kernels/neon_check.cc ccl/kernels/fold_oracle.cc \
  ccl/kernels/random_fold.cc ccl/base/types.cc -o "$work/check"
qemu-aarch64 "$work/check" | tee "$work/output"
grep -q '^NEON' "$work/output"
