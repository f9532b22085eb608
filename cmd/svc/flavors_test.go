package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestFlavors(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithFlavors(
		svctest.Flavor{ID: "big", DisplayName: "H100 80GB", CUDA: "12.10", Region: "other", USDPrice: 3.25, Stock: 2, MaxGPU: 8},
		svctest.Flavor{ID: "small", DisplayName: "L4", CUDA: "12.4", Region: "cn", USDPrice: 0.5, CNYPrice: 4, Stock: 0, MaxGPU: 1},
		svctest.Flavor{ID: "mid", DisplayName: "A100", CUDA: "12.4", Region: "other", USDPrice: 1.5, Stock: 5, MaxGPU: 4},
	))
	require.Regexp(t, `^ID +GPU +REGION +CUDA +AVAILABLE +MAX GPUS +USD\nsmall +L4 +cn +12.4 +0 +1 +0.5\nmid `, s.must(exitOK, "flavors").stdout)
	for want, args := range map[string][]string{
		"small\nmid\nbig\n": {},
		"mid\nbig\n":        {"--min-available", "1"},
		"big\n":             {"--min-cuda", "12.5"},
		"mid\n":             {"--gpu", "a100", "--max-price", "1.50"},
		"small\n":           {"--region", "cn"},
	} {
		require.Equal(t, want, s.must(exitOK, append([]string{"flavors", "-o", "name"}, args...)...).stdout)
	}
	doc := s.must(exitOK, "flavors", "--gpu", "L4", "-o", "json").doc(t)
	require.Equal(t, []any{map[string]any{
		"flavor_id": "small", "gpu": "L4", "region": "cn", "cuda": "12.4", "available": 0.0, "max_gpus": 1.0, "usd": 0.5, "cny": 4.0,
	}}, doc["flavors"])

	require.Equal(t, "mid\nbig\n", s.must(exitOK, "flavors", "--wait", "-o", "name").stdout)
	e := s.must(exitTimeout, "flavors", "--wait", "--gpu", "L4", "--timeout", "3s", "-o", "json")
	require.Equal(t, []any{}, e.doc(t)["flavors"])
	require.Contains(t, e.stderr, "0 of 1 fitting flavors in stock")

	e = s.must(exitNotFound, "flavors", "--gpu", "none", "-o", "json")
	require.Equal(t, []any{}, e.doc(t)["flavors"])
	require.Equal(t, "no_flavor", e.doc(t)["error_kind"])
	for _, args := range [][]string{{"--max-price", "cheap"}, {"--max-price", "-1"}, {"--min-cuda", "new"}, {"--min-available", "-1"}} {
		s.must(exitUsage, append([]string{"flavors"}, args...)...)
	}
}

// TestWaitForStockSaysWhatIsWrong: a flavor that nobody offers, and one that is sold out, are not the same.
func TestWaitForStockSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	warning := "warning: no flavor on offer fits, in stock or not"
	e := s.must(exitTimeout, "flavors", "--wait", "--gpu", "none", "--timeout", "4s")
	require.Contains(t, e.stderr, warning)
	require.Regexp(t, `(?m)^0 of 0 fitting flavors in stock after \ds$`, e.stderr)
	require.NotContains(t, s.must(exitTimeout, "flavors", "--wait", "--min-available", "1000", "--timeout", "4s").stderr, warning)
	s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Status: http.StatusBadGateway, Times: 20})
	require.Contains(t, s.must(exitTimeout, "flavors", "--wait", "--min-available", "1000", "--timeout", "6s").stderr, "the list of flavors could not be read after")

	s.srv.ClearFaults()
	e = s.must(exitNotFound, with(deploy, "--instances", "1000")...)
	require.Contains(t, e.stderr, "no flavor that fits has 1000 instances in stock. To wait for that: svc flavors --wait --min-available 1000")
	require.NotContains(t, e.stderr, "no flavor fits")
	e = s.must(exitNotFound, with(deploy, "--flavor", "flavor-3", "--dry-run", "--gpu", "none")...)
	require.Contains(t, e.stderr, "no flavor fits")
	require.Contains(t, s.must(exitNotFound, with(deploy, "--flavor", "flavor-3")...).stderr, "flavor-3 is not in stock")
}
