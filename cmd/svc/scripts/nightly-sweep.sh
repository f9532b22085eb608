#!/usr/bin/env bash
# Deletes the endpoints whose lease is over, and reports what needs a person: entries in doubt,
# leases that could not be enforced, endpoints at other addresses, a broken ledger. Drops from the
# ledger what has ended more than 90 days ago (KEEP).
#
#   nightly-sweep.sh
#
# It writes nothing if there is nothing to report, so that cron sends a mail only if there is. The
# report goes to standard error if standard output cannot be written.
#
#   code   what it means
#   0      nothing to report
#   1      there is something to report
#   130    a signal, or a failure of bash, stopped the script, and no sweep has failed
#   other  the code of "svc sweep", or if that is 0, of "svc ledger prune" (svc help exit-codes). 10 if svc was killed
#
# SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to svc, and nothing is started after it. A svc that ends with 128
# or more stops the script too. An endpoint whose lease is over may still run then: the next sweep deletes it. A signal
# that is ignored when the script starts (by nohup or &) stays ignored: use SIGTERM then.
#
# It needs bash 3.2 or later, SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting).
set -euo pipefail

code=0 # that of the sweep

# what_runs ends the script after a signal.
what_runs() {
	say "stopped by $stopped. What may be running, also if its lease is over:"
	show "$(svc ls --timeout 30s 2>&1)"
	say 'to delete what is over: svc sweep'
	[ $code != 0 ] || code=$ended
	case $code in
	0 | 1) code=130 ;;
	2 | 129 | 13[1-9] | 1[4-9]? | 2??) code=10 ;; # svc has crashed, or was killed
	esac
	finish $code
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

# silently is a program whose output nobody needs.
silently() { exec "$@" >/dev/null 2>&1; }

run svc sweep --quiet || code=$?
run svc ledger prune --older-than "${KEEP:-90d}" --quiet >/dev/null || code=$((code ? code : $?))
run silently svc doctor || code=$((code ? code : 1))
[ $code = 0 ] || {
	report=$(
		svc doctor --timeout 2m </dev/null 2>&1 || true
		echo
		svc ls 2>&1
	) || true
	printf '%s\n' "$report" || show "$report"
}
unless_stopped
finish $code
