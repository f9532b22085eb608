package main

import (
	"errors"
	"strings"

	"example.com/svc"
	"example.com/svc/internal/lazy"
)

// ofTheTool replaces names of Go with commands, flags and plain words.
var ofTheTool = strings.NewReplacer(
	": svc: ", ": ",
	": ledger: ", ": ",
	"\nsvc: ", "; ",
	"\n", "; ",
	"context deadline exceeded", "the time limit is over",
	"context canceled: interrupted", "interrupted",
	"context canceled", "canceled",
	"set WithToken, WithTokenSource or SVC_API_TOKEN", "set SVC_API_TOKEN or --token-file",
	"set WithInferenceURL or SVC_INFERENCE_URL", "set SVC_INFERENCE_URL or --inference-url",
	"allow it with WithInsecureHTTP", "allow it with --insecure-http or SVC_INSECURE_HTTP=true",
	"set WithLedger", "set SVC_LEDGER or --ledger",
	": look for the record at the provider", "", // the tool lists the steps
	", then call Ledger.Adopt or Ledger.Forget", "",
	", then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", "",
	"Body is empty, and RefuseEmpty is set", "the input is empty, and --allow-empty is not given",
	"Body has nothing left after", "the input has nothing left after",
	"Body is", "the input is",
	": call Replace with a new reader to send them, or Delete", "", // the tool names the command
	"; the link has expired: get a new link from PresignedURL and call Put again", "; the link has expired",
	"; open it, and use Download with a writer", "; with - in place of FILE, the contents go to standard output",
	"FileClient.List shows", `"svc files ls" shows`,
	"if you do not want it, call DeleteAndWait", "if you do not want it, delete it",
	"delete it with DeleteAndWait", "delete it",
	"set a new end with Extend, or delete the endpoint with DeleteAndWait", `set a new end with "svc extend", or delete the endpoint`,
	"the next Deploy with that key", `the next "svc deploy" with that key`,
	" (see WithoutLedgerMark)", "",
	": see WithoutLedgerMark", "",
	"seek to its start, or set AllowEmpty to send an empty file", "--allow-empty uploads an empty file",
	"MinCUDA must", "--min-cuda must",
	"MinAvailable must", "--min-available must",
	"MinGPUsPerNode must", "--gpus must",
	"MaxPrice must", "--max-price must",
	"Key must", "--key must",
	"Lease must", "--lease must",
	"ContentType is", "--content-type is",
)

// ofDecoding matches the messages of encoding/json about a value of the wrong type.
var ofDecoding = lazy.Regexp(`json: cannot unmarshal (.+?) into Go (?:value|struct field \S+) of type [\w.\[\]*]+`)

// noPolls matches the message of a wait without polls.
var noPolls = lazy.Regexp(`; no status after 0 polls in [\w.]+`)

// plainText returns the message of an error with commands and flags in place of library
// functions.
func plainText(err error) string {
	if e, ok := errors.AsType[deletedByOther](err); ok {
		return plainText(e.error) + ": " + e.why
	}
	if failed, ok := errors.AsType[*svc.DeployError](err); ok && failed.Err != nil {
		text := failed.ServiceID + " is not available: " + plainText(failed.Err)
		if failed.CleanupErr != nil {
			text += "; it could not be deleted: " + plainText(failed.CleanupErr)
		}
		return text
	}
	text := noPolls().ReplaceAllString(ofDecoding().ReplaceAllString(err.Error(), "unexpected $1"), "")
	return ofTheTool.Replace(strings.TrimPrefix(text, "svc: "))
}
