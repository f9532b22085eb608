package fuzz_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/url"
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
		if p.IsZero() {
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
			require.NoError(t, json.Unmarshal(b, &f), "JSON that is not a number was decoded as one")
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

func FuzzSignedURL(f *testing.F) {
	for _, s := range []string{
		testkit.SecretLink, "", "https://h/p?q", "?", "://?", "https://h?%zz", "https://h/p#?", "http://[::1%25z]/?", "%v", "a@b",
	} {
		f.Add(s, "v", "X-Sig=topsecret")
	}
	f.Fuzz(func(t *testing.T, link, verb, query string) {
		u := svc.SignedURL(link)
		printed := svc.SignedURL(u.String())
		require.Equal(t, printed, svc.SignedURL(printed.String()), "redacting a redacted text must not change it")
		var decoded string
		require.NoError(t, json.Unmarshal([]byte(testkit.Encode(t, u)), &decoded))
		require.Equal(t, u.String(), decoded)
		if parsed, err := url.Parse(u.String()); err == nil {
			require.Nil(t, parsed.User)
			require.Contains(t, []string{"", "REDACTED"}, parsed.RawQuery)
		}

		// Whatever precedes the query, the query is not shown.
		const secret = "\u2603secret"
		u = svc.SignedURL(link + "?" + query + secret)
		require.NotContains(t, u.String(), secret)
		require.NotContains(t, u.String(), url.QueryEscape(secret))
		if verb = strings.TrimLeft(verb, "+-# 0123456789."); verb != "" && !strings.ContainsAny(verb[:1], "pw%[*") {
			require.NotContains(t, fmt.Sprintf("%"+verb, u), secret)
		}
	})
}

// A response with fields of unexpected types is decoded completely, or gives an error.
func FuzzOddRecord(f *testing.F) {
	for _, odd := range testkit.OddValues {
		f.Add(`{"flavor_list":[{"flavor_id":"a","display_name":` + odd + `,"available_num":1}]}`)
		f.Add(`{"flavor_list":[{"flavor_id":"a","is_deleted":` + odd + `,"meta_info":{"cuda":` + odd + `}}]}`)
	}
	f.Fuzz(func(t *testing.T, body string) {
		list, err := testkit.Loop(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
		if err != nil {
			require.NotErrorIs(t, err, io.EOF)
			return
		}
		type only struct {
			ID string `json:"flavor_id"`
		}
		var plain struct {
			Flavors []only `json:"flavor_list"`
		}
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(body, "\ufeff")), &plain))
		require.Len(t, list, len(plain.Flavors))
		for i, f := range list {
			require.Equal(t, plain.Flavors[i].ID, f.FlavorID)
		}
	})
}
