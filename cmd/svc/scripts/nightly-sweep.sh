#!/usr/bin/env bash
# Deletes the endpoints whose lease is over, and reports what needs a person: entries in doubt,
# leases that could not be enforced, endpoints at other addresses, a broken ledger. Drops from the
# ledger what has ended more than 90 days ago (KEEP).
#
#   nightly-sweep.sh
#
# It writes nothing if there is nothing to report, so that cron sends a mail only if there is. It ends with
# the code of "svc sweep", or if that is 0, with the code of "svc ledger prune", or with 1 if there is something
# to report. It needs SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting).
#
# SIGINT, SIGTERM and SIGHUP are passed on to svc, and nothing is started after it. Then the script ends
# with 130 in place of 0 and 1. An endpoint whose lease is over may still run: the next sweep deletes it. It ends
# so too if a signal has ended svc alone. A signal that is ignored when the script starts stays ignored, by svc too:
# SIGHUP under nohup, and SIGINT if another script has started it with &. SIGTERM ends it then.
set -euo pipefail

child='' stopped='' signals=0 code=0
stop() {
	stopped=$1 signals=$((signals + 1))
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGHUP' HUP

# run runs svc, and passes signals on to it.
run() {
	local seen ended
	svc "$@" &
	child=$!
	[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
	while seen=$signals ended=0; do                             # a signal ends wait, and not svc
		wait "$child" || ended=$?
		[ $seen != $signals ] || break
	done
	child=''
	[ $ended -lt 128 ] || stopped=${stopped:-a signal to svc}
	return $ended
}

# unless_stopped ends the script after a signal.
unless_stopped() {
	[ -n "$stopped" ] || return 0
	echo "nightly-sweep: stopped by $stopped. What may be running, also if its lease is over:" >&2
	svc ls >&2 || true
	echo "nightly-sweep: to delete what is over: svc sweep" >&2
	[ $code -gt 1 ] || code=130
	exit $code
}

report=$(mktemp)
trap 'rm -f "$report"' EXIT
unless_stopped
run sweep --quiet || code=$?
unless_stopped
run ledger prune --older-than "${KEEP:-90d}" --quiet >/dev/null || code=$((code ? code : $?))
unless_stopped
run doctor >"$report" 2>&1 || {
	unless_stopped
	cat "$report"
	echo
	svc ls || true # its code would hide that of the sweep
	[ $code != 0 ] || code=1
}
unless_stopped
exit $code
