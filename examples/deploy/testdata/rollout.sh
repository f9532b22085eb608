#!/usr/bin/env bash
# A deploy script, and what it does with the exit codes, against "deploy fake".
# $1 is an empty folder, $2 the function below to run, $DEPLOY the program.
set -euo pipefail

fail() { echo "rollout.sh: $*" >&2; exit 1; }

# try CODE COMMAND...: the command has to end with this exit code. Its standard
# output is then in $out.
try() {
	local want=$1 got=0
	shift
	out=$("$DEPLOY" "$@" 2>"$dir/log") || got=$?
	((got == want)) || fail "$*: exit code $got, not $want: $(<"$dir/log")"
}

# fake FLAG...: serves a fake, and sets the variables that lead to it.
fake() {
	"$DEPLOY" fake --deploy-time 400ms "$@" >"$dir/env" 2>/dev/null &
	trap "kill $! && wait" EXIT
	until [[ -s $dir/env ]]; do sleep 0.05; done
	source "$dir/env"
}

dir=$1
new=(deploy --name demo --image registry.example/app:1)
export SVC_FAKE=1 # the line of the fake overrides it

life() {
	fake
	try 0 "${new[@]}" --key demo
	id=$out
	try 0 "${new[@]}" --key demo
	[[ $out == "$id" ]] || fail "another endpoint: $out"
	try 9 "${new[@]}" --key demo --port 80

	try 0 wait "$id"
	[[ $out == available ]] || fail "the status is $out"
	try 0 wait --url "$id"
	[[ $out == "$SVC_INFERENCE_URL"/*/"$id" ]] || fail "the URL is $out"
	try 0 scale "$id" 2
	try 0 --json status "$id"
	[[ $out == *'"instances":2'* ]] || fail "two instances, not $out"

	try 0 delete "$id"
	try 5 status "$id"
	SVC_API_TOKEN=another try 6 flavors
	try 5 flavors --gpu 'none such'
}

# Nothing of that name is running. Without --grace 0s a delete waits 30 s, since an
# endpoint that was just created may not be readable yet.
missing() {
	fake
	try 5 delete --grace 0s svc-9
	try 0 delete --grace 0s --missing-ok svc-9
	try 0 --json delete --grace 0s --missing-ok svc-9
	[[ $out == *'"may_be_running":false'* ]] || fail "$out"
}

# The time is over: the exit code and the ledger say whether an endpoint may be running.
timeout() {
	fake
	try 10 "${new[@]}" --timeout 200ms
	left=$out
	tail -n 1 "$dir/log" | grep -q "^$left may still be running and billed" || fail "$(<"$dir/log")"
	try 11 "${new[@]}" --timeout 200ms --delete-on-failure
	[[ $(tail -n 1 "$dir/log") == 'Nothing is left running.' ]] || fail "$(<"$dir/log")"
	try 5 status "$out"
	try 0 ls
	[[ $(grep created <<<"$out") == *" $left "* ]] || fail "$out"
	try 0 delete "$left"
}

# The endpoint fails, on a service whose deletes take a while.
broken() {
	fake --fail --delete-time 300ms
	try 10 "${new[@]}"
	id=$out
	try 8 wait "$id"
	try 0 delete "$id"
	grep -q 'is still there (unavailable) after 0s' "$dir/log" || fail "$(<"$dir/log")"
	try 11 "${new[@]}" --delete-on-failure
}

# It is not known whether there is an endpoint: nothing is created under the key until
# somebody has checked.
unknown() {
	fake --lose-response
	try 4 "${new[@]}" --key demo
	[[ -z $out ]] || fail "the ID is $out"
	try 4 "${new[@]}" --key demo
	try 0 ls
	[[ $out == *"demo  unknown  demo  - "* ]] || fail "$out"
	try 0 "${new[@]}" --key another
}

# A kill that no program can handle: the same command continues with the endpoint.
killed() {
	fake
	"$DEPLOY" "${new[@]}" --key demo --lease 1s >"$dir/id" 2>/dev/null &
	until [[ -s $dir/id ]]; do sleep 0.05; done
	{ kill -9 $! && wait $!; } 2>/dev/null || true
	try 0 ls
	[[ $out == *"demo  created  demo  $(<"$dir/id")  1 "* ]] || fail "$out"
	try 0 "${new[@]}" --key demo
	[[ $out == "$(<"$dir/id")" ]] || fail "another endpoint: $out"
	sleep 2
	try 0 sweep --dry-run
	[[ $out == *' would be deleted' ]] || fail "$out"
	try 0 status "$(<"$dir/id")"
	try 0 sweep
	[[ $out == *' deleted' ]] || fail "$out"
	try 5 status "$(<"$dir/id")"
}

# A wait tolerates an outage. (Without a wait, "status" fails with 7, after ten seconds.)
outage() {
	fake --outage 1500ms
	try 0 "${new[@]}"
	grep -q 'could not be read after 0s: .*503' "$dir/log" || fail "$(<"$dir/log")"
	try 0 status "$out"
}

"$2"
