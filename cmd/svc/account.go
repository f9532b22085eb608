package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/svc"
	"example.com/svc/ledger"
)

// otherToken reports whether the ledger records that an endpoint was created with another token. If that
// token is of another account, the service does not find the endpoint although it runs. otherToken
// returns false if the ledger has no TokenCheck, or there is no token.
func (t *tool) otherToken(ctx context.Context, e ledger.Entry) bool {
	token, err := readToken(t.flags.tokenFile)(ctx)
	if err != nil || e.TokenCheck == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(e.Intent))
	return hex.EncodeToString(mac.Sum(nil)[:4]) != e.TokenCheck
}

// mayBeOfAnother reports whether an endpoint may be of another account, as far as the ledger knows the token of its create.
func (t *tool) mayBeOfAnother(e ledger.Entry) bool {
	return e.TokenCheck == "" || t.otherToken(t.ctx, e)
}

// otherTokenError is returned for an endpoint that is not found, but was created with another token.
type otherTokenError struct{ entry ledger.Entry }

func (e otherTokenError) Error() string {
	return fmt.Sprintf("%s is not found, but the ledger has it (key %s) as created with another token: a \"not found\" for this token proves nothing, and the endpoint may be running and billed", printable(e.entry.ServiceID), e.entry.Key)
}

// noteHidden records the endpoints of a command that were not found, and that the ledger has as created
// with another token. That is a reason for a failure of any kind: a time limit may have ended the wait.
func (t *tool) noteHidden(ctx context.Context, err error) {
	failed, isWait := errors.AsType[*svc.WaitError](err)
	missing := isNotFound(err) || isA[otherTokenError](err) || isWait && isNotFound(failed.LastErr)
	if t.client == nil || !missing {
		return
	}
	ids := strings.Fields(strings.ToLower(t.facts().ID))
	for _, e := range t.entriesBriefly(context.WithoutCancel(ctx)) {
		if e.State == ledger.Created && !t.elsewhere(e) && slices.Contains(ids, strings.ToLower(e.ServiceID)) && !t.endpoint(e.ServiceID).shown && t.otherToken(ctx, e) {
			t.note(func(f *facts) { f.Hidden = append(f.Hidden, printable(e.ServiceID)+" (key "+e.Key+")") })
		}
	}
}

// hidden returns which open endpoints of this address the service does not find, although the ledger has them as created
// with another token.
func (t *tool) hidden(ctx context.Context, entries []ledger.Entry) (hidden []string) {
	for _, e := range entries {
		if e.State != ledger.Created || t.elsewhere(e) || !t.otherToken(ctx, e) {
			continue
		}
		if _, err := t.client.InferenceServices.Get(ctx, e.ServiceID, svc.WithMaxAttempts(1)); isNotFound(err) {
			hidden = append(hidden, printable(e.ServiceID)+" of the key "+e.Key)
		}
	}
	return hidden
}

// withItsToken is a part of the advice about an endpoint that this token does not find.
func (f facts) withItsToken() string {
	if len(f.Hidden) > 0 {
		return ", with the token of the account that created it"
	}
	return ""
}

// otherTokenAdvice returns what to do about an endpoint that was created with another token, one line
// each.
func (t *tool) otherTokenAdvice(err error, f facts) []string {
	e, ok := errors.AsType[otherTokenError](err)
	switch {
	case ok:
		return []string{
			"If this token is of another account: repeat the command with the token of the account that created the endpoint.",
			fmt.Sprintf("If it is a new token of the same account, and you have seen there that the endpoint does not exist: %s", t.cmdOf(e.entry, "forget %s --other-token", e.entry.Key)),
		}
	case len(f.Hidden) > 0:
		return []string{fmt.Sprintf("Check the token: the ledger has %s as created with another token. If that is of another account, the endpoint may be running there, and this token does not find it.", strings.Join(f.Hidden, ", "))}
	}
	return nil
}

// withoutProof replaces a "not found" with an otherTokenError if the endpoint was created with another
// token.
func (t *tool) withoutProof(ctx context.Context, e ledger.Entry, err error) error {
	if isNotFound(err) && t.otherToken(ctx, e) {
		return otherTokenError{e}
	}
	return err
}
