#!/usr/bin/env bash
# Deletes the endpoints whose lease is over, and reports what needs a person: entries in doubt,
# leases that could not be enforced, endpoints at other addresses, a broken ledger. Drops from the
# ledger what has ended more than 90 days ago (KEEP).
#
#   nightly-sweep.sh
#
# It writes nothing if there is nothing to report, so that cron sends a mail only if there is. It
# needs SVC_BASE_URL, SVC_API_TOKEN and a ledger (svc help scripting).
set -euo pipefail

# A signal ends the sweep, and the report. An endpoint whose lease is over may still run: the next sweep deletes it.
child='' stopped=''
stop() {
	stopped=$1
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}
trap 'stop SIGINT' INT
trap 'stop SIGTERM' TERM
trap 'stop SIGHUP' HUP

code=0
svc sweep --quiet &
child=$!
[ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true # the signal came before its number was known
wait "$child" || code=$?
if [ -n "$stopped" ]; then
	code=0
	wait "$child" || code=$? # the signal has ended the first wait
	echo "nightly-sweep: stopped by $stopped. What may be running, also if its lease is over:" >&2
	svc ls >&2 || true
	echo "nightly-sweep: to delete what is over: svc sweep" >&2
	exit $((code ? code : 130))
fi
svc ledger prune --older-than "${KEEP:-90d}" --quiet >/dev/null || code=$?
report=$(svc doctor 2>&1) || {
	printf '%s\n\n' "$report"
	svc ls
	[ $code != 0 ] || code=1
}
exit $code
