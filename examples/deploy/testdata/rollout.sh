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
	try 0 "${new[@]}" --id-file "$dir/id"
	id=$out
	[[ $id == "$(<"$dir/id")" ]] || fail "the ID is $id"
	try 9 "${new[@]}" --id-file "$dir/id"

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

# The time is over: the exit code and the file say whether an endpoint may be running.
timeout() {
	fake
	try 10 "${new[@]}" --timeout 200ms --id-file "$dir/id"
	left=$out
	[[ $left == "$(<"$dir/id")" ]] || fail "the ID is $left"
	tail -n 1 "$dir/log" | grep -q "^$left may still be running and billed" || fail "$(<"$dir/log")"
	try 11 "${new[@]}" --timeout 200ms --id-file "$dir/id2" --delete-on-failure
	[[ -n $out && ! -e $dir/id2 ]] || fail 'the file names nothing'
	[[ $(tail -n 1 "$dir/log") == 'Nothing is left running.' ]] || fail "$(<"$dir/log")"
	try 5 status "$out"
	try 0 delete "$left"
}

# The endpoint fails, on a service whose deletes take a while.
broken() {
	fake --fail --delete-time 300ms
	try 10 "${new[@]}" --id-file "$dir/id"
	id=$out
	[[ $id == "$(<"$dir/id")" ]] || fail "the ID is $id"
	try 8 wait "$id"
	try 0 delete "$id"
	grep -q 'is still there (unavailable) after 0s' "$dir/log" || fail "$(<"$dir/log")"
	rm "$dir/id"
	try 11 "${new[@]}" --id-file "$dir/id" --delete-on-failure
	[[ -n $out && ! -e $dir/id ]] || fail 'the file names nothing'
}

# It is not known whether there is an endpoint: the file stays until somebody has checked.
unknown() {
	fake --lose-response
	try 4 "${new[@]}" --id-file "$dir/id"
	[[ -z $out && -e $dir/id && ! -s $dir/id ]] || fail 'the file is there, and empty'
	try 9 "${new[@]}" --id-file "$dir/id"
	grep -q "$dir/id is empty: " "$dir/log" || fail "$(<"$dir/log")"
	rm "$dir/id"
	try 0 "${new[@]}" --id-file "$dir/id"
}

# A wait tolerates an outage. (Without a wait, "status" fails with 7, after ten seconds.)
outage() {
	fake --outage 1500ms
	try 0 "${new[@]}" --id-file "$dir/id"
	grep -q 'could not be read after 0s: .*503' "$dir/log" || fail "$(<"$dir/log")"
	try 0 status "$(<"$dir/id")"
}

"$2"
