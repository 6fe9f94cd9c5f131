#!/bin/sh
# `arm_gxx.sh CPU ...`: what g++ does on a machine with that CPU of Arm's, from any other.
cpu=$1
shift
for argument; do
    shift
    [ "$argument" = -mcpu=native ] && argument=-mcpu=$cpu
    set -- "$@" "$argument"
done
exec aarch64-linux-gnu-g++ "$@"
