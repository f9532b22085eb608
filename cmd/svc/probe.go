package main

import (
	"context"
	"time"

	"example.com/svc/internal/lazy"
	"example.com/svc/probe"
)

// pathTime is how long an endpoint refuses the path of --probe until the tool asks whether it is right.
const pathTime = 15 * time.Second

// noPath matches the error of a probe whose path the endpoint does not have.
var noPath = lazy.Regexp(`: status (404|405): `)

// probe returns the function for --probe. A wrong path keeps a wait until its time limit while the endpoint
// is billed, so probe warns of one. It does not end the wait: an application may get its routes late.
func (t *tool) probe(path string) func(context.Context, string) error {
	get := probe.HTTP(path)
	var since time.Time // zero if the latest response was another one
	told := false
	return func(ctx context.Context, url string) error {
		err := get(ctx, url)
		if ctx.Err() != nil {
			return err // it was cut off, and says nothing about the path
		}
		refused := err != nil && noPath().MatchString(err.Error())
		t.note(func(f *facts) { f.NoPath = refused })
		switch {
		case !refused:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case !told && time.Since(since) >= pathTime:
			told = true
			t.talk.warn("the endpoint is available, and has refused each probe for %v: %s; if the path of --probe is wrong, end this with Ctrl-C", pathTime, plainText(err))
		}
		return err
	}
}
