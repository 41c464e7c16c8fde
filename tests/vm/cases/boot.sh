#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# boot.sh - the guest boots, has the modules and devices that other cases need, and Braid loads in it.
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

modules_are_there()
{
	# a module has a directory there, whether built in or loaded
	for module in $(sed 's/#.*//;/[?+]$/d' "$vm/modules"); do
		[ -d "/sys/module/$module" ] || { echo "no $module"; return 1; }
	done
}

has_devices()
{
	in_a "$braid" info --plugin "$plugin" --json | tee "$tmp/info" && grep -q '"w1"' "$tmp/info"
}

hosts
wire 1500
case_ "modules are loaded" modules_are_there
case_ "braid info names the device" has_devices
case_ "a wire without faults" checked --pattern bidir --sizes 8,64k,1m
done_
