#!/usr/bin/env bash
# Replaces the image of the endpoint of a key. If the new image does not become available, the old image is deployed
# again.
#
#   rollout.sh KEY IMAGE OLD_IMAGE [FLAGS of svc deploy]
#
#   code    what serves
#   0       IMAGE. Its ID is on standard output
#   1       OLD_IMAGE: IMAGE did not become available. Its ID is on standard output
#   4       not known: the outcome of a create is not known. Settle it: svc help exit-codes
#   8       nothing: the endpoint has 0 instances, and nothing was changed
#   9       what served before, or what another command has deployed under the key: see the last lines
#   10      an endpoint of the key may run: see the last lines
#   11, 20  nothing: neither image became available, or a signal stopped the script before one did
#   64      what served before: a wrong use
#   137     not known: SIGKILL ended the script. To see it: svc ls
#   other   what served before: nothing was changed (svc help exit-codes. 129, 130, 143: a signal stopped the script)
#
# A failure of bash or a crash of svc ends the script as a signal does.
#
# The old endpoint is deleted before the new one is created, so for some minutes there is none. blue-green.sh has no
# such gap, but rents both for a while. Nothing is deleted if "svc deploy --dry-run" refuses the new request.
#
# The number of instances and the flavor stay, also on the way back: they are those of the endpoint of the key, or of
# the one that was deleted last, in the last 24 hours. --instances counts only if there is none. FLAGS with --flavor or
# --max-price name another flavor for IMAGE.
#
# OLD_IMAGE is deployed again with FLAGS, or with OLD_FLAGS, which are separated by spaces and have no quotes. If that
# is not the request of the endpoint that serves, it could not be brought back: nothing is deleted.
#
# The script can be run again after any failure or kill, with the same arguments. In one case, look at the line that
# names the flavor of OLD_IMAGE: FLAGS name another flavor, and the script was killed after IMAGE had failed. The ledger
# does not tell a deleted IMAGE from a deleted OLD_IMAGE then. OLD_FLAGS can name the flavor.
#
# Run the rollouts of a key one after the other. If two run at once, one of them ends with 9, or both have the same
# image.
#
# LEASE is how long the endpoint may run before "svc sweep" deletes it (default 24h), DELETE_TIMEOUT how long the
# deletion of an endpoint may take (default 10m).
#
# SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to svc, and nothing is started after it, also not the old image. A
# svc that ends with 128 or more stops the script too. A signal to svc alone that svc catches is a failure of that svc:
# if it was deploying IMAGE, OLD_IMAGE is deployed again. A signal that is ignored when the script starts (by nohup or
# &) stays ignored: use SIGTERM then.
#
# The script needs bash 3.2 or later, SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting).
# FLAGS cannot have --key, --image, --wait, --keep and --dry-run, nor --lease and flags that each svc would need, such as
# --ledger: set LEASE and SVC_LEDGER.
set -euf -o pipefail

key=${1-} image=${2-} old=${3-} changed=''

# what_runs ends the script after a signal.
what_runs() {
	local listed code
	listed=$(svc ls --key "$key" --timeout 30s 2>/dev/null) || listed='the ledger cannot be read: svc ls'
	say "stopped by $stopped: $old is not deployed again. What may run under the key $key:"
	show "${listed:-nothing}"
	say "to go on, run the same command again. To delete the endpoint: svc delete --key $key --missing-ok"
	case $ended:$listed in
	4:*) code=4 ;;
	10:* | *:?*) code=10 ;;
	11:) code=11 ;;
	*) code=${changed:+20} ;;
	esac
	finish ${code:-130}
}

# The lines up to the next bar are the same in all scripts here.
# ----------------------------------------------------------------------------------------------------------------
IFS=$' \t\n' # BASH_ENV may have set another one
true >&2 || exec 2>/dev/null # a stream that is closed
{ true <&0; } 2>/dev/null || exec </dev/null
{ true >&1; } 2>/dev/null || exec >&2

