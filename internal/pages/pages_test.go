package pages_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/pages"
)

// item is one of a list, with the page that it came on.
type item struct {
	key  string
	page int
}

// server is a list with habits.
type server struct {
	items   []string
	size    int                                        // of its pages
	total   func(request, real int) int64              // what it says; request counts from 1
	change  func(request int, items []string) []string // the list as it is from that request on
	stuck   bool                                       // every page is the first
	holes   map[int]bool                               // pages that come empty
	failure map[int]error                              // pages that do not come

	ahead int
	mu    sync.Mutex
	asked []int
	ended bool   // the range was left
	under int    // fetches under way
	most  int    // of them at a time
	hand  int    // the page in hand, as far as its items show
	empty int    // 1 once a page was empty: it does not show when it is in hand
	fault string // what was wrong with the way it was asked
}

var errServer = errors.New("no luck")

func (s *server) fetch(ctx context.Context, n int) (pages.Page[item], error) {
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	s.asked = append(s.asked, n)
	request := len(s.asked)
	switch {
	case s.ended:
		s.fault = fmt.Sprintf("page %d was asked for after the end", n)
	case n > s.hand+max(s.ahead, 1)+s.empty:
		s.fault = fmt.Sprintf("page %d was asked for while page %d was in hand", n, s.hand)
	case slices.Contains(s.asked[:request-1], n):
		s.fault = fmt.Sprintf("page %d was asked for twice", n)
	}
	s.mu.Unlock()
	// Answers come in any order.
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
		return pages.Page[item]{}, cancelled
	}
	if err := s.failure[n]; err != nil {
		return pages.Page[item]{}, err
	}
	if s.change != nil {
		s.items = s.change(request, s.items)
	}
	page := pages.Page[item]{Total: s.total(request, len(s.items))}
	from := (n - 1) * s.size
	if s.stuck {
		from = 0
	}
	if from < len(s.items) && !s.holes[n] {
		for _, key := range s.items[from:min(from+s.size, len(s.items))] {
			page.Items = append(page.Items, item{key, n})
		}
	} else {
		s.empty = 1
	}
	return page, nil
}

