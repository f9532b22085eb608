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
	First int                                                    // number of the first page to ask for
	Ahead int                                                    // how many pages are under way or in hand at a time; less than 2: one after the other
	Fetch func(ctx context.Context, number int) (Page[T], error) // called from many goroutines if Ahead is 2 or more
	Key   func(*T) string                                        // what makes two items the same
	Fail  func(number int, err error) error                      // makes the error that the sequence ends with
}

// All yields every item once, in the order of the list. An error comes last. The
// sequence can be ranged over again, and starts from the first page then; when a
// range is left, nothing of it goes on.
//
// It ends after the page that completes the largest total heard of, if that is
// not less than what came. Without a total it ends with an empty page. With one,
// it looks past one empty page in the middle, and ends with the second in a row
// or when the total is reached. The size of a page never ends it.
//
// The keys of all items are kept until the range is left.
func (l List[T]) All(ctx context.Context) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		w := walk{seen: make(map[string]struct{})}
		a := newAhead(ctx, &l)
		defer a.stop()
		for n := l.First; ; n++ {
			a.ask(n, w.known(), n+l.Ahead-1)
			page, err := a.take(n)
			if err != nil {
				yield(nil, l.Fail(n, err))
				return
			}
			w.note(page.Total, len(page.Items))
			a.ask(n+1, w.known(), n+l.Ahead-1) // the page in hand counts too
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
			more, err := w.more(n, page.Total, len(page.Items), fresh)
			if err != nil {
				yield(nil, l.Fail(n, err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// walk is what has been learned on the way through a list.
type walk struct {
	seen  map[string]struct{}
	size  int64 // of the largest page, which is what the server really cuts by
	total int64 // the largest that the server has named
	stale int   // pages in a row that held old items only
	hole  bool  // the page before was empty
}

func (w *walk) note(total int64, items int) {
	w.total = max(w.total, total)
	w.size = max(w.size, int64(items))
}

func (w *walk) add(key string) (fresh bool) {
	if _, old := w.seen[key]; old {
		return false
	}
	w.seen[key] = struct{}{}
	return true
}

// known is the number of the last page as far as the total tells, 0 if it does
// not. A total that is less than what came already tells nothing.
func (w *walk) known() int {
	if w.total < int64(len(w.seen)) {
		return 0
	}
	return w.pages(w.total)
}

// pages is how many pages it takes to hold so many items, 0 if that is not known.
func (w *walk) pages(total int64) int {
	if total <= 0 || w.size == 0 {
		return 0
	}
	return int(min((total-1)/w.size+1, math.MaxInt))
}

// more judges page n when its items are dealt with: is there another?
func (w *walk) more(n int, total int64, items, fresh int) (bool, error) {
	if items == 0 {
		// Past a hole there may be more: some servers filter a page after they
		// have cut it.
		again := !w.hole && n < w.pages(total)
		w.hole = true
		return again, nil
	}
	w.hole = false
	if fresh == 0 {
		// A page's worth of new items at the front does that, once.
		w.stale++
		if w.stale > 1 {
			return false, ErrRepeat
		}
		return true, nil
	}
	w.stale = 0
	last := w.known()
	return last == 0 || n < last, nil
}
