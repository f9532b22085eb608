package paging_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/paging"
)

// A script of pages: one letter per item, pages separated by spaces, a dot for an
// empty page, a mark of exclamation for none. What is read of it, and how many pages were asked for.
func readScript(t *testing.T, script string, total int64) (got string, asked int, err error) {
	t.Helper()
	all := strings.Fields(script)
	list := paging.List[byte]{
		First: 1,
		Fetch: func(_ context.Context, n int) (paging.Page[byte], error) {
			asked++
			require.Equal(t, asked, n, "one page after the other")
			if n <= len(all) && all[n-1] == "!" {
				return paging.Page[byte]{}, errServer
			}
			page := paging.Page[byte]{Total: total}
			if n <= len(all) && all[n-1] != "." {
				page.Items = []byte(all[n-1])
			}
			return page, nil
		},
		Key:  func(b *byte) string { return string(*b) },
		None: func(err error) bool { return err == errServer },
		Fail: func(n int, err error) error { return fmt.Errorf("page %d: %w", n, err) },
	}
	var b strings.Builder
	for item, failure := range list.All(t.Context()) {
		if failure != nil {
			return b.String(), asked, failure
		}
		b.WriteByte(*item)
	}
	return b.String(), asked, nil
}

func TestWhereAListEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		total  int64
		want   string
		asked  int
		err    error
	}{
		"a hole":                         {"ab . cd . ef", 10, "ab", 2, nil},
		"a hole at the end":              {"ab cd .", 6, "abcd", 3, nil},
		"a hole, and no total":           {"ab . cd", 0, "ab", 2, nil},
		"a hole in front":                {". ab cd", 4, "", 1, nil},
		"a hole in front, and no total":  {". ab", 0, "", 1, nil},
		"old pages that are apart":       {"ab ab cd cd ef", 6, "abcdef", 5, nil},
		"old pages, and items missing":   {"ab ab cd cd ef", 10, "abcdef", 6, nil},
		"short pages before a whole one": {"a bcde fg", 7, "abcdefg", 3, nil},
		"pages that overlap":             {"abc bcd cde def", 6, "abcdef", 4, nil},
		"two old pages in a row":         {"ab ab ab", 10, "ab", 3, paging.ErrRepeat},
		"a total of less than nothing":   {"ab cd", -1, "abcd", 3, nil},
		"a total of one":                 {"a b", 1, "a", 1, nil},
		"a total that is too small":      {"ab cd ef", 1, "abcdef", 4, nil},
		"exactly whole pages":            {"ab cd xx", 4, "abcd", 2, nil},
		"no page where none is missing":  {"ab cd !", 0, "abcd", 3, nil},
		"no page past a wrong total":     {"ab cd !", 3, "abcd", 3, nil},
		"no page, and items missing":     {"ab cd !", 5, "abcd", 3, errServer},
		"no first page":                  {"!", 0, "", 1, errServer},
	} {
		t.Run(name, func(t *testing.T) {
			got, asked, err := readScript(t, tt.script, tt.total)
			require.ErrorIs(t, err, tt.err) // nil is nil
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.asked, asked, "pages asked for")
		})
	}
}
