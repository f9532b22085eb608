#!/usr/bin/env bash
# Replaces the image of the endpoint of a key. If the new image does not become available, the old
# one is deployed again, and the script ends with 1: the old one serves.
#
#   rollout.sh KEY IMAGE OLD_IMAGE [FLAGS of svc deploy]
#
# LEASE is how long the endpoint may run before "svc sweep" deletes it (default 24h), DELETE_TIMEOUT how
# long the deletion of the old endpoint may take (default 10m).
#
# The old endpoint is deleted before the new one is created, so for some minutes there is none:
# blue-green.sh has no such gap, but rents both for a while. Nothing is deleted if "svc deploy --dry-run"
# refuses the new request: then the script ends with its code (10 if the old one runs). The script can be run again after any failure or kill. If the old one cannot be
# deployed either, the script ends with the exit code of that "svc deploy" (svc help exit-codes), or with
# 20 in place of 1: 11 and 20 mean that neither runs. It needs SVC_BASE_URL, SVC_API_TOKEN and a ledger
# (svc help scripting).
set -euo pipefail

key=${1:?KEY is missing} image=${2:?IMAGE is missing} old=${3:?OLD_IMAGE is missing}
shift 3

deploy() {
	local image=$1
	shift
	svc deploy --key "$key" --name "$key" --image "$image" --lease "${LEASE:-24h}" "$@"
}

# The dry run checks the request before anything is deleted, and whether the key has the endpoint of
# another one. With the same image, the deployment continues with the endpoint that exists.
code=0
said=$(deploy "$image" "$@" --dry-run -o name 2>&1) || code=$?
case $code in
0) ;;
9) svc delete --key "$key" --missing-ok --timeout "${DELETE_TIMEOUT:-10m}" ;; # fails too if the ledger is broken
*)
	printf '%s\n' "$said" >&2
	echo "rollout: the request is refused, and nothing was changed" >&2
	exit $code
	;;
esac

code=0
deploy "$image" "$@" || code=$?
case $code in
0) exit 0 ;;
4 | 8 | 9 | 10 | 64) exit $code ;; # an endpoint may be running, perhaps a healthy one, or nothing was done: svc has said what to do
esac
echo "rollout: $image failed with exit code $code; going back to $old" >&2
code=0
deploy "$old" "$@" || code=$?
case $code in
0) exit 1 ;;
1) code=20 ;;
esac
echo "rollout: going back to $old failed too: see above" >&2
exit $code
