package paging_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/paging"
)

// item is an element of a list, with the number of the page that it came from.
type item struct {
	key  string
	page int
}

// server serves a list in pages, with the misbehavior that a test sets.
type server struct {
	items   []string
	size    int                                        // page size
	total   func(request, real int) int64              // the total in a response; request counts from 1
	change  func(request int, items []string) []string // returns the list as it is from this request on
	stuck   bool                                       // every request gets the first page
	holes   map[int]bool                               // pages that are returned empty
	cuts    [][2]int                                   // start and end of each page, in place of size
	failure map[int]error                              // errors in place of pages

	ahead int
	mu    sync.Mutex
	asked []int
	ended bool   // the loop over the list was left
	under int    // requests in flight
	most  int    // largest number of requests in flight
	hand  int    // the highest page whose items the loop has reached
	fault string // the last request that should not have been made
}

var errServer = errors.New("no luck")

func (s *server) fetch(ctx context.Context, n int) (paging.Page[item], error) {
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	s.asked = append(s.asked, n)
	request := len(s.asked)
	switch {
	case s.ended:
		s.fault = fmt.Sprintf("page %d was asked for after the end", n)
	case n > s.hand+max(s.ahead, 1):
		s.fault = fmt.Sprintf("page %d was asked for while the loop was at page %d", n, s.hand)
	case slices.Contains(s.asked[:request-1], n):
		s.fault = fmt.Sprintf("page %d was asked for twice", n)
	}
	s.mu.Unlock()
	// Responses arrive in any order.
	timer := time.NewTimer(time.Duration(1+n*7%5) * time.Millisecond)
	defer timer.Stop()
	var cancelled error
	select {
	case <-timer.C:
	case <-ctx.Done():
		cancelled = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	if cancelled != nil {
		return paging.Page[item]{}, cancelled
	}
	if err := s.failure[n]; err != nil {
		return paging.Page[item]{}, err
	}
	if s.change != nil {
		s.items = s.change(request, s.items)
	}
	page := paging.Page[item]{Total: s.total(request, len(s.items))}
	for _, key := range s.cut(n) {
		page.Items = append(page.Items, item{key, n})
	}
	return page, nil
}

// cut returns the items of page n.
func (s *server) cut(n int) []string {
	from, to := (n-1)*s.size, n*s.size
	switch {
	case s.stuck:
		from, to = 0, s.size
	case n <= len(s.cuts):
		from, to = s.cuts[n-1][0], s.cuts[n-1][1]
	case s.cuts != nil:
		return nil
	}
	if s.holes[n] {
		return nil
	}
	return s.items[min(from, len(s.items)):min(to, len(s.items))]
}

// read ranges over the list until its end, or until it has read most items.
func (s *server) read(most int) (got []string, err error) {
	list := paging.List[item]{
		First: 1, Ahead: s.ahead, Fetch: s.fetch,
		Key: func(i *item) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hand = max(s.hand, i.page)
			return i.key
		},
		None: func(error) bool { return false },
		Fail: func(n int, err error) error { return fmt.Errorf("page %d: %w", n, err) },
	}
	for i, failure := range list.All(context.Background()) {
		if failure != nil {
			err = failure
			continue // no item may follow an error
		}
		got = append(got, i.key)
		if err != nil {
			got = append(got, "after an error")
		}
		if len(got) == most {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return got, err
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("item-", i)
	}
	return list
}

func honest(_, real int) int64 { return int64(real) }

func TestList_AbsurdTotal(t *testing.T) {
	for _, first := range []int{1, math.MaxInt - 3, math.MaxInt - 1, math.MaxInt} {
		list := paging.List[item]{
			First: first, Ahead: 3,
			Fetch: func(_ context.Context, n int) (paging.Page[item], error) {
				if n < first {
					t.Errorf("page %d was asked for", n)
				}
				page := paging.Page[item]{Total: math.MaxInt64}
				if n == first {
					page.Items = []item{{key: "a"}}
				}
				return page, nil
			},
			Key:  func(i *item) string { return i.key },
			Fail: func(_ int, err error) error { return err },
		}
		n := 0
		for _, err := range list.All(t.Context()) {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 1, n)
	}
}
