package pages

import (
	"context"
	"sync"
	"sync/atomic"
)

// ahead asks for pages before their turn. All its methods are called from the
// goroutine that reads the list.
type ahead[T any] struct {
	list    *List[T]
	ctx     context.Context //nolint:containedctx // lives as long as one range over the list
	stop    func()          // ends what is under way and waits for that
	fetches sync.WaitGroup
	pending map[int]chan result[T] // asked for, not yet taken
	failed  atomic.Bool            // a page failed: the sequence will end there
}

type result[T any] struct {
	page Page[T]
	err  error
}

func newAhead[T any](ctx context.Context, list *List[T]) *ahead[T] {
	a := &ahead[T]{list: list, ctx: ctx, stop: func() {}}
	if list.Ahead < 2 {
		return a
	}
	a.pending = make(map[int]chan result[T])
	ctx, cancel := context.WithCancel(ctx)
	a.ctx = ctx
	a.stop = func() {
		cancel()
		a.fetches.Wait()
	}
	return a
}

// ask starts to fetch the pages from the first number to the smaller of the
// other two, as far as that has not been done.
func (a *ahead[T]) ask(from, last, most int) {
	if a.pending == nil || a.failed.Load() || most < from || from < a.list.First { // numbers end somewhere
		return
	}
	for i := range min(last, most) - from + 1 {
		n := from + i
		if a.pending[n] != nil {
			continue
		}
		c := make(chan result[T], 1)
		a.pending[n] = c
		a.fetches.Go(func() {
			page, err := a.list.Fetch(a.ctx, n)
			if err != nil {
				a.failed.Store(true)
			}
			c <- result[T]{page, err}
		})
	}
}

// take returns a page, and fetches it if nobody asked for it ahead.
func (a *ahead[T]) take(n int) (Page[T], error) {
	c := a.pending[n]
	if c == nil {
		return a.list.Fetch(a.ctx, n)
	}
	delete(a.pending, n)
	r := <-c
	return r.page, r.err
}
