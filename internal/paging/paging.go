// Package paging turns a list that is read page by page into one sequence of items. The
// caller fetches the pages.
//
// Pages are cut by position, so an item moves to another page when one before it is created
// or deleted. The server may lower the page size, and its total may change, be missing or be
// wrong.
package paging

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"sync/atomic"
)

// ErrRepeat says that a list does not advance: two pages in a row held only items of
// earlier pages.
var ErrRepeat = errors.New("the list does not advance: two pages in a row hold only jobs of earlier pages")

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	Total int64 // items of the whole list; 0 or less: not known
}

// List says how to read a list. Nothing in it changes while it is read.
type List[T any] struct {
	First int                                                    // number of the first page to ask for; that of the list's first is 1
	Ahead int                                                    // how many pages are requested or held at a time; less than 2: one after the other
	Fetch func(ctx context.Context, number int) (Page[T], error) // called from many goroutines if Ahead is 2 or more
	Key   func(*T) string                                        // what makes two items the same
	None  func(error) bool                                       // whether an error of Fetch says that there is no such page
	Fail  func(number int, err error) error                      // makes the error that the sequence ends with
}

// All yields every item once, in the order of the list. An error comes last. The
// sequence can be ranged over again, and starts from the first page then. When a
// range is left, all its requests have ended.
//
// The sequence ends with an empty page, or when as many items have come as the largest total
// said. A total that is missing or less than the number of items so far is ignored. So is
// any total if First is above 1. Without a total, the sequence also ends if there is no such
// page.
//
// The keys of all items are kept until the range is left.
func (l List[T]) All(ctx context.Context) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		r := reader[T]{List: l, ctx: ctx, seen: make(map[string]struct{}), ahead: make(map[int]chan result[T])}
		defer r.fetches.Wait()
		defer cancel()
		for n, more := l.First, true; more; n++ {
			page, err := r.take(n)
			if err != nil && n > l.First && !r.counts() && l.None(err) {
				return
			}
			if err == nil {
				more, err = r.give(page, yield)
			}
			if err != nil {
				yield(nil, l.Fail(n, err))
				return
			}
			more = more && n < math.MaxInt
		}
	}
}

// reader is one range over a list.
type reader[T any] struct {
	List[T]
	ctx     context.Context //nolint:containedctx // lives as long as one range over the list
	fetches sync.WaitGroup
	ahead   map[int]chan result[T] // pages that were asked for before their turn
	failed  atomic.Bool            // one of them failed: the sequence will end there

	seen  map[string]struct{}
	total int64 // the largest that the server has named
	size  int64 // of the largest page
	stale int   // pages in a row that held nothing new
}

type result[T any] struct {
	page Page[T]
	err  error
}

// take returns page n, and asks for the pages after it as far as the total tells.
func (r *reader[T]) take(n int) (Page[T], error) {
	r.ask(n, n)
	var got result[T]
	if c := r.ahead[n]; c != nil {
		delete(r.ahead, n)
		got = <-c
	} else {
		got.page, got.err = r.Fetch(r.ctx, n)
	}
	if got.err == nil {
		r.total = max(r.total, got.page.Total)
		r.size = max(r.size, int64(len(got.page.Items)))
		r.ask(n, n+1)
	}
	return got.page, got.err
}

// ask starts to fetch pages, beginning with the page from, for a reader that is at page
// n. While the list does not advance, no total is believed.
func (r *reader[T]) ask(n, from int) {
	if r.Ahead < 2 || r.stale > 0 || r.failed.Load() || !r.counts() {
		return
	}
	pages := (r.left()-1)/r.size + 1 // from n on, if all are as large as the largest
	for i := int64(from - n); i < min(pages, int64(r.Ahead)) && n <= math.MaxInt-int(i); i++ {
		page := n + int(i)
		if r.ahead[page] != nil {
			continue
		}
		c := make(chan result[T], 1)
		r.ahead[page] = c
		r.fetches.Go(func() {
			got, err := r.Fetch(r.ctx, page)
			if err != nil {
				r.failed.Store(true)
			}
			c <- result[T]{got, err}
		})
	}
}

// give yields what is new in a page, and reports whether there may be another page.
func (r *reader[T]) give(page Page[T], yield func(*T, error) bool) (more bool, err error) {
	before := len(r.seen)
	for i := range page.Items {
		item := &page.Items[i]
		key := r.Key(item)
		if _, old := r.seen[key]; old {
			continue
		}
		r.seen[key] = struct{}{}
		if !yield(item, nil) {
			return false, nil
		}
	}
	switch {
	case len(page.Items) == 0:
		return false, nil
	case len(r.seen) > before:
		r.stale = 0
		return r.First > 1 || r.total <= 0 || r.left() != 0, nil // how many items are before First is a guess
	case r.stale > 0:
		return false, ErrRepeat
	}
	r.stale++ // new items at the front of the list can cause one such page
	return true, nil
}

// counts reports whether items are missing, by a total that can be believed.
func (r *reader[T]) counts() bool { return r.total > 0 && r.size > 0 && r.left() > 0 }

// left is how many items have not come; less than 0: more have come than the total
// says. Pages before r.First are assumed to be as large as the largest
// page so far.
func (r *reader[T]) left() int64 {
	skipped := min(int64(r.First-1), r.total/r.size) * r.size
	return r.total - skipped - int64(len(r.seen))
}
