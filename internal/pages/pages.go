// Package pages turns a list that is read page by page into one sequence of
// items. It asks for pages and judges what comes; how a page is fetched is up to
// the caller.
//
// Pages are numbered and cut by position, so an item moves to another page when
// one before it comes or goes. What the server says about the list is a hint:
// it may lower the page size, and its total may change, be missing or be wrong.
package pages

import (
	"context"
	"errors"
	"iter"
	"math"
)

// ErrRepeat says that a list does not advance: two pages in a row held nothing
// but items of earlier pages.
var ErrRepeat = errors.New("the list does not advance: page after page holds only what came before")

// Page is one answer.
type Page[T any] struct {
	Items []T
	Total int64 // items of the whole list; 0 or less: not known
}

// List says how to read a list. Nothing in it changes while it is read.
type List[T any] struct {
	First int                                                    // number of the first page to ask for; that of the list's first is 1
	Ahead int                                                    // how many pages are under way or in hand at a time; less than 2: one after the other
	Fetch func(ctx context.Context, number int) (Page[T], error) // called from many goroutines if Ahead is 2 or more
	Key   func(*T) string                                        // what makes two items the same
	Fail  func(number int, err error) error                      // makes the error that the sequence ends with
}

// All yields every item once, in the order of the list. An error comes last. The
// sequence can be ranged over again, and starts from the first page then; when a
// range is left, nothing of it goes on.
//
// It goes on while fewer items have come than the largest total heard of says,
// however the pages are cut, and ends with the one that makes them as many. A total
// that is missing, or less than what came, ends nothing: then it takes an empty
// page. While items are missing it looks past an empty page, at the front too, and
// ends with the second in a row.
//
// The keys of all items are kept until the range is left.
func (l List[T]) All(ctx context.Context) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		w := walk{skipped: int64(l.First) - 1, seen: make(map[string]struct{})}
		a := newAhead(ctx, &l)
		defer a.stop()
		for n := l.First; ; n++ {
			a.ask(n, w.last(n), n+l.Ahead-1)
			page, err := a.take(n)
			if err != nil {
				yield(nil, l.Fail(n, err))
				return
			}
			w.note(page.Total, int64(len(page.Items)))
			a.ask(n+1, w.last(n), n+l.Ahead-1) // the page in hand counts too
			fresh := 0
			for i := range page.Items {
				item := &page.Items[i]
				if !w.add(l.Key(item)) {
					continue
				}
				fresh++
				if !yield(item, nil) {
					return
				}
			}
			more, err := w.more(page.Total, len(page.Items), fresh)
			if err != nil {
				yield(nil, l.Fail(n, err))
				return
			}
			if !more || n == math.MaxInt {
				return
			}
		}
	}
}

// walk is what has been learned on the way through a list.
type walk struct {
	skipped int64 // pages before the first that was asked for
	seen    map[string]struct{}
	size    int64 // of the largest page
	latest  int64 // size of the latest page
	uneven  bool  // the pages up to the latest were not all whole and new
	total   int64 // the largest that the server has named
	stale   int   // pages in a row that held old items only
	hole    bool  // the page before was empty
}

// note takes notice of a page before its items are dealt with.
func (w *walk) note(total, items int64) {
	w.total = max(w.total, total)
	if w.size > 0 { // the page before is not the last, so it should not be short
		w.uneven = w.uneven || w.latest < max(w.size, items)
	}
	w.latest, w.size = items, max(w.size, items)
}

func (w *walk) add(key string) (fresh bool) {
	if _, old := w.seen[key]; old {
		return false
	}
	w.seen[key] = struct{}{}
	return true
}

// left is how many items of so many have not come; less than 0: more have come.
// Pages that were skipped count like those that came, as long as these are alike.
func (w *walk) left(total int64) int64 {
	left := total - int64(len(w.seen))
	if w.skipped <= 0 || w.uneven || w.size == 0 {
		return left
	}
	if w.skipped > left/w.size {
		return -1 // what the product would say, if it has room
	}
	return left - w.skipped*w.size
}

// last is the number of the last page as far as the total tells when the pages
// before n are dealt with, 0 if it does not. Later ones may have to follow: it
// takes the pages to be as large as the largest, and all items in them to be new.
// While it is in doubt whether the list advances, it tells nothing.
func (w *walk) last(n int) int {
	if w.size == 0 || w.total <= 0 || w.stale > 0 {
		return 0
	}
	left := w.left(w.total)
	if left <= 0 {
		return 0
	}
	return n + int(min((left-1)/w.size, int64(math.MaxInt-n)))
}

// more judges a page when its items are dealt with: is there another?
func (w *walk) more(total int64, items, fresh int) (bool, error) {
	if items == 0 {
		// Past a hole there may be more: some servers filter a page after they
		// have cut it. What the page itself says of the total is the latest word.
		if total <= 0 {
			total = w.total
		}
		again := !w.hole && w.left(total) > 0
		w.hole, w.uneven = true, true
		return again, nil
	}
	w.hole = false
	w.uneven = w.uneven || fresh < items
	if fresh == 0 {
		// A page's worth of new items at the front does that, once.
		w.stale++
		if w.stale > 1 {
			return false, ErrRepeat
		}
		return true, nil
	}
	w.stale = 0
	return w.total <= 0 || w.left(w.total) != 0, nil
}
