#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# validate_rma.bats - braid validate's checks of one-sided operations: Braid passes them all, and each
# fails for a plugin that is broken in the one way it looks for (tests/validate/broken_rma.c).
# shellcheck disable=SC2154 # what run sets

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
build=${BRAID_TEST_BUILDDIR:-.}
broken=$build/tests/validate/.libs/broken_rma.so

setup()
{
	export BRAID_SOCKET_IFNAME=lo BREAK_PLUGIN=$plugin BREAK_SHARE=$BATS_TEST_TMPDIR
	unset BRAID_TRANSPORTS BRAID_RMA BREAK NO_COLOR
}

# "MODE ID OTHERS": with BREAK=MODE, ID fails and OTHERS pass.
broken_as()
{
	local mode id others complaints=

	while read -r mode id others; do
		[ "$mode" ] || continue
		run --separate-stderr env BREAK="$mode" timeout 100 "$braid" validate \
			--plugin "$broken" --faults --tap --only "$id,$others"
		[ "$status" -eq 1 ] || complaints+="$mode: exit status $status, $output $stderr"$'\n'
		grep -q "^not ok [0-9]* - $id: " <<<"$output" ||
			complaints+="$mode: $id did not fail: $output"$'\n'
		[ "$(grep -c '^not ok' <<<"$output")" -eq 1 ] ||
			complaints+="$mode: others failed than $id: $output"$'\n'
		[[ $output != *"# SKIP"* ]] || complaints+="$mode: something was skipped: $output"$'\n'
		grep -A2 "^not ok [0-9]* - $id: " <<<"$output" | grep -qE '^  message: ".{10}' ||
			complaints+="$mode: $id does not say what it saw"$'\n'
	done
	echo "$complaints"
	[ -z "$complaints" ]
}

@test "Braid passes all checks of one-sided operations, and none is skipped" {
	run --separate-stderr timeout 300 "$braid" validate full --faults --plugin "$plugin" \
		--only rma --tap
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^ok ' <<<"$output")" -ge 60 ]
	[[ $output != *"# SKIP"* ]]
}

@test "Braid passes them over RDMA" {
	[ -e "$build/tests/fake/.libs/libibverbs.so.1" ] || skip "built without RDMA"
	case ${BRAID_TEST_SANITIZER-} in *address*) skip "not with a sanitizer" ;; esac
	run --separate-stderr env LD_LIBRARY_PATH="$build/tests/fake/.libs" \
		BRAID_TEST_FAKE_FABRIC="$BATS_TEST_TMPDIR/fabric" \
		BRAID_TEST_FAKE_DEVICES=roce0:rocev2,netdev=lo timeout 300 \
		"$braid" validate --faults --plugin "$plugin" --transport verbs --only rma --tap
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output != *"# SKIP"* ]]
}

@test "a plugin that is not broken passes them through the same library" {
	run --separate-stderr timeout 300 "$braid" validate --faults --plugin "$broken" \
		--only rma --tap
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[[ $output != *"# SKIP"* ]]
}

@test "checks of the table, of init and of devices find what is wrong" {
	broken_as <<-END
	noput rma-load load-init
	name rma-name rma-load,rma-members
	noget rma-members rma-load
	old rma-versions rma-name,rma-strong-order
	twice rma-init-twice rma-names,rma-connect
	init rma-init-again rma-init-twice
	host rma-props rma-names
	names rma-names rma-props
	budget rma-budget rma-props
	dmabuf rma-dmabuf rma-props
	bounds rma-bounds rma-props
	flushes rma-flushes-all rma-connect
	END
}

@test "checks of communicators and contexts find what is wrong" {
	broken_as <<-END
	handle rma-handle rma-props
	refuse rma-connect rma-alone
	alone rma-alone rma-connect
	ctx rma-foreign-ctx rma-connect
	group rma-subset rma-connect
	stride rma-stride rma-connect
	four rma-four-colls rma-subset
	context rma-contexts rma-context-calls
	second rma-context-calls rma-contexts
	class rma-class rma-connect
	listen rma-listen-last rma-connect
	left rma-close-context rma-connect
	dereg rma-dereg-last rma-connect
	comm rma-reopen rma-connect,rma-windows-gone
	idle rma-idle rma-connect
	leaves rma-leaves rma-contexts
	END
}

