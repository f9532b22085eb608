package paging_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/paging"
)

func FuzzPages(f *testing.F) {
	for seed := range uint64(256) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { tryRandomServer(t, rand.New(rand.NewPCG(seed, 1))) })
	})
}

// habits describe how a random server behaves.
type habits struct {
	honest  bool            // the total is true
	varies  bool            // the total differs from response to response
	changes bool            // items are inserted and deleted at the front
	every   map[string]bool // every item that was ever in the list
}

// tryRandomServer reads the list of a server with random habits. It checks what must hold
// for every server, and also what must hold for a server with honest habits.
func tryRandomServer(t *testing.T, r *rand.Rand) {
	s, h := randomServer(r)
	original := slices.Clone(s.items)
	most := -1
	if r.IntN(3) == 0 {
		most = 1 + r.IntN(30)
	}

	got, err := s.read(most)
	asked := slices.Clone(s.asked)

	require.Empty(t, s.fault)
	require.Zero(t, s.under, "requests in flight after the end")
	require.LessOrEqual(t, s.most, max(s.ahead, 1))
	seen := map[string]bool{}
	for _, key := range got {
		require.True(t, h.every[key], "item %s was never in the list", key)
		require.False(t, seen[key], "item %s was returned twice", key)
		seen[key] = true
	}
	// Between two pages with new items there are at most three pages without.
	require.LessOrEqual(t, len(asked), 4*(len(got)+1)+s.ahead)
	if !h.changes && (s.cuts == nil || len(s.holes) == 0) { // with overlapping pages, an item that an empty page left out may come later
		require.True(t, slices.IsSortedFunc(got, func(a, b string) int {
			return slices.Index(original, a) - slices.Index(original, b)
		}), "out of order")
	}
	switch {
	case err == nil:
	case errors.Is(err, errServer):
		require.NotEmpty(t, s.failure)
	default:
		require.ErrorIs(t, err, paging.ErrRepeat)
		require.False(t, s.regular() && !h.changes)
	}
	if len(s.failure) == 0 && !h.changes && !h.varies {
		want, pagesNeeded, wantErr := s.expect(s.total(1, len(original)))
		if most >= 0 && most <= len(want) {
			require.NoError(t, err)
			require.Equal(t, want[:most], got)
		} else {
			require.ErrorIs(t, err, wantErr) // wantErr may be nil
			require.Equal(t, want, append([]string{}, got...))
			require.GreaterOrEqual(t, len(asked), pagesNeeded)
			require.LessOrEqual(t, len(asked), pagesNeeded+max(s.ahead-1, 0))
			if s.regular() && h.honest {
				require.Len(t, asked, pagesNeeded, "reading ahead must not request pages past the end")
			}
		}
		if h.honest && !s.stuck && len(s.holes) == 0 {
			require.Equal(t, original, append([]string{}, want...), "items of an honest server are missing")
		}
	}
	time.Sleep(time.Hour)
	require.Len(t, s.asked, len(asked), "a request after the end")
}

// regular reports whether all pages but the last are full, and follow each other without
// gaps.
func (s *server) regular() bool { return s.cuts == nil && len(s.holes) == 0 && !s.stuck }

// expect returns the items and the error that the rules of paging give for a list that
// does not change. Reading ends when it has as many items as the total says, or after an
// empty page, or (with ErrRepeat) after two pages in a row without new items.
func (s *server) expect(total int64) (want []string, asked int, err error) {
	want = []string{}
	old := 0
	for n := 1; ; n++ {
		page := s.cut(n)
		if len(page) == 0 {
			return want, n, nil
		}
		before := len(want)
		for _, key := range page {
			if !slices.Contains(want, key) {
				want = append(want, key)
			}
		}
		if len(want) > before {
			old = 0
			if total == int64(len(want)) {
				return want, n, nil
			}
		} else if old++; old == 2 {
			return want, n, paging.ErrRepeat
		}
	}
}

func randomServer(r *rand.Rand) (*server, habits) {
	often := func(n int) bool { return r.IntN(n) == 0 }
	s := &server{items: names(r.IntN(60)), size: 1 + r.IntN(12), total: honest, ahead: r.IntN(6), holes: map[int]bool{}, failure: map[int]error{}}
	h := habits{honest: true, every: map[string]bool{}}
	for _, key := range s.items {
		h.every[key] = true
	}
	if often(3) {
		h.honest = false
		switch kind, lie := r.IntN(4), int64(r.IntN(100)); kind {
		case 0:
			s.total = func(int, int) int64 { return 0 }
		case 1:
			s.total = func(int, int) int64 { return lie }
		case 2:
			h.varies = true
			totals := []int64{int64(r.IntN(90)), int64(r.IntN(90)), int64(r.IntN(90)), lie}
			s.total = func(request, _ int) int64 { return totals[request%len(totals)] }
		case 3:
			s.total = func(_, real int) int64 { return int64(real) + lie }
		}
	}
	switch {
	case often(3):
		s.cutAnyhow(r)
	case often(3):
		h.changes = true
		s.changeAnyhow(r, h.every)
	case often(4):
		s.stuck = true
	}
	for range r.IntN(3) {
		if often(2) {
			s.holes[1+r.IntN(6)] = true
		}
	}
	if often(5) {
		s.failure[1+r.IntN(6)] = errServer
	}
	return s, h
}

// cutAnyhow cuts the list into pages of random sizes. A page may begin with items of
// earlier pages, and a few pages hold only such items.
func (s *server) cutAnyhow(r *rand.Rand) {
	s.cuts = [][2]int{}
	odd := false // the page before had no new item
	for done := 0; done < len(s.items); {
		size := 1 + r.IntN(s.size)
		old := min(r.IntN(size+1), done)
		if r.IntN(2) == 0 {
			old = 0
		}
		to := min(done-old+size, len(s.items))
		if to <= done && odd {
			continue
		}
		odd = to <= done
		s.cuts = append(s.cuts, [2]int{done - old, to})
		done = max(done, to)
	}
}

// changeAnyhow inserts and deletes items at the front between two requests.
func (s *server) changeAnyhow(r *rand.Rand, every map[string]bool) {
	steps := make([]int, 12) // number of items to insert; to delete if negative
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
