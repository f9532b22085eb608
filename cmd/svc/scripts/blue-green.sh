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
# ends with 8. It gets the flavor of the one that serves too, so that the price stays: if too few of it are in
# stock, nothing is changed. FLAGS with --flavor or --max-price name another. The script says the flavor of both
# releases, and its price in USD.
#
# SIGINT, SIGTERM and SIGHUP are passed on to what runs, nothing is started after it, and no release is deleted.
# The script says which keys may run, and what to run next. It ends with 20 if the new release is available, also
# beside the old one, with 4 if the outcome of its create is not known, with 10 if it may run all the same, and
# else with the code of the svc deploy that was stopped, or with 130 before it. It ends so too if a signal has ended
# svc alone. A signal that is ignored when the script starts stays ignored, by svc too: SIGHUP under nohup, and SIGINT
# if another script has started it with &. SIGTERM ends it then.
#
# Each release has a key of its own, APP--RELEASE, so the script can be run again after any failure or
# kill, and needs no other state than the ledger. APP and RELEASE must not contain "--", so that no
# release of another app is taken for an old one: 1 to 64 characters of a-z, 0-9, _ and - in all. It needs
# SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and a ledger (svc help scripting). A wrong use ends with 64: FLAGS
# cannot have --key, --wait and --dry-run.
set -euo pipefail

app=${1-} release=${2-} image=${3-} switch=${4-}
if [ -z "$app" ] || [ -z "$release" ] || [ -z "$image" ] || [ -z "$switch" ]; then
	echo 'usage: blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]' >&2
	exit 64
fi
shift 4
for flag in "$@"; do
	case ${flag%%=*} in --dry-run | --key | --wait | --help | -h)
		echo "blue-green: $flag cannot be one of FLAGS" >&2
		exit 64 ;;
	esac
done
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

# noticed stops the script after a code of svc that is that of a signal.
noticed() { [ "$1" -lt 128 ] || stopped=${stopped:-a signal to svc}; }

# look runs a command that changes nothing. It sets said and code.
look() {
	code=0
	said=$("$@" 2>/dev/null) || code=$?
	noticed $code
	unless_stopped 130
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
	noticed $code
	[ $code = 0 ] || unless_stopped $code
	return $code
}

# others lists the keys of the other releases that may run.
others() { svc ls --no-headers | awk -v app="$app--" -v new="$new" 'index($1, app) == 1 && $1 != new { print $1 }'; }

# field prints a field of a document.
field() { awk -v name="$1:" '$1 == name { gsub(/"/, "", $2); print $2; exit }' <<<"$2"; }

# tell says something about a flavor, with its price, if it is known.
tell() {
	[ -n "$2" ] || return 0
	look svc flavors --no-headers
	echo "blue-green: $1 the flavor $2 at $(awk -v id="$2" '$1 == id { usd = $NF } END { print usd == "" ? "a price that is not known" : usd " USD" }' <<<"$said")" >&2
}

# serving finds the number of instances and the flavor to deploy with: those of a new release that exists, or else of
# the one that serves. They are empty if there is none.
serving() {
	local key n keys
	look svc ls --key "$new" -o yaml
	count=$(field created_instances "$said")
	[ -z "$count" ] || { flavor=$(field flavor_id "$said"); return; }
	look others
	keys=$said
	for key in $keys; do
		look svc ls --key "$key" -o yaml
		[[ $(field delete_accepted_at "$said") != 20* ]] || continue # it is being deleted
		look svc get --key "$key" -o yaml
		[ $code != 5 ] || continue # it is deleted already
		[ $code = 0 ] || look svc ls --key "$key" -o yaml
		[ $code = 0 ] || continue
		n=$(field instances "$said")
		[ "${n:--1}" -gt "${count:--1}" ] || continue
		count=$n flavor=$(field flavor_id "$said") serves=$key
	done
	[ -n "$serves" ] || return 0
	tell "$serves serves, with" "$flavor"
	echo "blue-green: $new gets as many instances as the release that serves: $count" >&2
}

count='' flavor='' serves=''
serving
if [ "$count" = 0 ]; then
	leave 8 "the release that serves has 0 instances, so nothing serves: nothing was changed. To start it: svc scale --key KEY 1"
fi
for arg; do
	case $arg in --flavor | --flavor=* | --max-price | --max-price=*) flavor='' ;; esac
done
run svc deploy --key "$new" --name "$new" --image "$image" --lease "${LEASE:-720h}" "$@" \
	${count:+--instances "$count"} ${flavor:+--flavor "$flavor"} || {
	code=$?
	[ $code != 5 ] || [ -z "$serves" ] || [ -z "$flavor" ] || echo "blue-green: $new was to have the flavor of $serves: for another one, the same command with --flavor or --max-price" >&2
	exit $code
}
both=20
unless_stopped 20
look svc get --key "$new" -o yaml
[ $code != 0 ] || tell "$new has" "$(field flavor_id "$said")"
look svc url --key "$new"
url=$said
[ $code = 0 ] || leave 20 "the address of $new cannot be read"
run "$switch" "$url" || leave 20 "the switch to $new failed ($?)"
undo=''
echo "blue-green: $new serves at $url" >&2
run sleep "${DRAIN:-30}"

look others
old=$said
[ $code = 0 ] || leave 20 "$new serves, but the old releases cannot be listed"
failed=0
for key in $old; do
	run svc delete --key "$key" --timeout "${DELETE_TIMEOUT:-10m}" >&2 || {
		code=$?
		case $failed in 4 | 10) ;; *) failed=$code ;; esac # something may run: that is more than any other reason
		echo "blue-green: $new serves, but $key is not deleted: svc delete --key $key" >&2
	}
done
exit $failed