@test "checks of puts find what is wrong" {
	broken_as <<-END
	tail rma-put-sizes rma-put-values
	huge rma-put-huge rma-put-sizes
	shift rma-put-unaligned rma-put-sizes
	value rma-put-values rma-put-unaligned
	edge rma-put-edges rma-put-values
	empty rma-put-empty rma-spin,rma-handle
	early rma-source rma-put-values,rma-connect
	flip2 rma-both-ways rma-put-values,rma-all-to-all
	flip4 rma-all-to-all rma-both-ways
	flip8 rma-all-to-all-8 rma-all-to-all
	self rma-loopback rma-both-ways
	spin rma-spin rma-loopback
	END
}

@test "checks of signals find what is wrong" {
	broken_as <<-END
	inc rma-signal-inc rma-signal-add
	add rma-signal-add rma-signal-inc
	double rma-signal-once rma-signal-inc
	lose rma-signal-once rma-signal-add
	crowd rma-signal-ranks rma-signal-once
	next rma-signal-word rma-put-values
	shadow rma-signal-reset rma-signal-inc
	never rma-signal-never rma-signal-once
	END
}

@test "checks of order, of how much is under way, and of waiting find what is wrong" {
	broken_as <<-END
	order rma-strong-order rma-strong-large
	large rma-strong-large rma-strong-order
	before rma-weak-order rma-strong-order
	null rma-outstanding rma-strong-order
	busy rma-outstanding rma-strong-order
	oldest rma-targets rma-put-sizes
	more rma-aggregate rma-strong-order
	wait rma-waits rma-spin
	thread rma-threads rma-strong-order
	END
}

@test "checks of windows and gets find what is wrong" {
	broken_as <<-END
	get rma-get rma-put-sizes
	gets rma-get-many rma-get
	gself rma-get-loopback rma-get
	flush rma-flush rma-put-sizes
	late rma-window-late rma-window-sizes
	wrong rma-windows-many rma-window-other
	reg rma-windows-gone rma-window-other
	sizes rma-window-sizes rma-window-other
	again rma-window-twice rma-window-other
	other rma-window-other rma-window-late
	END
}

@test "checks of errors, and of messages beside, find what is wrong" {
	broken_as <<-END
	calm rma-range rma-put-sizes
	calm rma-get-range rma-get
	calm rma-kill-put rma-put-values
	calm rma-kill-wait rma-put-values
	beside rma-beside-net rma-both-ways
	END
}

@test "a crash and a hang are the failure of their check, and say where" {
	run -1 --separate-stderr env BREAK=ctx timeout 60 "$braid" validate --plugin "$broken" \
		--only rma-foreign-ctx --tap
	[[ $output == *"was killed by signal 11"*"at: connect with a context of another plugin"* ]]
	run -1 --separate-stderr env BREAK=lose timeout 60 "$braid" validate --plugin "$broken" \
		--only rma-signal-once
	[[ $(tr -s ' \n' ' ' <<<"$output") == *"a signal does not come: after "*"It was late, not wrong"* ]]
}

@test "without a table, without a device, or declined: skipped, with the reason" {
	run -77 env BREAK= timeout 60 "$braid" validate --tap \
		--plugin "$build/tests/validate/.libs/broken.so" --only rma
	[ "$(grep -c '^ok .* # SKIP it offers no one-sided operations: no ncclRmaPlugin_v14 to v16' <<<"$output")" -ge 60 ]
	[[ $output != *"not ok"* ]]
	run -0 env BREAK=none timeout 60 "$braid" validate --tap --plugin "$broken" --only rma
	[[ $output != *"not ok"* ]]
	grep -q '^ok [0-9]* - rma-get: .* # SKIP it offers no device for one-sided operations here' <<<"$output"
	run -0 env BRAID_RMA=off timeout 60 "$braid" validate --tap --plugin "$plugin" --only rma-load,rma-get
	grep -q '^ok [0-9]* - rma-get: .* # SKIP it offers no device' <<<"$output"
}
