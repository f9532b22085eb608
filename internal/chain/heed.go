package chain

import (
	"context"

	"example.com/svc/internal/apart"
	"example.com/svc/internal/cause"
)

// heed runs code of the caller's that should end with ctx. What does not, such as
// a token source that asks a slow server without ctx, is left to itself then. A
// panic comes out here.
func heed(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	ended := make(chan apart.End, 1)
	go apart.Run(f, func(e apart.End) { ended <- e })
	select {
	case e := <-ended:
		return e.Here()
	case <-ctx.Done():
		return cause.Of(ctx)
	}
}