// read ranges over the list until it ends, or until it has so many items.
func (s *server) read(most int) (got []string, err error) {
	list := pages.List[item]{
		First: 1, Ahead: s.ahead, Fetch: s.fetch,
		Key: func(i *item) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hand = max(s.hand, i.page)
			return i.key
		},
		Fail: func(n int, err error) error { return fmt.Errorf("page %d: %w", n, err) },
	}
	for i, failure := range list.All(context.Background()) {
		if failure != nil {
			err = failure
			continue // there must be nothing after it
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

func TestList_EndsWhereTheTotalSays(t *testing.T) {
	for _, ahead := range []int{0, 1, 2, 3, 8, 1_000_000_000} {
		for items := range 42 {
			for _, size := range []int{1, 7, 10} {
				synctest.Test(t, func(t *testing.T) {
					s := &server{items: names(items), size: size, total: honest, ahead: ahead}
					got, err := s.read(-1)
					require.NoError(t, err)
					require.Equal(t, names(items), append([]string{}, got...))
					require.Len(t, s.asked, max((items+size-1)/size, 1))
					require.LessOrEqual(t, s.most, max(ahead, 1))
					require.Empty(t, s.fault)
				})
			}
		}
	}
}

func TestList_NothingHeardOfTheTotal(t *testing.T) {
	for _, total := range []int64{0, -1, math.MinInt64} {
		for items := range 42 {
			synctest.Test(t, func(t *testing.T) {
				s := &server{items: names(items), size: 10, total: func(int, int) int64 { return total }, ahead: 8}
				got, err := s.read(-1)
				require.NoError(t, err)
				require.Equal(t, names(items), append([]string{}, got...))
				require.Len(t, s.asked, (items+9)/10+1, "one more, which comes empty")
				require.Equal(t, 1, s.most, "without a total nothing is asked for ahead")
			})
		}
	}
}

func TestList_AbsurdTotal(t *testing.T) {
	for _, first := range []int{1, math.MaxInt - 3} {
		list := pages.List[item]{
			First: first, Ahead: 3,
			Fetch: func(_ context.Context, n int) (pages.Page[item], error) {
				page := pages.Page[item]{Total: math.MaxInt64}
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

func FuzzPages(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { tryRandomServer(t, rand.New(rand.NewPCG(seed, 1))) })
	})
}

// tryRandomServer reads from a server with random habits, and checks what must
// hold whatever they are.
func tryRandomServer(t *testing.T, r *rand.Rand) {
	s := &server{items: names(r.IntN(60)), size: 1 + r.IntN(12), total: honest, ahead: r.IntN(6), holes: map[int]bool{}, failure: map[int]error{}}
	every := map[string]bool{} // all items that ever were
	for _, key := range s.items {
		every[key] = true
	}
	original, plain := slices.Clone(s.items), true
	often := func(n int) bool { return r.IntN(n) == 0 }
	if often(2) {
		plain = false
		switch kind, lie := r.IntN(4), int64(r.IntN(100)); kind {
		case 0:
			s.total = func(int, int) int64 { return 0 }
		case 1:
			s.total = func(int, int) int64 { return lie }
		case 2:
			totals := []int64{int64(r.IntN(90)), int64(r.IntN(90)), int64(r.IntN(90)), lie}
			s.total = func(request, _ int) int64 { return totals[request%len(totals)] }
		case 3:
			s.total = func(_, real int) int64 { return int64(real) + lie }
		}
	}
	if often(3) {
		plain = false
		steps := make([]int, 12) // items to insert, or if negative to delete, at the front
		for i := range steps {
			steps[i] = r.IntN(25) - 12
		}
		for i := range len(steps) * 12 {
			every[fmt.Sprint("new-", i)] = true
		}
		made, done := 0, 0
		s.change = func(request int, items []string) []string {
			for ; done < min(request-1, len(steps)); done++ {
				if step := steps[done]; step < 0 {
					items = items[min(-step, len(items)):]
				} else {
					fresh := make([]string, step)
					for i := range fresh {
						fresh[i] = fmt.Sprint("new-", made)
						made++
					}
					items = append(fresh, items...)
				}
			}
			return items
		}
	}
	if often(4) {
		plain, s.stuck = false, true
	}
	for range r.IntN(3) {
		if often(2) {
			plain, s.holes[1+r.IntN(6)] = false, true
		}
	}
	if often(4) {
		plain, s.failure[1+r.IntN(6)] = false, errServer
	}
	most := -1
	if often(3) {
		most = 1 + r.IntN(30)
	}

	got, err := s.read(most)
	asked := slices.Clone(s.asked)

	require.Empty(t, s.fault)
	require.Zero(t, s.under, "fetches under way after the end")
	require.LessOrEqual(t, s.most, max(s.ahead, 1))
	seen := map[string]bool{}
	for _, key := range got {
		require.True(t, every[key], "an item that never was: %s", key)
		require.False(t, seen[key], "%s came twice", key)
		seen[key] = true
	}
	// Between two pages that bring something there are at most three others.
	require.LessOrEqual(t, len(asked), 4*(len(got)+1)+s.ahead)
	if s.change == nil {
		require.True(t, slices.IsSortedFunc(got, func(a, b string) int {
			return slices.Index(original, a) - slices.Index(original, b)
		}), "out of order")
	}
	switch {
	case err == nil:
	case errors.Is(err, errServer):
		require.NotEmpty(t, s.failure)
	default:
		require.ErrorIs(t, err, pages.ErrRepeat)
		require.True(t, s.stuck || s.change != nil)
	}
	if plain {
		require.NoError(t, err)
		want := original
		if most > 0 {
			want = want[:min(most, len(want))]
		} else {
			require.Len(t, asked, max((len(original)+s.size-1)/s.size, 1))
		}
		require.Equal(t, want, append([]string{}, got...))
	}
	time.Sleep(time.Hour)
	require.Len(t, s.asked, len(asked), "a request after the end")
}