name=${0##*/} name=${name%.sh} child='' stopped='' chosen='' ended=0 signals=0

# show and say write to standard error. That they cannot is no failure.
show() { printf '%s\n' "$@" >&2 || true; }
say() { show "$name: $*"; }

# stop notices a signal, and passes it on.
stop() {
	stopped=$1 signals=$((signals + 1))
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}

# await waits for the program that run has started. Its code is ended.
await() {
	local seen
	while seen=$signals ended=0; do # a signal ends wait, and not the program
		wait "$child" || ended=$?
		[ $seen != $signals ] || break
	done
	[ $ended -ge 0 ] || ended=255 # bash 5.2 has lost it after a signal
	child=''
}

# finish ends the script with a code that it has chosen.
finish() {
	chosen=$1
	exit "$1"
}

# on_exit is where each end of the script comes by. A code that finish does not know says nothing: a signal to all
# processes ends a $(...), and "set -e" then the script, with any code. bash 5.2 may also misread a trap and end with 2.
# Then what_runs chooses the code, by what the script has begun.
on_exit() {
	set +e
	[ -z "$chosen" ] || exit "$chosen"
	[ -z "$child" ] || { kill -TERM "$child" 2>/dev/null; await; }
	stopped=${stopped:-"a signal, or a failure of bash ($1)"}
	trap '' $caught # what_runs says what it knows, also if Ctrl-C is pressed twice
	what_runs
}
caught='INT TERM HUP QUIT'
for signal in $caught; do trap "stop SIG$signal" $signal; done
trap 'signals=$((signals + 1))' PIPE # of a reader that has gone away
trap 'on_exit $?' EXIT

# unless_stopped ends the script after a signal.
unless_stopped() { [ -z "$stopped" ] || exit 130; }

# noticed stops the script after a code of a program that is that of a signal, or of a svc that has crashed.
noticed() {
	[ "$1" -lt 128 ] || stopped=${stopped:-a signal to ${2##*/}}
	[ "$1 $2" != '2 svc' ] || stopped=${stopped:-a crash of svc}
}

# run runs a program, and passes signals on to it.
run() {
	unless_stopped
	"$@" <&0 &
	child=$!
	[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
	await
	noticed $ended "$1"
	[ $ended = 0 ] || unless_stopped
	return $ended
}
# ----------------------------------------------------------------------------------------------------------------

# The lines up to the next bar are the same in rollout.sh and blue-green.sh.
# ----------------------------------------------------------------------------------------------------------------
# refuse ends the script before it has changed anything.
refuse() {
	unless_stopped # what it has read may be half of it
	say "$2"
	say 'nothing was changed'
	finish $(($1 == 1 ? 10 : $1)) # 1 would say what serves
}

# check_flags refuses flags of svc deploy with which the script would not do what it says.
check_flags() {
	local flag
	for flag; do
		case ${flag%%=*} in
		-q | -v) ;;
		--base-url | --inference-url | --ledger | --token-file | --insecure-http)
			refuse 64 "$flag would be for svc deploy only: set its variable (svc help scripting)" ;;
		-- | --image | --dry-run | --key | --wait | --keep | --lease | --output | --help | -[!-]*)
			refuse 64 "$flag cannot be one of FLAGS: see the head of the script" ;;
		esac
	done
	look deploy --help "$@" # the last one would take what the script adds for its value
	[ $code = 0 ] || refuse $code "$said"
}

# named reports whether one of some words, separated by spaces, is among flags.
named() {
	local words=$1 flag
	shift
	for flag; do
		[[ " $words " != *" ${flag%%=*} "* ]] || return 0
	done
	return 1
}
flavor_flags='--flavor --max-price'

# look runs a svc that changes nothing, for limit at most. It sets said and code.
limit=2m
look() {
	code=0
	said=$(svc "$1" --quiet --timeout "$limit" "${@:2}" </dev/null 2>&1) || code=$?
	noticed $code svc
	unless_stopped
}

# list reads entries of the ledger. Damaged ones do not matter if others can be read. The first deployment makes the ledger.
list() {
	look ls -o yaml "$@"
	rest=$said
	[ $code = 0 ] || [[ $code = 9 && ($said == *$'\n''  - key: '* || $said == *'error_kind: no_ledger'*) ]]
}

# begin checks DELETE_TIMEOUT before it is needed, and does what list does.
begin() {
	limit=${DELETE_TIMEOUT:-10m} look version
	[ $code != 64 ] || refuse 64 'DELETE_TIMEOUT must be a duration, such as 10m'
	list "$@" || {
		svc ls "$@" --quiet >/dev/null || true # says why
		refuse $code 'svc ls has failed'
	}
}

# next sets entry to the next one that list has read. A name may look like an entry, but not begin a line: svc writes
# each value on one line.
next() {
	local start=$'\n''  - key: '
	[[ $rest == *"$start"* ]] || return 1
	rest=${rest#*"$start"}
	entry=${rest%%"$start"*}
	entry="key: $entry"
}

# field prints a field of an entry, or of another document.
field() {
	local line='(^|'$'\n'')[ -]*'$1': ["'\'']?([^"'\'$'\n'']*)'
	[[ ! $2 =~ $line ]] || printf %s "${BASH_REMATCH[2]}"
}
# ----------------------------------------------------------------------------------------------------------------

# dry_run checks a request for a number of instances, and ends the script if it is refused for another reason than
# the endpoint of the key.
dry_run() {
	local number=$1 why refused
	shift
	set -- "$@" ${number:+--instances "$number"} --dry-run
	look "$@" -o yaml
	why=$(field error_kind "$said")
	case $code:$why in 0:* | 9:key_in_use) return ;; esac
	refused=$code
	look "$@" -o name
	printf '%s\n' "$said" | while IFS= read -r line; do
		[[ $line == *"the same command with --replace"* ]] || show "$line"
	done || true
	[ "$why" != no_flavor ] || [[ " $* " != *" --flavor $flavor "* ]] || say "the key $key has, or had, the flavor $flavor: for another one, FLAGS with --flavor or --max-price"
	refuse $refused "svc deploy would end with $refused"
}

# drop deletes an endpoint of the key.
drop() {
	changed=yes
	run svc delete --missing-ok --timeout "${DELETE_TIMEOUT:-10m}" -- "$1" >/dev/null || {
		say "$1 is not known to be deleted, so nothing is deployed"
		finish 10
	}
	dropped=yes
}

# deploy deploys with the number of instances that served, and sets code. A create that the ledger has stopped was not
# stopped by the endpoint of another command if nothing has the key after the script has deleted what served.
deploy() {
	changed=yes code=0
	run svc "$@" ${count:+--instances "$count"} >/dev/null || code=$?
	[ $code != 9 ] || [ -z "$dropped" ] || {
		list --key "$key" && next && code=$((code ? 10 : 9)) || code=20 # damaged records do not show what runs
	}
}

# serves ends the script, and prints the ID of the endpoint that serves.
serves() {
	svc ls --key "$key" -o name 2>/dev/null || true
	finish "$1"
}

[ -n "$key" ] && [ -n "$image" ] && [ -n "$old" ] || refuse 64 'usage: rollout.sh KEY IMAGE OLD_IMAGE [FLAGS of svc deploy]'
shift 3
case ${OLD_FLAGS-} in *[\"\'\\]*) refuse 64 'OLD_FLAGS are separated by spaces, and have no quotes' ;; esac
check_flags "$@"
check_flags ${OLD_FLAGS-}

# What the key has, and what it had last. The open entry comes first, the others from old to new.
begin --key "$key" --all
day=$(TZ=UTC24 date +%Y-%m-%dT%H:%M:%SZ) # the time 24 hours ago
id='' count='' created='' flavor='' lease='' deleting='' old_flavor='' dropped=''
while next; do
	[ "$(field state "$entry")" != damaged ] || refuse 9 "the records of the key $key are damaged: svc doctor"
	if [ "$(field open "$entry")" = true ]; then
		id=$(field service_id "$entry") created=$(field created_instances "$entry") deleting=$(field delete_accepted_at "$entry")
		count=$(field instances "$entry") flavor=$(field flavor_id "$entry") lease=$(field lease_end "$entry")
	elif [[ $(field deleted_at "$entry") > $day ]]; then
		old_flavor=$(field flavor_id "$entry")
		[ -n "$created" ] || count=$(field instances "$entry") flavor=$old_flavor
	fi
done

new=(deploy --key "$key" --name "$key" --image "$image" --lease "${LEASE:-24h}" "$@")
[ -z "$flavor" ] || named "$flavor_flags" "$@" || new+=(--flavor "$flavor")
dry_run "$created" "${new[@]}"
same=$code # 0: the endpoint of the key, if there is one, is that of the new request

# The old request has the flavor that served in place of its own, and of what selects one.
[ -n "$created" ] && [ -z "$deleting" ] && [ $same = 0 ] && [ -n "$old_flavor" ] || old_flavor=$flavor
if [ -n "${OLD_FLAGS-}" ]; then
	set -- $OLD_FLAGS
	! named "$flavor_flags" "$@" || old_flavor=''
fi
back=(deploy --key "$key" --name "$key" --image "$old" --lease "${LEASE:-24h}")
while [ -n "$old_flavor" ] && [ $# != 0 ]; do
	case $1 in
	--flavor | --gpu | --region | --min-cuda | --max-price) [ $# = 1 ] || shift ;; # and its value
	--flavor=* | --gpu=* | --region=* | --min-cuda=* | --max-price=*) ;;
	*) back+=("$1") ;;
	esac
	shift
done
back+=("$@" ${old_flavor:+--flavor "$old_flavor"})

if [ $same = 9 ]; then
	look get --key "$key" -o yaml
	case $code in
	5) ;; # there is no endpoint to bring back
	0)
		count=$(field instances "$said")
		look flavors -o name
		case $code in 0 | 5)
			[[ $'\n'$said$'\n' == *$'\n'"$flavor"$'\n'* ]] || refuse 10 "the flavor $flavor of $old is not on offer any more, so it could not be brought back" ;;
		esac
		dry_run "$created" "${back[@]}"
		if [ $code = 9 ]; then
			say "the endpoint of the key $key is not of $old with these flags, so it could not be brought back"
			say 'name the image that serves as OLD_IMAGE, and its flags in OLD_FLAGS. No command shows them: look where it was deployed from'
			refuse 9 "if they are not known, replace it without a way back: svc delete --key $key, then svc deploy --key $key"
		fi
		;;
	*)
		show "$said"
		refuse 10 "the endpoint of the key $key cannot be read"
		;;
	esac
	if [ "$count" = 0 ]; then
		say "the endpoint of the key $key has 0 instances, so nothing serves"
		refuse 8 "to start it: svc scale --key $key 1. To replace it without a way back: svc delete --key $key, then svc deploy --key $key"
	fi
