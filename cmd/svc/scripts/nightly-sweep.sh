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
#   10     svc or bash itself has failed (2), which bash 5.2 does at times after a signal; or as "other"
#   130    a signal stopped the script, and no sweep has failed
#   other  the code of "svc sweep", or if that is 0, of "svc ledger prune" (svc help exit-codes)
#
# SIGINT, SIGTERM and SIGHUP are passed on to svc, and nothing is started after it. A svc that ends with 128 or more
# stops the script too. An endpoint whose lease is over may still run then: the next sweep deletes it. A signal that is
# ignored when the script starts (by nohup or &) stays ignored: use SIGTERM then.
#
# It needs bash 3.2 or later, SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting).
set -euo pipefail

# The lines up to the next bar are the same in all scripts here.
# ----------------------------------------------------------------------------------------------------------------
true >&2 || exec 2>/dev/null # a stream that is closed
{ true <&0; } 2>/dev/null || exec </dev/null
{ true >&1; } 2>/dev/null || exec >&2

name=${0##*/} name=${name%.sh} child='' stopped='' both='' signals=0
stop() {
	stopped=$1 signals=$((signals + 1))
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}
for signal in INT TERM HUP; do trap "stop SIG$signal" $signal; done
trap 'signals=$((signals + 1))' PIPE # of a reader that has gone away

# show and say write to standard error. That they cannot is no failure.
show() { printf '%s\n' "$@" >&2 || true; }
say() { show "$name: $*"; }

# on_exit keeps 2 from being the code: a svc that crashed, or a failure of bash, which may misread a trap if a signal
# comes while it reads a $(...). Then nothing is known of what runs.
on_exit() {
	[ "$1" = 2 ] || return 0
	say 'svc or bash has failed: see above. What runs is not known. To see it: svc ls'
	exit "${both:-10}"
}
trap 'on_exit $?' EXIT

# noticed stops the script after a code of svc that is that of a signal.
noticed() { [ "$1" -lt 128 ] || stopped=${stopped:-a signal to svc}; }

# run runs a program, and passes signals on to it.
run() {
	local seen ended
	unless_stopped 130
	"$@" <&0 &
	child=$!
	[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
	while seen=$signals ended=0; do                             # a signal ends wait, and not the program
		wait "$child" || ended=$?
		[ $seen != $signals ] || break
	done
	child=''
	noticed $ended
	[ $ended = 0 ] || unless_stopped $ended
	return $ended
}
# ----------------------------------------------------------------------------------------------------------------

# unless_stopped ends the script after a signal.
unless_stopped() {
	[ -n "$stopped" ] || return 0
	say "stopped by $stopped. What may be running, also if its lease is over:"
	show "$(svc ls 2>&1)"
	say 'to delete what is over: svc sweep'
	[ $code != 0 ] || code=${1:-0} # that of the sweep
	[ $code -gt 1 ] || code=130
	exit $code
}

# silently is a program whose output nobody needs.
silently() { exec "$@" >/dev/null 2>&1; }

code=0
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
exit $code
