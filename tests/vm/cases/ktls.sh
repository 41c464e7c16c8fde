#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# ktls.sh - kernel TLS between two network namespaces: each direction of each end by the kernel or in
# user space, while connections are reset and while keys grow old.  Every byte is checked, and the
# kernel's own counters show who sealed and opened.
minutes=5
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$0")/../lib.sh"

sizes="--pattern bidir --sizes 8,8k,1m --iters 3 --warmup 0"

# tls NETNS WHAT - lanes of that network namespace whose kernel has sealed (Tx) or opened (Rx), ever.
tls()
{
	ip netns exec "$1" awk -v name="Tls$2Sw" '$1 == name { print $2 }' /proc/net/tls_stat
}

counts()
{
	echo "$(tls "$a" Tx) $(tls "$a" Rx) $(tls "$b" Tx) $(tls "$b" Rx)"
}

# by END_A END_B WANTED - data is right with these words of BRAID_ENCRYPT_BY, and the four counts have
# grown (+) or not (-).
by()
{
	env_a="BRAID_ENCRYPT_BY=$1" env_b="BRAID_ENCRYPT_BY=$2"
	before=$(counts)
	# shellcheck disable=SC2086 # a list
	checked $sizes || return
	echo "$before -> $(counts), wanted: $3"
	echo "$before $(counts) $3" | awk '{
		for (i = 1; i <= 4; i++)
			bad += ($(i + 4) > $i) != (substr($9, i, 1) == "+")
		exit bad }'
}

# How often lanes came back, by the log of host b.
back()
{
	grep -c 'is back\|has new keys' "$tmp/err.b"
}

# Reset a connection of the job.
reset()
{
	in_a ss -HKtn dst 10.77.1.2 | grep -q ESTAB
}

talk_s=8			# an emulated guest takes seconds to begin
resets()
{
	env_a="BRAID_ENCRYPT_BY=$1" env_b="BRAID_ENCRYPT_BY=$2"
	while_talking reset || return
	echo "lanes came back $(back) times"
	[ "$(back)" -gt 0 ]
}

# Keys of so few records that each 100 ms brings new ones.
new_keys()
{
	env_a="BRAID_ENCRYPT_BY=$1 BRAID_KEY_RECORDS=$3" env_b="BRAID_ENCRYPT_BY=$2 BRAID_KEY_RECORDS=$3"
	checked --pattern bidir --sizes 64k --seconds 4 --verbose || return
	grep -h 'has new keys' "$tmp/err" "$tmp/err.b" >"$tmp/new"
	cat "$tmp/new"
	[ -s "$tmp/new" ]
}

vm_later || exit
hosts
wire 1500
env_both="BRAID_SOCKET_IFNAME==w1 BRAID_ENCRYPT=require"
with_b=--verbose
case_ "the kernel at both ends" by kernel kernel ++++
case_ "the kernel seals for user space" by kernel-send user +---
case_ "user space seals for the kernel" by user kernel-receive ---+
case_ "the kernel at one end, user space at the other" by user kernel --++
env_both="$env_both BRAID_CIPHER=chacha20"
case_ "ChaCha20-Poly1305" by kernel kernel ++++
env_both="$env_both BRAID_CIPHER=aes128"
case_ "AES-128-GCM" by kernel kernel ++++
case_ "a connection is reset: the kernel at both ends" resets kernel kernel
case_ "a connection is reset: the kernel at one end" resets user kernel
case_ "keys grow old: the kernel at both ends" new_keys kernel kernel 2048
case_ "keys grow old: the kernel at one end" new_keys kernel user 2048
done_
