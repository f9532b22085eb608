package fuzz_test

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

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

func FuzzInt(f *testing.F) {
	for _, s := range []string{`2`, `"2"`, `2.0`, `2e0`, `""`, `null`, `"two"`, `9223372036854775807`, `1e400`, `{`, `"`, `-0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var i, again svc.Int
		if i.UnmarshalJSON(b) != nil {
			return
		}
		require.NoError(t, json.Unmarshal([]byte(testkit.Encode(t, i)), &again))
		require.Equal(t, i, again)
		if json.Valid(b) && b[0] != '"' && string(b) != "null" {
			var f float64
			require.NoError(t, json.Unmarshal(b, &f), "only numbers are read as numbers")
			require.InDelta(t, f, float64(i), 1+max(f, -f)*1e-9)
		}
	})
}

func FuzzTime(f *testing.F) {
	for _, s := range []string{
		`null`, `""`, `"2024-05-01 10:20:30"`, `"2024-05-01T10:20:30.123456+08:00"`, `"2024-05-01"`, `"soon"`,
		`1714558830`, `-0.25`, `1e400`, `"1714558830"`, `"0001-01-01T00:00:00+14:00"`, `-62135596800.5`, `"\ud800"`, `{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v svc.Time
		require.NoError(t, v.UnmarshalJSON(b))
		if !json.Valid(b) {
			return
		}
		again := testkit.Decode[svc.Time](t, testkit.Encode(t, v))
		require.True(t, v.Equal(again.Time), "%s became %s", b, again)
		require.Equal(t, v.String() == "", again.String() == "")
		if !v.IsZero() {
			require.NotEmpty(t, v.Raw())
			require.Greater(t, v.UTC().Year(), 1)
			require.LessOrEqual(t, v.UTC().Year(), 9999)
		}
		v.Time = time.Unix(1, 0).UTC()
		require.Equal(t, "1970-01-01T00:00:01Z", testkit.Encode(t, v)[1:21])
	})
}
