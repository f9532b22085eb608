package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// rootHelp is the help of svc without a command. It fits on one screen.
func rootHelp(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`Run container images as dedicated endpoints, and know at all times what may be running.

Usage: svc COMMAND [flags]        "svc COMMAND --help" shows the flags of a command

`)
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, "  %-11s %s\n", c.Name(), c.Short)
		}
	}
	b.WriteString(`
Flags of every command: --base-url --inference-url --token-file --ledger --timeout
  --output|-o table|json|yaml|name (not of svc run)  --progress  --no-headers  --quiet  --verbose
And of svc alone: --version

Data goes to standard output, all else to standard error. The exit code says whether an
endpoint may be running and billed: svc help exit-codes. For scripts: svc help scripting
`)
	return b.String()
}

// exitCodes lists what each exit code means: whether an endpoint of the command may be running,
// the meaning, and what to run next.
var exitCodes = [][]string{
	{"0", "if asked for", "done", ""},
	{"1", "no *", "failed, and no other code fits; doctor: a problem", "read the message"},
	{"3", "no *", "the time limit of --timeout is over; nothing was created or changed", "run it again"},
	{"4", "yes, ID unknown", "the outcome of a create is not known (svc ls: unknown or intended)", "svc ls, then svc adopt or forget"},
	{"5", "not known *", "no such endpoint, no open entry of the key, or no flavor fits and is in stock", "svc ls, svc flavors"},
	{"6", "no *", "the service did not accept the token; forget: it is not the one of the create", "check the token"},
	{"7", "no *", "the service cannot be reached or is overloaded", "run it again"},
	{"8", "yes, or 0 instances", "the endpoint is unavailable or stopped", "svc get ID, svc scale ID N"},
	{"9", "if it ran before", "the ledger stopped the command; nothing was created", "svc doctor"},
	{"10", "yes", "an endpoint may be running and billed", "as the last line says"},
	{"11", "no", "the deployment failed, and its endpoint is deleted, or that of deploy --replace", "read the message"},
	{"64", "if it ran before", "usage error; nothing was sent", "svc COMMAND --help"},
	{"127", "no", "run: CMD was not found, or cannot be executed; nothing was created", "check the command"},
	{"130", "no *", "a signal has ended it; nothing was created or changed", "run it again"},
	{"2", "yes", "the program crashed, or was ended by SIGABRT", "svc ls"},
	{"128+n", "yes; run: see below", "signal n killed the program (137: SIGKILL)", "svc ls"},
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	table{header: []string{"CODE", "MAY ONE RUN?", "MEANING", "NEXT"}, rows: exitCodes}.write(&b, true)
	return &cobra.Command{Use: "exit-codes", Short: "each exit code: what may be running, and what to do", Long: b.String() + `
"No" means that none is running of the endpoints that the command creates, scales or deletes. "No *"
is not for commands that create, scale and delete nothing (get, wait, url, ls, adopt, forget, extend):
what ran before them still runs. After 5, an endpoint may run that the token cannot see. None runs if
no flavor fits, or if the ledger has no open entry of the key.

"svc run" ends with the code of its program once the endpoint is deleted, and so with 129, 130 or 143
after SIGHUP, SIGINT or SIGTERM: then none runs. After 137, which is SIGKILL, one may run. The file of
--result has the code of "svc run" and that of its program, so a script can tell them apart:

  code=0; svc run --result r.json … -- ./test.sh || code=$?
  jq -e '.svc_exit_code == 0' r.json     # rented and given back; then command_exit_code is that of test.sh

In a document (-o json), may_be_running says it after every code: it is false only if it is known that
nothing of what the command is about is running and billed. An endpoint that is stopped and has 0
instances is not billed.

If standard output cannot be written (a full disk), the command still does its work. Then a command
that creates, scales or deletes ends with 10 if an endpoint may be running. Otherwise, and after a
command that only reads, the code is 1, for every -o. A reader that has gone away (| head) is no
failure, and a closed standard output (>&-) counts as /dev/null: the code is that of the work, although
nobody gets the ID.

After SIGHUP, SIGINT and SIGTERM, all commands but "svc run" end with 130 if nothing runs, and else with
4, 10 or 11. A SIGHUP or SIGINT that is ignored when svc starts stays ignored, for CMD of "svc run" too:
SIGHUP under nohup, and SIGINT after "&" in a script. Send SIGTERM to these.

The first signal ends the command, and deletes what it created. Signals within two seconds
count as one, because timeout(1) sends two. A later signal, or SIGQUIT (Ctrl-\) at any time, ends the
program at once: no create, change or delete is sent any more, and the last line says what to run. It
ends with 10 or 4 if an endpoint may be running. The cleanup of "svc deploy" takes 40 s at most: up to
10 s for the response to a create, and up to 30 s for the delete. Once CMD of "svc run" has begun, it
takes 2m10s at most: up to 10 s until CMD ends, and up to 2 minutes for the delete.`}
}

func scriptingTopic() *cobra.Command {
	return &cobra.Command{Use: "scripting", Short: "how to use svc in scripts and pipelines", Long: `Standard output has data only: "svc deploy" writes the ID, "svc url" the address. With -o json it
is one document for each command, also after a failure (then with error and error_kind). Lists are
[] and never absent. "-o name" writes IDs, one a line. All else is on standard error: one line for
each change, "--progress json" makes it JSON, one object a line, and --quiet leaves errors and
warnings.

  # chat.yaml has the fields of the create request, as "svc deploy --dry-run" prints them:
  #   name: chat
  #   deploy_metadata: {image_url: "registry.example/chat:3"}
  set -euo pipefail
  code=0; id=$(svc deploy --file chat.yaml --key chat --lease 8h) || code=$?
  case $code in
  0)   curl -fsS "$(svc url "$id")/health" ;;
  4)   echo "somebody has to look: svc ls" >&2 ;;     # it may be running, with an unknown ID
  5)   echo "no flavor fits, or none is in stock: svc flavors --wait" >&2 ;;
  7)   echo "nothing is running: try again later" >&2 ;;
  10)  echo "it may be running: svc ls" >&2 ;;         # perhaps an endpoint of an earlier command, which serves
  11)  echo "it failed, and is deleted" >&2 ;;
  *)   echo "see svc help exit-codes, and svc ls" >&2 ;;
  esac

With --key, the same command can be run again after any failure or kill: it continues with the
endpoint that exists. In a pipeline, delete in a step that always runs, and give every endpoint a
lease:

  svc delete --key chat --missing-ok
  */5 * * * *  svc sweep --quiet                       # from one place

Give the program time to clean up (without --preserve-status the code of svc is lost):

  timeout --preserve-status -k 60 10m svc deploy …
  timeout --preserve-status -k 180 1h svc run --lease 2h … -- ./test.sh

A pipeline whose disk does not last keeps the ledger in a database: SVC_LEDGER=postgres://…
(make it once: svc ledger init). To test a script, "svc fake" serves a fake of the service, with
failures on demand.

Settings of each svc that a script starts are variables of the environment: SVC_BASE_URL, SVC_API_TOKEN,
SVC_INFERENCE_URL and SVC_LEDGER. SVC_INSECURE_HTTP=true (or 1) is --insecure-http, for an address that
is http:// on another machine; the flag wins, and any other value than 1, true, 0 and false is a usage
error.`}
}
