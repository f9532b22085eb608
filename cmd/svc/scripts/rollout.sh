#!/usr/bin/env bash
# Replaces the image of the endpoint of a key. If the new image does not become available, the old
# one is deployed again, and the script ends with 1: the old one serves.
#
#   rollout.sh KEY IMAGE OLD_IMAGE [FLAGS of svc deploy]
#
# LEASE is how long the endpoint may run before "svc sweep" deletes it (default 24h), DELETE_TIMEOUT how
# long the deletion of the old endpoint may take (default 10m).
#
# The number of instances stays as it is, also after "svc scale" and after the way back: --instances counts
# only if the key has no endpoint. If it has 0 instances, nothing serves: nothing is changed, and the script
# ends with 8.
#
# The old endpoint is deleted before the new one is created, so for some minutes there is none:
# blue-green.sh has no such gap, but rents both for a while. Nothing is deleted if "svc deploy --dry-run"
# refuses the new request: then the script ends with its code (10 if the old one runs). The script can be
# run again after any failure or kill.
#
# The old image is deployed again with the flavor that served, and the other FLAGS. If these do not make
# the request of the endpoint that serves, it could not be brought back: nothing is deleted, and the script
# ends with 9. OLD_FLAGS are the flags of the old image in place of FLAGS, separated by spaces. If the old
# one cannot be deployed again, the script ends with the exit code of that "svc deploy" (svc help
# exit-codes), or with 20 in place of 1: 11 and 20 mean that neither runs.
#
# SIGINT, SIGTERM and SIGHUP are passed on to svc, and nothing is started after it, also not the old image.
# Then the script ends with 4 if the outcome of a create is not known, with 10 if an endpoint of the key may
# run, and else with the code of that svc, or with 130 between two. It ends so too if a signal has ended svc alone.
# A signal that is ignored when the script starts stays ignored, by svc too: SIGHUP under nohup, and SIGINT if another
# script has started it with &. SIGTERM ends it then.
#
# It needs SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting). A wrong use ends with 64: FLAGS
# cannot have --key, --wait and --dry-run.
set -euo pipefail

key=${1-} image=${2-} old=${3-}
if [ -z "$key" ] || [ -z "$image" ] || [ -z "$old" ]; then
	echo 'usage: rollout.sh KEY IMAGE OLD_IMAGE [FLAGS of svc deploy]' >&2
	exit 64
fi
shift 3
for flag in "$@" ${OLD_FLAGS-}; do
	case ${flag%%=*} in --dry-run | --key | --wait | --help | -h)
		echo "rollout: $flag cannot be one of FLAGS" >&2
		exit 64 ;;
	esac
done

child='' stopped='' signals=0 again='the same command'
stop() {
	stopped=$1 signals=$((signals + 1))
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGHUP' HUP

# unless_stopped ends the script after a signal, with a code that says what runs under the key.
unless_stopped() {
	[ -n "$stopped" ] || return 0
	local listed
	listed=$(svc ls --key "$key" 2>/dev/null) || listed='the ledger cannot be read: svc ls'
	echo "rollout: stopped by $stopped: $old is not deployed again. What may run under the key $key:" >&2
	printf '%s\n' "${listed:-nothing}" >&2
	echo "rollout: to go on, run $again again. To delete the endpoint: svc delete --key $key --missing-ok" >&2
	[ -z "$listed" ] || [ "$1" = 4 ] || exit 10
	exit "$1"
}

# noticed stops the script after a code of svc that is that of a signal.
noticed() { [ "$1" -lt 128 ] || stopped=${stopped:-a signal to svc}; }

# look runs a svc that changes nothing. It sets said and code.
look() {
	code=0
	said=$(svc "$@" 2>&1) || code=$?
	noticed $code
	unless_stopped 130
}

# run runs svc, and passes signals on to it.
run() {
	local seen code
	unless_stopped 130
	svc "$@" <&0 &
	child=$!
	[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
	while seen=$signals code=0; do                              # a signal ends wait, and not svc
		wait "$child" || code=$?
		[ $seen != $signals ] || break
	done
	child=''
	noticed $code
	[ $code = 0 ] || unless_stopped $code
	return $code
}

new=(deploy --key "$key" --name "$key" --image "$image" --lease "${LEASE:-24h}" "$@")
if [ -n "${OLD_FLAGS-}" ]; then
	read -ra flags <<<"$OLD_FLAGS"
	set -- "${flags[@]}"
fi
back=(deploy --key "$key" --name "$key" --image "$old" --lease "${LEASE:-24h}" "$@")

# field prints a field of a document.
field() { awk -v name="$1:" '$1 == name { gsub(/"/, "", $2); print $2; exit }' <<<"$2"; }

# use_flavor gives the old request a flavor in place of its own, and of what selects one.
use_flavor() {
	local kept=() skip=''
	for arg in "${back[@]}"; do
		case $skip$arg in
		--flavor | --gpu | --region | --min-cuda | --max-price) skip=skip ;;
		--flavor=* | --gpu=* | --region=* | --min-cuda=* | --max-price=*) ;;
		skip*) skip='' ;;
		*) kept+=("$arg") ;;
		esac
	done
	back=("${kept[@]}" --flavor "$1")
}

