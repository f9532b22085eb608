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
# Each release has a key of its own, APP--RELEASE, so the script can be run again after any failure or
# kill, and needs no other state than the ledger. APP and RELEASE must not contain "--", so that no
# release of another app is taken for an old one: 1 to 64 characters of a-z, 0-9, _ and - in all. It needs
# SVC_BASE_URL, SVC_API_TOKEN, SVC_INFERENCE_URL and a ledger (svc help scripting). A wrong use ends with 64.
set -euo pipefail

app=${1-} release=${2-} image=${3-} switch=${4-}
if [ -z "$app" ] || [ -z "$release" ] || [ -z "$image" ] || [ -z "$switch" ]; then
	echo 'usage: blue-green.sh APP RELEASE IMAGE SWITCH [FLAGS of svc deploy]' >&2
	exit 64
fi
shift 4
case $app:$release in *--* | *-:* | *:-*)
	echo 'blue-green: APP and RELEASE must not contain "--", nor have a "-" where they meet' >&2
	exit 64 ;;
esac
new=$app--$release

svc deploy --key "$new" --name "$new" --image "$image" --lease "${LEASE:-720h}" "$@"
url=$(svc url --key "$new")
"$switch" "$url" || {
	echo "blue-green: the switch to $new failed ($?): $new and the old release are running and billed" >&2
	echo "blue-green: run the same command again, or: svc delete --key $new" >&2
	exit 20
}
echo "blue-green: $new serves at $url" >&2
sleep "${DRAIN:-30}"

old=$(svc ls --no-headers | awk -v app="$app--" -v new="$new" 'index($1, app) == 1 && $1 != new { print $1 }')
for key in $old; do
	svc delete --key "$key" --timeout "${DELETE_TIMEOUT:-10m}"
done
