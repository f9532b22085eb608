package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

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

// otherTokenError is returned for an endpoint that is not found, but was created with another token.
type otherTokenError struct{ entry ledger.Entry }

func (e otherTokenError) Error() string {
	return fmt.Sprintf("%s is not found, but the ledger has it (key %s) as created with another token: a \"not found\" for this token proves nothing, and the endpoint may be running and billed", printable(e.entry.ServiceID), e.entry.Key)
}

// otherTokenAdvice returns what to do about an endpoint that was created with another token, one line
// each.
func otherTokenAdvice(err error) []string {
	e, ok := errors.AsType[otherTokenError](err)
	if !ok {
		return nil
	}
	return []string{
		"If this token is of another account: repeat the command with the token of the account that created the endpoint.",
		fmt.Sprintf("If it is a new token of the same account, and you have seen there that the endpoint does not exist: svc forget %s --other-token", e.entry.Key),
	}
}

// withoutProof replaces a "not found" with an otherTokenError if the endpoint was created with another
// token.
func (t *tool) withoutProof(ctx context.Context, e ledger.Entry, err error) error {
	if isNotFound(err) && t.otherToken(ctx, e) {
		return otherTokenError{e}
	}
	return err
}
