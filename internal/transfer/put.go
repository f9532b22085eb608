package transfer

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"example.com/svc/internal/httpcall"
)

// Put sends src to a presigned URL. The caller finishes src.
func Put(ctx context.Context, c *httpcall.Caller, link *Link, header http.Header, idle time.Duration, src *Source) *httpcall.Result {
	call := link.call(http.MethodPut, header.Clone(), idle)
	call.Source, call.Length = src.Open, src.Size()
	r := c.Do(ctx, call)
	if r.Stream != nil {
		_ = r.Stream.Body.Close() // nobody needs it
	}
	if err := unsaid(c, src); err != nil && r.OK() {
		r.StatusCode, r.Fail = 0, link.Redact.Error(err)
	}
	return r
}

// unsaid says why a 2xx response does not mean success: the body could not be read to its
// end, or storage responded before it had the whole body. A mock that did not read the body
// at all is believed.
func unsaid(c *httpcall.Caller, src *Source) error {
	if err := src.Err(); err != nil {
		return err
	}
	n := src.last.Load().off.Load()
	if n == src.Size() || n == 0 && !c.OverNetwork() {
		return nil
	}
	return fmt.Errorf("storage confirmed the upload when only %d of %d bytes were on their way", n, src.Size())
}
