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

code=0
svc sweep --quiet || code=$?
svc ledger prune --older-than "${KEEP:-90d}" --quiet >/dev/null || code=$?
report=$(svc doctor 2>&1) || {
	printf '%s\n\n' "$report"
	svc ls
	[ $code != 0 ] || code=1
}
exit $code
