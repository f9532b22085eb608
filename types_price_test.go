package svc_test

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestPrice(t *testing.T) {
	for _, tt := range []struct {
		text, plain, encoded string
		float                float64
	}{
		{`0.1`, "0.1", `0.1`, 0.1},
		{`"0.1"`, "0.1", `0.1`, 0.1},
		{`0.0000001`, "0.0000001", `0.0000001`, 1e-7},
		{`1e-7`, "0.0000001", `1e-7`, 1e-7},
		{`"1E-7"`, "0.0000001", `1E-7`, 1e-7},
		{`12.5e-1`, "1.25", `12.5e-1`, 1.25},
		{`1.5e+3`, "1500", `1.5e+3`, 1500},
		{`-2.50`, "-2.50", `-2.50`, -2.5},
		{`-25e-3`, "-0.025", `-25e-3`, -0.025},
		{`3`, "3", `3`, 3},
		{`3.0`, "3.0", `3.0`, 3},
		{`0`, "0", `0`, 0},
		{`0e99`, "0", `0e99`, 0},
		{`0.12345678901234567890123`, "0.12345678901234567890123", `0.12345678901234567890123`, 0.12345678901234568},
	} {
		p := testkit.Decode[svc.Price](t, tt.text)
		require.True(t, p.IsSet(), tt.text)
		require.False(t, p.IsZero(), tt.text)
		require.Equal(t, tt.plain, p.String())
		require.Equal(t, tt.encoded, testkit.Encode(t, p))
		require.Equal(t, tt.float, p.Float64())
		require.Equal(t, p, testkit.Decode[svc.Price](t, testkit.Encode(t, p)))
	}
}

func TestPriceNotSet(t *testing.T) {
	for _, text := range []string{`null`, `""`} {
		p := testkit.Price(t, "1")
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.Equal(t, svc.Price{}, p)
		require.False(t, p.IsSet())
		require.Empty(t, p.String())
		require.Zero(t, p.Float64())
		require.Equal(t, "null", testkit.Encode(t, p))
	}
	require.Equal(t, `{}`, testkit.Encode(t, struct {
		Price svc.Price `json:"price,omitzero"`
	}{}))
	require.Equal(t, `{"price":0}`, testkit.Encode(t, struct {
		Price svc.Price `json:"price,omitzero"`
	}{testkit.Price(t, "0")}), "a price of nothing is a price")
}

// What is no price does not fail the record, and its text can be read.
func TestPriceTextThatIsNone(t *testing.T) {
	for _, text := range []string{
		`"free"`, `1e400`, `1e400000000`, `1e-401`, `1e99999999999999999999`, `"$3"`, `"Inf"`, `"1e"`, `false`, `{}`, `[1]`,
		"1" + strings.Repeat("0", 309), "0." + strings.Repeat("1", 2000), `"        1"`,
	} {
		p := testkit.Decode[svc.Price](t, text)
		require.False(t, p.IsSet(), text)
		require.True(t, p.IsZero(), text)
		require.Equal(t, strings.Trim(text, `"`), p.Raw())
		require.Empty(t, p.String())
		require.Zero(t, p.Float64())
		require.Nil(t, p.Rat())
		require.Equal(t, -1, p.Cmp(testkit.Price(t, "-1")))
		require.Equal(t, p, testkit.Decode[svc.Price](t, testkit.Encode(t, p)))
	}
	for _, text := range []string{"", " 1", "1 ", "+1", ".5", "1.", "01", "0x1", "1,5", "١", "1e500", "1_0", "1/2"} {
		_, err := svc.ParsePrice(text)
		require.EqualError(t, err, "svc: price: not a decimal number, or out of range", "%q", text)
	}
}

func TestPriceCmp(t *testing.T) {
	// Each line holds equal prices, and is less than the next one.
	lines := [][]string{
		{"-1e300"}, {"-10", "-1e1"}, {"-9.99"}, {"-0.5", "-5e-1"}, {"-1e-300"},
		{"0", "0.0", "-0", "0e5", "0e-5"},
		{"1e-400"}, {"0.0000001", "1e-7", "10e-8"}, {"0.1", "0.10", "1e-1"}, {"0.11"}, {"0.2"},
		{"3", "3.0", "3.00e0", "0.3e1"}, {"3.0000000000000000000000001"}, {"9"}, {"10"}, {"11"}, {"1e307"},
	}
	var all, shuffled []svc.Price
	for i, line := range lines {
		for _, text := range line {
			p := testkit.Price(t, text)
			all = append(all, p)
			require.Equal(t, 1, p.Cmp(svc.Price{}), "a price that is not set is the least")
			require.Equal(t, -1, svc.Price{}.Cmp(p))
			for j, other := range lines {
				for _, text := range other {
					want := min(max(i-j, -1), 1)
					require.Equal(t, want, p.Cmp(testkit.Price(t, text)), "%s and %s", p, text)
				}
			}
		}
	}
	shuffled = append(shuffled, all...)
	slices.Reverse(shuffled)
	slices.SortStableFunc(shuffled, svc.Price.Cmp)
	for i := range all {
		require.Zero(t, all[i].Cmp(shuffled[i]))
	}
	require.Zero(t, svc.Price{}.Cmp(svc.Price{}))
}

func FuzzPrice(f *testing.F) {
	for _, s := range []string{`0.1`, `"0.1"`, `1e-7`, `-0`, `null`, `""`, `1e400`, `"x"`, `3.0`, `1E+30`, `"`, `0e0`} {
		f.Add([]byte(s), "1.5")
	}
	f.Fuzz(func(t *testing.T, b []byte, other string) {
		var p svc.Price
		require.NoError(t, p.UnmarshalJSON(b))
		if !json.Valid(b) {
			return
		}
		require.NotContains(t, strings.ToLower(p.String()), "e")
		if !p.IsSet() {
			return
		}
		require.Equal(t, p, testkit.Decode[svc.Price](t, testkit.Encode(t, p)))
		require.False(t, math.IsInf(p.Float64(), 0))
		require.Zero(t, p.Cmp(testkit.Price(t, p.String())))
		exact, ok := new(big.Rat).SetString(p.String())
		require.True(t, ok)
		require.Zero(t, exact.Cmp(p.Rat()))
		if q, err := svc.ParsePrice(other); err == nil {
			theirs, _ := new(big.Rat).SetString(q.String())
			require.Equal(t, exact.Cmp(theirs), p.Cmp(q), "%s and %s", p, q)
			require.Equal(t, -p.Cmp(q), q.Cmp(p))
		}
	})
}
