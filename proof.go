package svc

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"
)

// notFound reports whether err is the service's own 404 or 410.
func notFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, ErrNotFound) && !(ok && e.foreign != "")
}

// newIDGrace is the time after the creation of an endpoint in which it may not be readable yet.
const newIDGrace = 30 * time.Second

// recent remembers which endpoints the client created in the last hour, and which it has read.
type recent struct {
	mu   sync.Mutex
	at   map[string]time.Time // time of the creation, by the ID of the endpoint
	read map[string]bool      // IDs of the endpoints whose record was read
}

// add notes that an endpoint was created.
func (r *recent) add(id string) {
	const kept = time.Hour
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.at, func(_ string, at time.Time) bool { return time.Since(at) > kept })
	r.at[id] = time.Now()
}

// created returns the time when this client created the endpoint; zero: it did not create the
// endpoint, or has forgotten the time.
func (r *recent) created(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[id]
}

// see notes that the record of an endpoint was read.
func (r *recent) see(id string) {
	const most = 4096 // at this number all IDs are forgotten; then a wait for a deletion may take 30 s longer
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.read) >= most {
		clear(r.read)
	}
	r.read[id] = true
}

func (r *recent) seen(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[id]
}

// observer polls one endpoint and decides whether it is deleted. The endpoint is deleted if its
// record has IsDeleted. It is also deleted if two polls, at least 1 s apart, got "not found", and
// a request for the flavor list between them proved that the service itself responds, and not a
// gateway that knows no route. For a record that this client has never read, a "not found" counts
// only if the poll began after the time readable.
type observer struct {
	client   *InferenceServiceClient
	id       string
	opts     []RequestOption
	readable time.Time // from this time on, "not found" counts also for a record that was never read

	missing  time.Time // when the request for the first "not found" that counts was sent; zero: there was none
	answered bool      // after the first "not found", the service responded to a request for the flavor list
}

// seen reports whether this client has ever read the record.
func (o *observer) seen() bool { return o.client.client.recent.seen(o.id) }

// between is the shortest time between two polls that can prove a deletion.
const between = time.Second

// poll reads the record once. deleted says that the endpoint is known to be deleted; err is then
// nil or the last "not found". If deleted is true, poll records the deletion in the ledger.
func (o *observer) poll(ctx context.Context) (s *InferenceService, deleted bool, err error) {
	if s, deleted, err = o.read(ctx); deleted {
		o.client.client.Ledger.deleted(ctx, o.id, s)
	}
	return s, deleted, err
}

func (o *observer) read(ctx context.Context) (s *InferenceService, deleted bool, err error) {
	sent := time.Now()
	s, err = o.client.Get(ctx, o.id, asRead(o.opts)...)
	if err == nil {
		o.missing, o.answered = time.Time{}, false
		return s, s.IsDeleted, nil
	}
	if !notFound(err) {
		return nil, false, err
	}
	if sent.Before(o.readable) && !o.seen() {
		return nil, false, &absence{err: err}
	}
	if o.answered && sent.Sub(o.missing) >= between {
		return nil, true, err
	}
	if o.missing.IsZero() {
		o.missing = sent
	}
	if !o.answered {
		if doubt := o.client.client.answers(ctx, o.opts); doubt != nil {
			return nil, false, &absence{err: err, doubt: doubt}
		}
		o.answered = true
	}
	return nil, false, &absence{err: err, provable: o.missing.Add(between)}
}

// answers reads the flavor list, which always exists. It returns nil if the service itself
// responded to this client: with the list, or with a 403 in JSON.
func (c *Client) answers(ctx context.Context, opts []RequestOption) error {
	_, err := c.Flavors.List(ctx, asRead(opts)...)
	if e, ok := errors.AsType[*Error](err); ok && e.StatusCode == http.StatusForbidden && json.Valid(e.Body) {
		return nil
	}
	return err
}

// absence is a "not found" that does not prove yet that a record is deleted.
type absence struct {
	err      error     // the "not found" response
	doubt    error     // why the flavor list could not be read; nil: it was read, or there was no need to read it yet
	provable time.Time // when another poll can prove that the record is deleted; zero: this time is not known yet
}

func (e *absence) Error() string { return "svc: " + e.detail() }

func (e *absence) detail() string {
	if e.doubt == nil {
		return detail(e.err)
	}
	return detail(e.err) + "; this does not prove that the record is deleted, since the flavor list cannot be read either: " + detail(e.doubt)
}

func (e *absence) Unwrap() error { return e.err }
