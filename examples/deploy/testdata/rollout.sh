#!/usr/bin/env bash
# A deploy script, and what it makes of the exit codes, against "deploy fake".
# $1 is a folder of its own, $DEPLOY the program.
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

# fake FLAG...: serves a new fake, and leads to it.
fake() {
	rm -f "$dir/env"
	"$DEPLOY" fake --deploy-time 400ms "$@" >"$dir/env" 2>/dev/null &
	fakes+=($!)
	until [[ -s $dir/env ]]; do sleep 0.05; done
	source "$dir/env"
}

dir=$1
fakes=()
trap 'kill "${fakes[@]}" && wait' EXIT
export SVC_FAKE=1 # whatever there was before: the line of the fake is stronger
fake

new=(deploy --name demo --image registry.example/app:1)
try 0 "${new[@]}" --id-file "$dir/id"
id=$out
[[ $id == "$(<"$dir/id")" ]] || fail "the id is $id"
try 2 "${new[@]}" --id-file "$dir/id"

try 0 wait "$id"
[[ $out == available ]] || fail "the status is $out"
try 0 wait --url "$id"
[[ $out == "$SVC_INFERENCE_URL"/*/"$id" ]] || fail "the URL is $out"
try 0 scale "$id" 2
try 0 --json status "$id"
[[ $out == *'"instances":2'* ]] || fail "two instances, not $out"

try 0 delete "$id"
rm "$dir/id"
try 5 status "$id"
try 5 delete "$id"
try 0 delete --missing-ok "$id"
SVC_API_TOKEN=another try 6 flavors
try 5 flavors --gpu 'none such'

# Out of time: whether something is left running is in the exit code and in the file.
try 3 "${new[@]}" --timeout 200ms --id-file "$dir/id"
left=$out
[[ $left == "$(<"$dir/id")" ]] || fail "the id is $left"
tail -n 1 "$dir/log" | grep -q "^$left may still be running and billed" || fail "$(<"$dir/log")"
try 13 "${new[@]}" --timeout 200ms --id-file "$dir/id2" --delete-on-failure
[[ -n $out && ! -e $dir/id2 ]] || fail 'the file names nothing'
[[ $(tail -n 1 "$dir/log") == 'Nothing is left running.' ]] || fail "$(<"$dir/log")"
try 5 status "$out"
try 0 delete "$left"
rm "$dir/id"

# An endpoint that fails, on a service whose deletes take their time.
fake --fail --delete-time 300ms
try 1 "${new[@]}" --id-file "$dir/id"
[[ $out == "$(<"$dir/id")" ]] || fail "the id is $out"
try 0 delete "$(<"$dir/id")"
grep -q 'is still there (unavailable) after 0s' "$dir/log" || fail "$(<"$dir/log")"
rm "$dir/id"
try 11 "${new[@]}" --id-file "$dir/id" --delete-on-failure
[[ -n $out && ! -e $dir/id ]] || fail 'the file names nothing'

# Nobody knows whether there is an endpoint: the file is a guard, until somebody has looked.
fake --lose-answer
try 4 "${new[@]}" --id-file "$dir/id"
[[ -z $out && -e $dir/id && ! -s $dir/id ]] || fail 'the file is a guard'
try 2 "${new[@]}" --id-file "$dir/id"
grep -q "$dir/id is empty: " "$dir/log" || fail "$(<"$dir/log")"
rm "$dir/id"
try 0 "${new[@]}" --id-file "$dir/id"
rm "$dir/id"

# A wait lives through an outage. (A look without one ends with 7, in ten seconds.)
fake --outage 1500ms
try 0 "${new[@]}" --id-file "$dir/id"
grep -q 'could not be read after 0s: .*503' "$dir/log" || fail "$(<"$dir/log")"
try 0 status "$(<"$dir/id")"
