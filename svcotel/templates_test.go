package svcotel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestEveryRouteOfTheServiceIsATemplate(t *testing.T) {
	want := map[string]bool{storage: true}
	for _, route := range []string{
		svctest.RouteFlavors, svctest.RouteEndpoints, svctest.RouteEndpoint, svctest.RouteVideoJobs, svctest.RouteVideoJob, svctest.RouteImageJobs,
		svctest.RouteImageJob, svctest.RoutePublicFiles, svctest.RouteFiles, svctest.RouteFile, svctest.RouteFileLink,
	} {
		want[route] = true
	}
	require.Equal(t, want, templates)
}
