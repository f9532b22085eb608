package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/svc/internal/chain"
)

// What is read of the answer to a successful upload: nobody needs it, but a
// connection whose answer was read to its end can be used again.
const (
	drainSize = 64 << 10
	drainTime = time.Second
)

// Put is an upload to a presigned link.
type Put struct {
	Chain  *chain.Chain
	Route  string
	Link   *Link
	Header http.Header
	Idle   time.Duration
}

// Run sends src. The caller finishes it.
func (p *Put) Run(ctx context.Context, src *Source) *chain.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := p.Chain.Do(ctx, &chain.Call{
		Method: http.MethodPut, Route: p.Route, URL: p.Link.URL, Header: p.Header.Clone(),
		Source: src.Open, Length: src.Size(),
		Transfer: true, Idle: p.Idle, Redact: p.Link.Redact, Hop: p.Link.hop,
	})
	if r.Stream != nil {
		timer := time.AfterFunc(drainTime, cancel)
		_, _ = io.CopyN(io.Discard, r.Stream.Body, drainSize)
		_ = r.Stream.Body.Close()
		timer.Stop()
	}
	if err := p.unsaid(src); err != nil && r.OK() {
		r.StatusCode, r.Fail = 0, p.Link.Redact.Error(p.Chain.Redactor().Error(err))
	}
	return p.Link.clean(r)
}

// unsaid is what speaks against a success: that the body could not be read to its
// end, or that storage did not wait for it. A transport of the caller's that did
// not touch the body at all has no use for it, as in tests.
func (p *Put) unsaid(src *Source) error {
	if err := src.Err(); err != nil {
		return err
	}
	n := src.handed()
	if n == src.Size() || n == 0 && !p.Chain.OverNetwork() {
		return nil
	}
	return fmt.Errorf("storage confirmed the upload when only %d of %d bytes were on their way", n, src.Size())
}