# dry_run checks a request for a number of instances, and ends the script if it is refused for another reason
# than the endpoint of the key.
dry_run() {
	local number=$1
	shift
	look "$@" ${number:+--instances "$number"} --dry-run -o name
	case $code in
	0 | 9) ;;
	*)
		printf '%s\n' "$said" >&2
		echo "rollout: svc deploy would end with $code: nothing was changed" >&2
		exit $code
		;;
	esac
}

# With the same image, the deployment continues with the endpoint that exists. Its request has the number of
# instances of the create, whatever "svc scale" has asked for since.
look ls --key "$key" -o yaml
entry=$said
created=$(field created_instances "$entry")
count=$created
dry_run "$created" "${new[@]}"
if [ $code = 9 ]; then
	look get --key "$key" -o yaml
	serves=$said
	case $code in
	0)
		flavor=$(field flavor_id "$serves")
		use_flavor "$flavor"
		dry_run "$created" "${back[@]}"
		if [ $code = 9 ]; then
			echo "rollout: the endpoint of the key $key is not of $old with these flags, so it could not be brought back: nothing was changed" >&2
			echo "rollout: name the image that serves as OLD_IMAGE, and its flags in OLD_FLAGS. No command shows them: look where it was deployed from" >&2
			echo "rollout: if they are not known, replace it without a way back: svc delete --key $key, then svc deploy --key $key" >&2
			exit 9
		fi
		look flavors -o name
		if { [ $code = 0 ] || [ $code = 5 ]; } && ! grep -qxF -e "$flavor" <<<"$said"; then
			echo "rollout: the flavor $flavor of $old is not on offer any more, so it could not be brought back: nothing was changed" >&2
			exit 10
		fi
		;;
	5 | 9) serves=$entry ;; # there is no endpoint to bring back
	*)
		printf '%s\n' "$serves" >&2
		echo "rollout: the endpoint of the key $key cannot be read: nothing was changed" >&2
		exit 10
		;;
	esac
	unless_stopped 130
	count=$(field instances "$serves")
	if [ "$count" = 0 ]; then
		echo "rollout: the endpoint of the key $key has 0 instances, so nothing serves: nothing was changed" >&2
		echo "rollout: to start it: svc scale --key $key 1. To replace it without a way back: svc delete --key $key, then svc deploy --key $key" >&2
		exit 8
	fi
	if [ -n "$count" ]; then
		again="the same command with --instances $count"
		echo "rollout: $image gets as many instances as $key has now: $count" >&2
		dry_run "$count" "${new[@]}" # are so many in stock?
	fi
	run delete --key "$key" --missing-ok --timeout "${DELETE_TIMEOUT:-10m}" >&2 # fails too if the ledger is broken
fi

code=0
run "${new[@]}" ${count:+--instances "$count"} || code=$?
case $code in
0) exit 0 ;;
4 | 8 | 9 | 10 | 64) exit $code ;; # an endpoint may be running, perhaps a healthy one, or nothing was done: svc has said what to do
esac
echo "rollout: $image failed with exit code $code; going back to $old" >&2
code=0
run "${back[@]}" ${count:+--instances "$count"} || code=$?
case $code in
0) exit 1 ;;
1) code=20 ;;
esac
echo "rollout: going back to $old failed too: see above. To try again, run $again" >&2
exit $code
