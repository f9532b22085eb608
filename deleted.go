package svc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"example.com/svc/internal/apierr"
	"example.com/svc/internal/httpcall"
	"example.com/svc/internal/rules"
)

// notFound reports whether err is the service's own 404 or 410.
func notFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, ErrNotFound) && (!ok || e.foreign == "")
}

// observer polls one endpoint and gathers what the rules of evidence need. A wait and its
// cleanup share one.
type observer struct {
	client   *InferenceServiceClient
	id       string
	opts     []RequestOption
	evidence rules.Evidence
	last     *InferenceService // the record that was read last; nil if none was
	asked    bool              // the ledger was searched for the ID, and could be read
	missed   time.Time         // when the latest "not found" came
	gone     string            // the name in the record with is_deleted; empty if there was none
}

// poll reads the record once. The verdict considers all polls of this observer. If it is
// Deleted, err is nil or the last "not found".
func (o *observer) poll(ctx context.Context) (*InferenceService, rules.Verdict, error) {
	seen := rules.Observation{At: time.Now()}
	k, s := get(service, o.id, o.opts), new(InferenceService)
	err := o.client.client.carryOut(ctx, k, s)
	seen.Came = time.Now()
	e, failed := errors.AsType[*Error](err)
	switch {
	case err == nil:
		if seen.Sight, o.last = rules.Shown, s; s.IsDeleted {
			seen.Sight, o.gone = rules.Flagged, s.Name
		}
	case !failed:
		if max(k.Result.StatusCode, k.Result.Broken)/100 == 2 {
			o.note(rules.Observation{Sight: rules.Unclear})
		}
		return nil, rules.Unproven, err
	case rules.NotFound(e.StatusCode):
		s = nil
		o.missing(ctx, &seen, e, &k.Result)
	default: // an earlier verdict would be returned with an unrelated error
		o.note(rules.Observation{Sight: rules.Odd})
		return nil, rules.Unproven, err
	}
	o.note(seen)
	if seen.Sight == rules.Missing {
		err = o.doubt(ctx, err)
	}
	return s, o.evidence.Verdict, err
}

func (o *observer) note(seen rules.Observation) { o.evidence = o.evidence.After(seen) }

// missing adds to an observation what the rules of evidence need for a "not found".
func (o *observer) missing(ctx context.Context, seen *rules.Observation, e *Error, r *httpcall.Result) {
	c := o.client.client
	if !o.asked && !c.endpoints.Knows(o.id, r.TokenCheck) { // the ledger may know who created it
		o.asked = c.Ledger.markKnown(ctx, o.id) == nil
	}
	seen.Sight, seen.Class, seen.Known = rules.Missing, e.class, c.endpoints.Knows(o.id, r.TokenCheck)
	if c.endpoints.ReadAt(o.id).After(o.missed) { // another call of this client may have read the record
		o.note(rules.Observation{Sight: rules.Shown})
	}
	o.missed, seen.Origin = seen.Came, c.origin(r)
}

func (c *Client) origin(r *httpcall.Result) rules.Origin {
	header, inner := apierr.RequestID(r.Header, c.clean), apierr.Parse("", r.Body, c.clean).RequestID
	return rules.Origin{RequestID: header, Inner: inner, Date: r.Header.Get("Date"), Aged: aged(r.Header)}
}

// aged reports whether a response comes from a cache.
func aged(h http.Header) bool { return strings.Trim(h.Get("Age"), "0") != "" }

// doubt reads the flavor list, which always exists, if the evidence needs it. Only the list or a
// 403 shows that the service itself responds to this client. doubt returns the error of a poll that
// got the "not found" err.
func (o *observer) doubt(ctx context.Context, err error) error {
	if !o.evidence.WantsList() || o.evidence.Verdict == rules.Deleted {
		return err
	}
	c, list := o.client.client, get("/v1/inference-service/flavor", "", o.opts)
	switch failed := c.carryOut(ctx, list, new(flavorList)); {
	case failed == nil, list.Result.StatusCode == http.StatusForbidden && list.class == rules.Service:
		o.note(rules.Observation{Sight: rules.Listed, Origin: c.origin(&list.Result)})
	case o.evidence.Verdict == rules.Unproven: // the "not found" proves nothing without the list
		text := detail(err) + "; this does not prove that the record is deleted, since the flavor list cannot be read either: "
		return &explained{text + detail(failed), []error{failed}}
	}
	return err
}
