#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# listen.bats - braid perf --listen and braid validate --listen serve only clients that have the key.

bats_require_minimum_version 1.5.0

braid=${BRAID_TEST_BRAID:-braid}
plugin=${BRAID_TEST_PLUGIN:-libnccl-net-braid.so}
key=an-example-of-a-key
slow=${BRAID_TEST_SLOW:-1}

setup()
{
	command -v python3 >/dev/null || skip "python3 is not installed"
	tmp=$BATS_TEST_TMPDIR
	cat >"$tmp/stranger.py" <<-'PYTHON'
		import hashlib, os, socket, struct, sys
		PORT, KEY = int(sys.argv[1]), sys.argv[2].encode()
		def dial():
		    s = socket.create_connection(("127.0.0.1", PORT))
		    s.settimeout(20)
		    return s
		def rest(s, n):
		    got = b""
		    while len(got) < n:
		        more = s.recv(n - len(got))
		        if not more:
		            break
		        got += more
		    return got
		def closed(s):
		    try:
		        s.shutdown(socket.SHUT_WR)
		        while s.recv(4096):
		            pass
		    except OSError:
		        pass
		K = hashlib.blake2b(KEY, digest_size=32).digest()
		def claim(greet, key=K):
		    nonce = os.urandom(32)
		    mac = hashlib.blake2b(b"braid perf dial\0" + greet[8:] + nonce, key=key, digest_size=32)
		    return b"braid k1" + nonce + mac.digest()
		def proven():
		    s = dial()
		    s.sendall(claim(rest(s, 40)))
		    assert rest(s, 48)[8] == 1, "not served"
		    return s
		def order(s, what, fabric=0, peer=0, idx=0, size=0, rest_=b""):
		    m = struct.pack("<IIiIiiiiQQII", 0xb3000000 | 2 << 16 | 1080, what, 0, fabric,
		                    0, 2, peer, idx, size, 0, 0, 0) + rest_.ljust(1024, b"\0")
		    s.sendall(m)
		def answer(s):
		    m = rest(s, 1080)
		    assert len(m) == 1080, "gone"
		    return struct.unpack_from("<i", m, 8)[0], m[56:].split(b"\0")[0].decode()
	PYTHON
}

teardown()
{
	[ -z "${listener-}" ] || kill "$listener" 2>/dev/null || true
}

listener()				# COMMAND OPTIONS... - sets $port and $listener
{
	: >"$tmp/err"
	"$braid" "$1" --plugin "$plugin" --listen "${at-127.0.0.1:}0" "${@:2}" 2>"$tmp/err" 3>&- &
	listener=$!
	for _ in $(seq 200); do
		port=$(sed -n 's/^listening on port //p' "$tmp/err")
		[ -z "$port" ] || return 0
		sleep 0.05
	done
	return 1
}

stranger()				# PYTHON, after what is above
{
	{ cat "$tmp/stranger.py"; printf '%s\n' "$1"; } >"$tmp/now.py"
	timeout 60 python3 "$tmp/now.py" "$port" "$key"
}

# Start a crowd of strangers; returns when PYTHON has printed a line.
crowd_comes()				# PYTHON
{
	rm -f "$tmp/crowd"
	stranger "import time
$1" >"$tmp/crowd" 3>&- &
	crowd=$!
	until [ -s "$tmp/crowd" ]; do sleep 0.05; done
}

# Strangers that connect and send nothing.
idle_crowd()				# HOW-MANY
{
	crowd_comes "crowd = [dial() for i in range($1)]
print('there', flush=True)
time.sleep(60)"
}

crowd_goes()
{
	pkill -P $crowd || true
}

works()
{
	BRAID_PERF_KEY=$key run -0 "$braid" perf --plugin "$plugin" --connect 127.0.0.1:"$port" \
		--sizes 8 --seconds 0.05 --raw
}

ticks()					# of a CPU that the listener has used
{
	awk '{ sub(/.*\)/, ""); print $12 + $13 }' /proc/$listener/stat
}

bad()					# TEXT COMMAND... - status 2 and one line with that in it
{
	run -2 --separate-stderr "${@:2}"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"$1"* ]]
}

@test "the listener prints the line to type on the other host" {
	listener perf
	line=$(sed -n 's/^on the other host: //p' "$tmp/err")
	[[ $line =~ ^BRAID_PERF_KEY=[0-9a-f]{32}' braid perf --connect 127.0.0.1:'$port$ ]]
	run -0 env "${line%% *}" "$braid" perf --plugin "$plugin" --connect 127.0.0.1:"$port" \
		--sizes 8 --seconds 0.05
	kill $listener
	listener validate
	line=$(sed -n 's/^on the other host: //p' "$tmp/err")
	[[ $line == BRAID_PERF_KEY=*' braid validate --connect 127.0.0.1:'$port ]]
	run -0 env "${line%% *}" "$braid" validate --plugin "$plugin" --connect 127.0.0.1:"$port" \
		--only data-zero
}

