// Package recovery_test holds the Go code of docs/recovery.md, and runs it in the situations that
// the document describes.
package recovery_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/ledger/sqlledger"
)

// The body of each function is a piece of the document, with nothing but its end added.

func unknownWithKey(ctx context.Context, client *svc.Client, request svc.CreateInferenceServiceRequest, opts *svc.DeployOptions, lookup func(mark string) string) error {
	_, err := client.InferenceServices.Deploy(ctx, request, opts)
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		entry, err := client.Ledger.Entry(ctx, unknown.Key)
		if err != nil || entry == nil { // nil: somebody has settled it
			return err
		}
		id := lookup("[svc:" + entry.Intent + "]") // yours: ask a person, or the console
		if id == "" {
			return client.Ledger.Forget(ctx, *entry)
		}
		_, err = client.Ledger.Adopt(ctx, *entry, id, nil)
		return err
	}
	return err
}

func unknownWithoutKey(ctx context.Context, client *svc.Client) error {
	entries, err := client.Ledger.Entries(ctx)
	for _, entry := range entries {
		if entry.InDoubt(time.Now()) {
			log.Printf("look for %q, with [svc:%s] in its description", entry.Name, entry.Intent)
		}
	}
	return err
}

func killedDuringCreate(ctx context.Context, client *svc.Client, request svc.CreateInferenceServiceRequest, opts *svc.DeployOptions) (*svc.InferenceService, error) {
	service, err := client.InferenceServices.Deploy(ctx, request, opts) // the same call as before the kill
	return service, err
}

func cleanupFailed(ctx context.Context, client *svc.Client, request svc.CreateInferenceServiceRequest, opts *svc.DeployOptions) error {
	_, err := client.InferenceServices.Deploy(ctx, request, opts)
	if failed, ok := errors.AsType[*svc.DeployError](err); ok && failed.CleanupErr != nil && !failed.Resumed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
		defer cancel()
		return client.InferenceServices.DeleteAndWait(ctx, failed.ServiceID, nil)
	}
	return err
}

func unavailableUnderKey(ctx context.Context, client *svc.Client, request svc.CreateInferenceServiceRequest, opts *svc.DeployOptions) error {
	_, err := client.InferenceServices.Deploy(ctx, request, opts)
	if failed, ok := errors.AsType[*svc.DeployError](err); ok && failed.Resumed && (errors.Is(err, svc.ErrUnavailable) || errors.Is(err, svc.ErrStopped)) {
		if err := client.InferenceServices.DeleteAndWait(ctx, failed.ServiceID, nil); err != nil {
			return err
		}
		_, err = client.InferenceServices.Deploy(ctx, request, opts)
		return err
	}
	return err
}

func deletedElsewhere(ctx context.Context, client *svc.Client, request svc.CreateInferenceServiceRequest, opts *svc.DeployOptions) (*svc.InferenceService, error) {
	service, err := client.InferenceServices.Deploy(ctx, request, opts) // deletes nothing, and creates a new endpoint
	return service, err
}

func wrongToken(ctx context.Context, client *svc.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // nothing else ends it if the token is refused
	defer cancel()
	err := client.InferenceServices.DeleteAndWait(ctx, "svc-1", nil)
	failed, ok := errors.AsType[*svc.WaitError](err)
	if errors.Is(err, svc.ErrNotFound) || ok && errors.Is(cmp.Or(failed.LastErr, failed.Err), svc.ErrUnauthorized) {
		return fmt.Errorf("check the token, and whether it is of the right account: %w", err)
	}
	return err
}

func wrongAddress(ctx context.Context, client *svc.Client, address string) error {
	entries, err := client.Ledger.Entries(ctx)
	for _, entry := range entries {
		if entry.Open() && entry.BaseURL != address {
			log.Printf("%s of the key %s is at %s", entry.ServiceID, entry.Key, entry.BaseURL)
		}
	}
	return err
}

func lostLedger(ctx context.Context, path string) error {
	store, err := ledger.Dir(path, ledger.MustExist())
	if err != nil {
		return err // an empty folder is no ledger: the volume may not be mounted
	}
	client, err := svc.NewClientFromEnv(svc.WithLedger(store))
	if err == nil {
		_, err = client.Ledger.Entries(ctx)
	}
	return err
}

func leaseOver(ctx context.Context, client *svc.Client) error {
	entry, err := client.Ledger.Entry(ctx, "chat")
	if err != nil || entry == nil { // nil: a sweep was faster, and the endpoint is deleted
		return err
	}
	return client.Ledger.Extend(ctx, *entry, time.Now().Add(8*time.Hour))
}

func wrongClock(ctx context.Context, client *svc.Client) error {
	reaped, err := client.Ledger.Reap(ctx, nil) // by the service's clock
	for _, r := range reaped {
		if r.Err != nil {
			log.Printf("%s of the key %s: %v", r.Entry.ServiceID, r.Entry.Key, r.Err)
		}
	}
	return err
}

func damaged(ctx context.Context, client *svc.Client) error {
	entries, err := client.Ledger.Entries(ctx) // with an error, all that could be read
	for _, entry := range entries {
		if entry.Key == "chat" && entry.Open() {
			log.Printf("look for %q, with [svc:%s] in its description", entry.Name, entry.Intent)
		}
	}
	return err
}

func malformed(ctx context.Context, db *sql.DB) (ledger.Store, error) {
	store, err := sqlledger.SQLite(ctx, db, ledger.MustExist())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no ledger in this database: %w", err) // any other error: it cannot be read, or is damaged
	}
	return store, err
}