fi
[ "$count" != 0 ] || count='' # one that is deleted, or is being deleted
[ -z "$count" ] || say "$image gets as many instances as $key has, or had last: $count. --instances does not count"
[ -z "$old_flavor" ] || say "if $image fails, $old is deployed again with the flavor $old_flavor"
if [ $same = 9 ] || [ -n "$deleting" ]; then
	dry_run "$count" "${new[@]}" # are so many in stock?
	drop "$id"
fi
if [ -n "$created" ] && [ $same = 9 ] && [ -z "${LEASE-}" ] && [[ -z $lease || $lease > $(TZ=UTC-24 date +%Y-%m-%dT%H:%M:%SZ) ]]; then
	say "warning: the lease of $key ${lease:+was until $lease, and }is 24h now. To set another one: svc extend -- $key DURATION, or LEASE next time"
fi

deploy "${new[@]}"
case $code in
0) serves 0 ;;
4 | 8 | 9) finish $code ;; # svc has said what to do
10)
	look get --key "$key" -o yaml
	[ "$code $(field status "$said")" = '0 unavailable' ] || finish 10
	drop "$(field service_id "$said")"
	;;
esac
say "$image has failed: see above. Going back to $old"
deploy "${back[@]}"
case $code in
0) serves 1 ;;
4 | 8 | 9 | 10 | 11) ;;
*) code=20 ;;
esac
say "going back to $old failed too: see above. To try again, run the same command again"
finish $code