@test "a port without an address is one of IPv4 and of IPv6" {
	[ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6 || skip "there is no IPv6 here"
	for host in 127.0.0.1 '[::1]' $(getent hosts localhost >/dev/null && echo localhost); do
		at='' BRAID_PERF_KEY=$key listener perf
		BRAID_PERF_KEY=$key run -0 "$braid" perf --plugin "$plugin" --raw \
			--connect "$host:$port" --sizes 8 --seconds 0.05
		kill $listener
		at='' BRAID_PERF_KEY=$key listener validate
		BRAID_PERF_KEY=$key run -0 "$braid" validate --plugin "$plugin" \
			--connect "$host:$port" --only data-zero
		kill $listener
	done
}

@test "without a key, or with another, it is one line and status 2" {
	listener perf
	for command in perf validate compare; do
		bad "BRAID_PERF_KEY=KEY braid $command --connect 127.0.0.1:$port [no-key]" \
			"$braid" $command --plugin "$plugin" --connect 127.0.0.1:"$port"
		[ $command = compare ] ||
			BRAID_PERF_KEY=some-other-key-000 bad "its key is another one" "$braid" \
				$command --plugin "$plugin" --connect 127.0.0.1:"$port"
	done
	BRAID_PERF_KEY=short bad "has 5 characters" "$braid" perf --connect 127.0.0.1:"$port"
}

@test "a key from a file or standard input is not printed" {
	(umask 077 && echo $key >"$tmp/key")
	listener perf --key-file "$tmp/key"
	! grep -q $key "$tmp/err"
	works
	run -0 "$braid" perf --plugin "$plugin" --connect 127.0.0.1:"$port" --sizes 8 \
		--seconds 0.05 --key-file - <"$tmp/key"
}

@test "a key that other users may read is no key" {
	for mode in 644 640 604 622; do
		rm -f "$tmp/key"
		echo $key >"$tmp/key"
		chmod $mode "$tmp/key"
		for where in "perf --listen 0" "validate --listen 0" "perf --connect 127.0.0.1:1"; do
			# shellcheck disable=SC2086 # words
			bad "$tmp/key: its mode is 0$mode" timeout 20 "$braid" $where \
				--plugin "$plugin" --key-file "$tmp/key"
			[[ $stderr == *"[open-key]" ]]
		done
	done
	BRAID_PERF_KEY=$key listener perf
	run -0 "$braid" perf --plugin "$plugin" --connect 127.0.0.1:"$port" --sizes 8 \
		--seconds 0.05 --key-file <(echo $key)
}

@test "a stranger learns nothing and starts nothing" {
	BRAID_PERF_KEY=$key listener perf
	stranger '
for said in (b"", b"x", os.urandom(72), b"braid k1" + bytes(64), b"\xff" * 5000):
    s = dial()
    assert rest(s, 40)[:8] == b"braid k1"
    s.sendall(said)
    closed(s)
s = dial()
order(s, 1)
closed(s)
s = dial()
s.sendall(claim(rest(s, 40), b"k" * 32))
grant = rest(s, 49)
assert grant[8] == 3 and grant[16:] == bytes(32)
'
	! pgrep -P $listener
	works
}

@test "a recorded proof is worth nothing" {
	BRAID_PERF_KEY=$key listener perf
	stranger '
s = dial()
said = claim(rest(s, 40))
s.sendall(said)
assert rest(s, 48)[8] == 1
for i in range(3):
    t = dial()
    rest(t, 40)
    t.sendall(said)
    assert rest(t, 49)[8] == 3
'
}

@test "a program that answers in the listener's place is detected" {
	BRAID_PERF_KEY=$key listener perf
	cat >"$tmp/fake.py" <<-'PYTHON'
		import os, socket
		l = socket.socket()
		l.bind(("127.0.0.1", 0))
		l.listen()
		print(l.getsockname()[1], flush=True)
		c = l.accept()[0]
		c.sendall(b"braid k1" + os.urandom(32))
		c.recv(72, socket.MSG_WAITALL)
		c.sendall(b"braid k1" + b"\1" + bytes(7) + os.urandom(32))
		assert c.recv(1) == b"", "something was sent to a stranger"
	PYTHON
	timeout 60 python3 "$tmp/fake.py" >"$tmp/port" 3>&- &
	until [ -s "$tmp/port" ]; do sleep 0.02; done
	fake=$!
	BRAID_PERF_KEY=$key bad "its key is another one" "$braid" perf --plugin "$plugin" \
		--connect 127.0.0.1:"$(cat "$tmp/port")"
	wait $fake
}

# A peer's text may be printed to a terminal, a log or a report, so control characters are replaced.
@test "text of a peer can't control the terminal" {
	cat >"$tmp/peer.py" <<-'PYTHON'
		import hashlib, os, socket, struct, sys
		l = socket.socket()
		l.bind(("127.0.0.1", 0))
		l.listen()
		print(l.getsockname()[1], flush=True)
		c = l.accept()[0]
		nonce = os.urandom(32)
		c.sendall(b"braid k1" + nonce)
		said = c.recv(72, socket.MSG_WAITALL)
		K = hashlib.blake2b(sys.argv[1].encode(), digest_size=32).digest()
		status = b"\1" + bytes(7)
		mac = hashlib.blake2b(b"braid perf serve\0" + nonce + said[8:40] + status, key=K,
		                      digest_size=32).digest()
		c.sendall(b"braid k1" + status + mac)
		m = bytearray(c.recv(1080, socket.MSG_WAITALL))
		struct.pack_into("<i", m, 8, -5)
		text = "z\u00fcrich \033[2J\033]0;title\007 \x7f".encode() + b"\x9b1m\xff" + b"A" * 1100
		m[56:] = text[:1024]
		c.sendall(m)
		c.recv(1)
	PYTHON
	timeout 60 python3 "$tmp/peer.py" $key >"$tmp/port" 3>&- &
	until [ -s "$tmp/port" ]; do sleep 0.02; done
	BRAID_PERF_KEY=$key bad 'zürich ?[2J?]0;title? ??1m?AAA' "$braid" perf --plugin "$plugin" \
		--connect 127.0.0.1:"$(cat "$tmp/port")"
	[ -z "$(tr -d '\n' <<<"$stderr" | LC_ALL=C grep -a '[[:cntrl:]]')" ]
}

@test "200 idle strangers block no peer, and do not end --once" {
	BRAID_PERF_KEY=$key listener perf --once
	idle_crowd 200
	kill -0 $listener
	[ "$(find /proc/$listener/fd -lname 'socket:*' | wc -l)" -le 70 ]
	works
	crowd_goes
	wait $listener
}

# accept() fails while the socket stays readable: the listener must not spin. Also with little memory.
@test "without a descriptor it waits, and serves when there is one" {
	command -v prlimit >/dev/null || skip "prlimit is not installed"
	BRAID_PERF_KEY=$key listener perf
	for free in 0 2; do		# with 2, strangers can have them
		first=0
		while [ -e /proc/$listener/fd/$first ]; do first=$((first + 1)); done
		prlimit --pid $listener --nofile=$((first + free)):
		idle_crowd 8
		before=$(ticks)
		sleep 2
		used=$(($(ticks) - before))
		echo "of 2 s it computed for $used of $(($(getconf CLK_TCK) * 2)) ticks"
		[ $((used * 10)) -lt "$(getconf CLK_TCK)" ]
		prlimit --pid $listener --nofile=1024:
		works
		crowd_goes
	done
}

@test "strangers that keep connecting block no peer" {
	BRAID_PERF_KEY=$key listener perf
	crowd_comes 'print("there", flush=True)
for i in range(30000):
    dial().close()'
	works
	crowd_goes
}

# Even a client with the key can't have data sent to an address where no peer of the job listens.
@test "raw TCP goes to a peer alone, and memory has a bound" {
	BRAID_PERF_KEY=$key listener perf
	stranger '
victim = socket.socket()
victim.bind(("127.0.0.1", 0))
victim.listen()
s = proven()
order(s, 1)
assert answer(s)[0] == 0
order(s, 2, fabric=1)
assert answer(s)[0] == 0
order(s, 6, size=1 << 20)
assert answer(s)[0] == 0
sa = struct.pack("<H", 2) + struct.pack(">H", victim.getsockname()[1]) + bytes([127, 0, 0, 1])
order(s, 4, fabric=1, peer=1, rest_=os.urandom(16) + sa)
v = victim.accept()[0]
v.settimeout(20)
assert len(rest(v, 48)) == 48
v.sendall(os.urandom(32))
status, text = answer(s)
assert status != 0 and "not the peer" in text, text
s.close()
assert len(rest(v, 1)) == 0
free = [int(x.split()[1]) << 10 for x in open("/proc/meminfo") if x.startswith("MemAvailable")][0]
if free < 30 << 30:
    t = proven()
    order(t, 1)
    assert answer(t)[0] == 0
    order(t, 6, size=16 << 30)
    status, text = answer(t)
    assert status != 0 and "more memory than this listener" in text, text
'
}

# ended STATUS TEXT - the listener ends with that, and reports that its one session failed.
ended()
{
	timeout $((60 * slow)) tail -f --pid $listener /dev/null
	status=0
	wait $listener || status=$?
	cat "$tmp/err"
	[ $status -eq "$1" ]
	[ "$(grep -c '^braid perf: a session failed: ' "$tmp/err")" -eq 1 ]
	grep -F "braid perf: a session failed: $2 [not-served]" "$tmp/err"
}

@test "a session whose other end fails ends at once, and the listener says so" {
	BRAID_CONNECT_TIMEOUT=600 BRAID_PERF_KEY=$key listener perf --once
	stranger '
s = proven()
for what in (1, 2, 3):
    order(s, what)
    assert answer(s)[0] == 0
order(s, 5)
order(s, 11)
s.shutdown(socket.SHUT_WR)
'
	ended 1 "accept from rank 0, comm 0: the --connect end left meanwhile"
}

@test "an error that was answered is the listener's, too" {
	BRAID_PERF_KEY=$key listener perf --once
	stranger '
s = proven()
order(s, 1)
assert answer(s)[0] == 0
order(s, 7)
assert answer(s)[0] != 0
order(s, 6)
assert answer(s)[0] != 0
order(s, 11)
'
	ended 1 "a run that makes no sense here"
}

@test "a session whose process is killed, or whose peer goes, is reported" {
	BRAID_PERF_KEY=$key listener perf --once
	stranger '
s = proven()
order(s, 1)
assert answer(s)[0] == 0
os.system("pkill -KILL -P '$listener'")
assert rest(s, 1) == b""
'
	ended 1 Killed
	BRAID_PERF_KEY=$key listener perf --once
	stranger '
s = proven()
order(s, 1)
assert answer(s)[0] == 0
'
	ended 1 "the --connect end left before it was over"
}

@test "ssh hands on the key where no other process sees it" {
	mkdir -p "$tmp/bin"
	# shellcheck disable=SC2016 # it is the script's
	printf '#!/bin/sh\necho "$@" >>%s\nshift\nexec sh -c "$*"\n' "$tmp/args" >"$tmp/bin/ssh"
	chmod +x "$tmp/bin/ssh"
	PATH=$tmp/bin:$PATH run -0 "$braid" compare --plugin "$plugin" --ssh 127.0.0.1 \
		--remote-braid "$braid" --over tcp --lanes 1 --patterns pingpong --sizes 8 \
		--seconds 0.005 --rounds 1
	grep -q -e '--key-file -' "$tmp/args"
	! grep -qE '[0-9a-f]{32}' "$tmp/args"
}

# The ranks of a job on one host share a key file of the user's; a stranger at rank 0's port lacks it.
@test "ranks of a launcher know each other, and no stranger joins" {
	export XDG_RUNTIME_DIR=$tmp
	port=$((22000 + $$ % 9000))
	export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port - 1))
	RANK=0 timeout 60 "$braid" compare --plugin "$plugin" --seconds 0.005 --over tcp --lanes 1 \
		--sizes 8 --patterns pingpong --rounds 1 >"$tmp/out" 3>&- &
	first=$!
	until [ -e "$tmp/braid/.meet.$port" ]; do sleep 0.05; done
	[ "$(stat -c %a "$tmp/braid/.meet.$port")" = 600 ]
	stranger '
s = dial()
order(s, 12, idx=1)
closed(s)
s = dial()
s.sendall(claim(rest(s, 40)))
assert rest(s, 49)[8] == 3'
	RANK=1 run -0 "$braid" compare --plugin "$plugin"
	wait $first
	[ ! -e "$tmp/braid/.meet.$port" ]
	grep "2 processes of torchrun" "$tmp/out" || grep "tcp x1" "$tmp/out"
}

@test "where the ranks' key can't be kept, the directory is named" {
	export XDG_RUNTIME_DIR=$tmp WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1
	export MASTER_PORT=$((22000 + $$ % 9000))
	mkdir -m 755 "$tmp/braid"
	bad "can't be kept for them in $tmp/braid: that directory must be this user's, of mode 0700" \
		timeout 60 "$braid" compare --plugin "$plugin"
	rmdir "$tmp/braid"
	echo >"$tmp/braid"
	bad "can't be kept for them in $tmp/braid: Not a directory" \
		timeout 60 "$braid" compare --plugin "$plugin"
	export XDG_RUNTIME_DIR=$tmp/no/such
	bad "can't be kept for them in $tmp/no/such/braid: No such file or directory" \
		timeout 60 "$braid" compare --plugin "$plugin"
}
