#!/usr/bin/env bash
# Deploys a release beside the one that serves, switches the traffic, and deletes the old one. If
# the new release does not become available, nothing changes for the users.
#
#   blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]
#
# SWITCH is a program of yours: it gets the address of the new release as its argument, and points
# the traffic to it. DRAIN is how many seconds the old release goes on after that (default 30), LEASE how
# long a release may run before "svc sweep" deletes it (default 720h), and DELETE_TIMEOUT how long the
# deletion of an old release may take (default 10m). If SWITCH fails, both releases go on, and the script
# ends with 20.
#
# The new release gets as many instances as the one that serves has now, also after "svc scale": --instances
# counts only for the first release. If the one that serves has 0 instances, nothing is changed, and the script
# ends with 8.
#
# SIGINT, SIGTERM and SIGHUP are passed on to what runs, nothing is started after it, and no release is deleted.
# The script says which keys may run, and what to run next. It ends with 20 if the new release is available, also
# beside the old one, with 4 if the outcome of its create is not known, with 10 if it may run all the same, and
# else with the code of the svc deploy that was stopped, or with 130 before it.
#
# Each release has a key of its own, APP--RELEASE, so the script can be run again after any failure or
# kill, and needs no other state than the ledger. APP and RELEASE must not contain "--", so that no
# release of another app is taken for an old one: 1 to 64 characters of a-z, 0-9, _ and - in all. It needs
# SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and a ledger (svc help scripting). A wrong use ends with 64.
set -euo pipefail

app=${1-} release=${2-} image=${3-} switch=${4-}
if [ -z "$app" ] || [ -z "$release" ] || [ -z "$image" ] || [ -z "$switch" ]; then
	echo 'usage: blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]' >&2
	exit 64
fi
shift 4
case $app:$release in *--* | *-:* | *:-*)
	echo 'blue-green: APP and RELEASE must not contain "--", nor have a "-" where they meet' >&2
	exit 64 ;;
esac
new=$app--$release

child='' stopped='' signals=0 both='' undo="To give up the new release: svc delete --key $new --missing-ok"
stop() {
	stopped=$1 signals=$((signals + 1))
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGHUP' HUP

# leave ends the script, and says what may run.
leave() {
	local code=$1 listed
	echo "blue-green: $2. The releases of $app that may be running and billed:" >&2
	listed=$(svc ls 2>/dev/null) || listed='the ledger cannot be read: svc ls'
	awk -v app="$app--" 'NR == 1 || index($1, app) == 1' <<<"${listed:-none}" >&2
	echo "blue-green: to go on, run the same command again. $undo" >&2
	case $code in 4 | 20) exit $code ;; esac
	[ -n "$both" ] || ! may_run "$new" || code=10
	exit $code
}

# may_run reports whether an endpoint of a key may run.
may_run() {
	local listed
	listed=$(svc ls --no-headers --key "$1" 2>/dev/null) || return 0
	[ -n "$listed" ]
}

# unless_stopped ends the script after a signal.
unless_stopped() {
	[ -z "$stopped" ] || leave "${both:-$1}" "stopped by $stopped"
}

# run runs a program, and passes signals on to it.
run() {
	local seen code
	unless_stopped 130
	"$@" <&0 &
	child=$!
	[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
	while seen=$signals code=0; do                              # a signal ends wait, and not the program
		wait "$child" || code=$?
		[ $seen != $signals ] || break
	done
	child=''
	[ $code = 0 ] || unless_stopped $code
	return $code
}

# others lists the keys of the other releases that may run.
others() { svc ls --no-headers | awk -v app="$app--" -v new="$new" 'index($1, app) == 1 && $1 != new { print $1 }'; }

# field prints a field of a document.
field() { awk -v name="$1:" '$1 == name { gsub(/"/, "", $2); print $2; exit }' <<<"$2"; }

# number prints with how many instances to deploy: those of a new release that exists, or else of the one that
# serves. It prints nothing if there is none.
number() {
	local doc key n most=''
	doc=$(svc ls --key "$new" -o yaml 2>/dev/null) || true
	n=$(field created_instances "$doc")
	[ -z "$n" ] || { echo "$n"; return; }
	for key in $(others 2>/dev/null); do
		doc=$(svc get --key "$key" -o yaml 2>/dev/null) || doc=$(svc ls --key "$key" -o yaml 2>/dev/null) || continue
		n=$(field instances "$doc")
		[ "${n:--1}" -le "${most:--1}" ] || most=$n
	done
	[ -z "$most" ] || echo "blue-green: $new gets as many instances as the release that serves: $most" >&2
	echo "$most"
}

count=$(number)
unless_stopped 130
if [ "$count" = 0 ]; then
	leave 8 "the release that serves has 0 instances, so nothing serves: nothing was changed. To start it: svc scale --key KEY 1"
fi
run svc deploy --key "$new" --name "$new" --image "$image" --lease "${LEASE:-720h}" "$@" ${count:+--instances "$count"}
both=20
unless_stopped 20
url=$(svc url --key "$new") || leave 20 "the address of $new cannot be read"
run "$switch" "$url" || leave 20 "the switch to $new failed ($?)"
undo=''
echo "blue-green: $new serves at $url" >&2
run sleep "${DRAIN:-30}"

old=$(others) ||
	leave 20 "$new serves, but the old releases cannot be listed"
failed=0
for key in $old; do
	run svc delete --key "$key" --timeout "${DELETE_TIMEOUT:-10m}" >&2 || {
		code=$?
		case $failed in 4 | 10) ;; *) failed=$code ;; esac # something may run: that is more than any other reason
		echo "blue-green: $new serves, but $key is not deleted: svc delete --key $key" >&2
	}
done
exit $failed
