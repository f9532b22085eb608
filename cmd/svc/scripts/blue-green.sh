#!/usr/bin/env bash
# Deploys a release beside the one that serves, switches the traffic, and deletes the old one. If the new release does
# not become available, nothing changes for the users.
#
#   blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]
#
#   code   what serves
#   0      RELEASE. Its ID is on standard output. The old releases are deleted
#   20     see the last lines: RELEASE became available, and others may run too. This run deleted none that serves
#   4, 10  what served before. RELEASE may run too: see the last lines
#   8      nothing: the release that serves has 0 instances, and nothing was changed
#   64     what served before: a wrong use
#   137    not known: SIGKILL ended the script. To see it: svc ls
#   other  what served before: RELEASE does not run (svc help exit-codes. 129, 130, 143: a signal stopped the script)
#
# A failure of bash or a crash of svc ends the script as a signal does.
#
# SWITCH is a program of yours: it gets the address of the new release as its argument, and points the traffic to it.
# DRAIN is how many seconds the old release goes on after that (default 30), DELETE_TIMEOUT how long the deletion of an
# old release may take (default 10m). LEASE is how long a release may run before "svc sweep" deletes it (default 720h),
# counted from its switch.
#
# The new release gets as many instances as the one that serves has now: --instances counts only for the first
# release. It gets its flavor too, so that the price stays: if too few of it are in stock, nothing is changed. FLAGS
# with --flavor or --max-price name another. If several releases run, the script does not know which one serves: it
# changes nothing and ends with 9, unless FLAGS have --instances and --flavor.
#
# Each release has a key of its own, APP--RELEASE. The script can be run again after any failure or kill, with the same
# arguments. Run the releases of an APP one after the other. If two runs overlap, the script notices by the ledger, also
# while SWITCH runs: a release is new, its lease was set, or RELEASE is deleted since. Then it switches and deletes
# nothing more, and ends with 20. Run it again for the release that shall serve, when no other run is left: that deletes
# the others. With LEASE=0, or a service whose responses have no Date, no lease is set: two runs for releases that exist
# already do not notice each other.
#
# SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to what runs, nothing is started after it, and no release is
# deleted. A svc or SWITCH that ends with 128 or more stops the script too. A signal to svc alone that svc catches is a
# failure of that svc. A signal that is ignored when the script starts (by nohup or &) stays ignored: use SIGTERM then.
#
# APP and RELEASE must not contain "--", so that no release of another app is taken for an old one: 1 to 64 characters
# of a-z, 0-9, _ and - in all.
#
# The script needs bash 3.2 or later, SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and a ledger (svc help scripting).
# FLAGS cannot have --key, --image, --wait, --keep and --dry-run, nor --lease and flags that each svc would need, such as
# --ledger: set LEASE and SVC_LEDGER.
set -euf -o pipefail

app=${1-} release=${2-} image=${3-} switch=${4-} new=${1-}--${2-} both=''
undo=" To give up $new: svc delete --key $new --missing-ok"

# report ends the script, and says what may run.
report() {
	local code=$1 listed
	say "$2. The releases of $app that may be running and billed:"
	listed=$(svc ls --timeout 30s 2>/dev/null) || listed='KEY: the ledger cannot be read: svc ls'
	printf '%s\n' "${listed:-KEY: none}" | while IFS= read -r line; do
		case $line in KEY* | "$app"--*) show "$line" ;; esac
	done || true
	say "to go on, run the same command again, when no other one runs for $app.$undo"
	case $code:$'\n'$listed in
	4:* | 20:*) ;;
	*'KEY: the ledger'* | *$'\n'"$new "*) code=10 ;; # it may run
	esac
	finish $code
}

# what_runs ends the script after a signal.
what_runs() {
	local code=130
	case $ended in 4 | 10 | 11) code=$ended ;; esac
	report "${both:-$code}" "stopped by $stopped"
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

# leave ends the script after a failure, and says what may run.
leave() {
	unless_stopped # what it has read may be half of it
	report "$1" "$2"
}

# releases finds the releases in what list has read: the ID of the new one, unless it is being deleted, the keys of the
# others, and a mark for each of these which changes when a run of this script deploys or claims it.
releases() {
	local key
	keys='' marks='' there=''
	while next; do
		key=$(field key "$entry")
		[[ $key == "$app"--* ]] || continue
		[ "$key" = "$new" ] || keys="$keys $key"
		[ -z "$(field delete_accepted_at "$entry")" ] || continue
		if [ "$key" = "$new" ]; then
			there=$(field service_id "$entry")
		else
			marks="$marks $key/$(field intent "$entry")/$(field lease_end "$entry")"
		fi
	done
}

# alone ends the script if another run has begun since this one, or if the new release is not there any more.
alone() {
	local mark
	list || leave 20 'the ledger cannot be read'
	releases
	[ "$there" = "$id" ] || leave 20 "another command deletes $new, or has deleted it: nothing more is $1$traffic"
	for mark in $marks; do
		[[ " $begun " == *" $mark "* ]] || leave 20 "another run has begun: ${mark%%/*} is new, or its lease was set, since this run began. Nothing more is $1"
	done
}

