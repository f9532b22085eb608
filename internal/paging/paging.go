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
	"sync/atomic"

	"example.com/svc/internal/cause"
)

// ErrRepeat is returned when a list does not advance: two pages in a row held only items of
// earlier pages.
var ErrRepeat = errors.New("the list does not advance: two pages in a row hold only jobs of earlier pages")

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	Total int64 // number of items of the whole list; 0 or less if not known
}

// A List describes how to read a list. Nothing in it changes while it is read.
type List[T any] struct {
	First int                                                    // number of the page to begin with; the first page of the list is 1
	Ahead int                                                    // maximum number of pages that are requested or stored at a time; less than 2 means one
	Fetch func(ctx context.Context, number int) (Page[T], error) // returns a page; called from many goroutines if Ahead is 2 or more
	Key   func(*T) string                                        // two items with the same key are the same item
	None  func(error) bool                                       // reports whether an error of Fetch means that the page does not exist
	Fail  func(number int, err error) error                      // returns the error that the sequence ends with
}

// All yields every item once, in the order of the list. An error comes last. Each loop over
// the sequence starts from the page First. When the loop ends, all its requests have ended.
//
// Each page may state a total. The sequence ends with an empty page, or when the number of
// items reaches the largest total so far. A total that is less than the number of items is
// ignored. If First is above 1, no total ends the sequence. A page that does not exist also ends the sequence,
// with two exceptions: if it is the page First, or if it must exist according to the total,
// that is an error.
//
// The keys of all items are kept in memory until the loop ends.
func (l List[T]) All(ctx context.Context) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		r := reader[T]{List: l, ctx: ctx, seen: make(map[string]struct{}), ahead: make(map[int]chan func() (Page[T], error))}
		defer r.end(cancel)
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

// reader is the state of one loop over a list.
type reader[T any] struct {
	List[T]
	ctx    context.Context                      //nolint:containedctx // lives as long as one loop over the list
	ahead  map[int]chan func() (Page[T], error) // pages that were asked for before their turn
	failed atomic.Bool                          // one of the pages in ahead failed: the sequence will end there

	seen  map[string]struct{}
	total int64 // the largest total that the server has reported
	size  int64 // number of items of the largest page
	stale int   // pages in a row that held nothing new
}

// end ends all requests.
func (r *reader[T]) end(cancel func()) {
	cancel()
	for _, c := range r.ahead {
		<-c
	}
}

// take returns page n, and starts to fetch the pages that follow according to the total.
func (r *reader[T]) take(n int) (Page[T], error) {
	r.ask(n, n)
	fetch := func() (Page[T], error) { return r.Fetch(r.ctx, n) }
	if c := r.ahead[n]; c != nil {
		delete(r.ahead, n)
		fetch = <-c
	}
	got, err := fetch()
	if err == nil {
		r.total = max(r.total, got.Total)
		r.size = max(r.size, int64(len(got.Items)))
		r.ask(n, n+1)
	}
	return got, err
}

// ask starts to fetch the page from and the pages after it, while the reader is at page n. It
// fetches nothing while the list does not advance, since the total may then be wrong.
func (r *reader[T]) ask(n, from int) {
	if r.Ahead < 2 || r.stale > 0 || r.failed.Load() || !r.counts() {
		return
	}
	pages := (r.left()-1)/r.size + 1 // the number of pages from n on, if each is as large as the largest so far
	for i := int64(from - n); i < min(pages, int64(r.Ahead)) && n <= math.MaxInt-int(i); i++ {
		page := n + int(i)
		if r.ahead[page] != nil {
			continue
		}
		r.ahead[page] = make(chan func() (Page[T], error), 1)
		cause.Start(func() (Page[T], error) {
			got, err := r.Fetch(r.ctx, page)
			if err != nil {
				r.failed.Store(true)
			}
			return got, err
		}, r.ahead[page])
	}
}

// give yields the new items of a page, and reports whether another page may exist.
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
		return r.First > 1 || r.total <= 0 || r.left() != 0, nil // if First is above 1, the number of items before it is a guess
	case r.stale > 0:
		return false, ErrRepeat
	}
	r.stale++ // items that were added at the front of the list can cause one page without new items
	return true, nil
}

// counts reports whether items are missing according to a total that is not too small.
func (r *reader[T]) counts() bool { return r.total > 0 && r.size > 0 && r.left() > 0 }

// left returns the number of items that have not been received; negative if more have been
// received than the total. Pages before r.First are assumed to be as large as the largest page
// so far.
func (r *reader[T]) left() int64 {
	skipped := min(int64(r.First-1), r.total/r.size) * r.size
	return r.total - skipped - int64(len(r.seen))
}
