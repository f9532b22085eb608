package main

import (
	"net/http"
	"path"
	"time"
)

// dates is a transport that notes what is being sent. It keeps the Date of the latest response to a delete, and how far
// the clock of this machine is ahead of the service's.
type dates struct {
	next http.RoundTripper
	tool *tool
}

// RoundTrip implements [http.RoundTripper].
func (d dates) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodPut:
		d.tool.note(func(f *facts) { f.Changing = true })
	case http.MethodDelete:
		id := path.Base(r.URL.Path)
		if err := d.tool.claim(r.Context(), id); err != nil {
			return nil, err
		}
		d.tool.noteEndpoint(id, func(e *endpoint) { e.tried = true })
	}
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	date, undated := http.ParseTime(resp.Header.Get("Date"))
	if r.Method == http.MethodDelete {
		d.tool.deletedAt.Store(&date) // zero: the lease counts from the create, and is over too
	}
	if undated == nil && resp.Header.Get("Age") == "" { // else a cache has sent it
		d.tool.ahead.Store(int64(time.Since(date)))
	}
	return resp, nil
}

// now returns the time by the service's clock, by which leases end, if that of this machine is wrong by more than a minute.
// Before the first response it returns the time of this machine.
func (t *tool) now() time.Time { return time.Now().Add(-t.off()) }

// off returns how far the clock of this machine is ahead of the service's, or 0 for a minute or less.
func (t *tool) off() time.Duration {
	if off := time.Duration(t.ahead.Load()); off.Abs() > time.Minute {
		return off
	}
	return 0
}