# claim shows other runs, by the lease of the new release, that this run goes on, and ends it if there is one.
claim() {
	local failed=0
	# A second later, since the lease must be another one: the clock of the service has whole seconds.
	run sleep 1 && run svc extend -- "$new" "${LEASE:-720h}" >/dev/null || failed=$?
	alone "$1"
	case $failed in 0 | 9) ;; *) leave 20 "the lease of $new cannot be set: nothing more is $1" ;; esac # 9: the service sends no Date
}

# tell says something about a flavor, with its price, if it is known.
tell() {
	local price
	[ -n "$2" ] || return 0
	look flavors --no-headers
	price=$(printf '%s\n' "$said" | while read -r flavor rest; do [ "$flavor" != "$2" ] || printf %s "${rest##* } USD"; done)
	say "$1 the flavor $2 at ${price:-a price that is not known}"
}

# serving finds the number of instances and the flavor to deploy with: those of a new release that exists, or else of
# the one that serves. They are empty if there is none, or several.
serving() {
	local key
	rest=$said
	while next; do
		key=$(field key "$entry")
		[[ $key == "$app"--* ]] || continue
		case $(field state "$entry"):$key in
		damaged:*) refuse 9 "the records of the key $key are damaged: svc doctor" ;;
		created:* | *:"$new") ;;
		*) refuse 9 "the outcome of the create of $key is not known: wait for the run that creates it, or settle it (svc help exit-codes, code 4)" ;;
		esac
		[ -z "$(field delete_accepted_at "$entry")" ] || continue
		if [ "$key" = "$new" ]; then
			count=$(field created_instances "$entry") flavor=$(field flavor_id "$entry") serves=''
			return
		fi
		look get --key "$key" -o yaml
		[ $code != 5 ] || continue # it is deleted already
		[ $code = 0 ] || said=$entry
		serves="$serves${serves:+ and }$key" count=$(field instances "$said") flavor=$(field flavor_id "$said")
	done
	if [[ $serves == *' and '* ]]; then
		named --instances "$@" && named "$flavor_flags" "$@" ||
			refuse 9 "$serves run, and it is not known which one serves. Delete the other one (svc delete --key KEY), or name --instances and --flavor"
		count='' flavor='' serves=''
	fi
	[ -n "$serves" ] || return 0
	tell "$serves serves, with" "$flavor"
	say "$new gets as many instances as the release that serves: $count"
}

[ -n "$app" ] && [ -n "$release" ] && [ -n "$image" ] && [ -n "$switch" ] || refuse 64 'usage: blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]'
shift 4
check_flags "$@"
case $app:$release in *--* | *-:* | *:-*) refuse 64 'APP and RELEASE must not contain "--", nor have a "-" where they meet' ;; esac
case ${DRAIN:-30} in *[!0-9]*) refuse 64 'DRAIN must be a number of seconds' ;; esac
command -v "$switch" >/dev/null || refuse 64 "$switch is no program"
traffic=''

begin
releases
old=$keys begun=$marks count='' flavor='' serves=''
serving "$@"
[ "$count" != 0 ] || refuse 8 "the release that serves has 0 instances, so nothing serves. To start it: svc scale --key $serves 1"
! named "$flavor_flags" "$@" || flavor=''
run svc deploy --key "$new" --name "$new" --image "$image" --lease "${LEASE:-720h}" "$@" \
	${count:+--instances "$count"} ${flavor:+--flavor "$flavor"} >/dev/null || {
	code=$?
	[ $code != 64 ] || refuse 64 'svc deploy does not accept the request'
	[ $code != 5 ] || [ -z "$serves" ] || [ -z "$flavor" ] || say "$new was to have the flavor of $serves: for another one, the same command with --flavor or --max-price"
	[ $code = 4 ] || [ -z "$(svc ls --key "$new" --timeout 30s 2>/dev/null)" ] || code=10 # of another request, or with 0 instances
	unless_stopped
	finish $code
}
both=20
look url --key "$new" -o yaml
[ $code = 0 ] || leave 20 "the address of $new cannot be read"
id=$(field service_id "$said") url=$(field url "$said")
printf '%s\n' "$id" || true
tell "$new has" "$(field flavor_id "$said")"
claim switched
run "$switch" "$url" || leave 20 "the switch to $new failed ($?)"
undo='' traffic=', and the traffic may point to what is deleted'
say "$new serves at $url"
claim deleted
run sleep "${DRAIN:-30}" || leave 20 "sleep has failed: nothing is deleted"

failed=0
for key in $old; do
	alone deleted
	run svc delete --missing-ok --key "$key" --timeout "${DELETE_TIMEOUT:-10m}" >/dev/null || {
		say "$new serves, but $key is not deleted. To see it: svc ls --key $key"
		failed=20
	}
done
finish $failed
