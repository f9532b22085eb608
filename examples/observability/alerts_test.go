package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// firing evaluates alerts.yaml every minute over series, which have one sample for each minute,
// in the notation of Prometheus' own tests. It returns the minutes in which each alert fires,
// such as "3-17", and the summaries of the alerts.
func firing(t *testing.T, minutes int, series ...string) (when, summaries map[string]string) {
	store := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  "))
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:    rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6), store),
		AppendableV2: store, Queryable: store, Context: t.Context(), Logger: slog.New(slog.DiscardHandler),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, NameValidationScheme: model.UTF8Validation,
		Parser: parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, "alerts.yaml")
	require.Empty(t, errs)
	at, summaries := map[string][]int{}, map[string]string{}
	for minute := range minutes {
		for _, g := range groups {
			g.Eval(t.Context(), time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
			for _, r := range g.AlertingRules() {
				require.NoError(t, r.LastError())
				for _, alert := range r.ActiveAlerts() {
					if alert.State == rules.StateFiring {
						at[r.Name()] = append(at[r.Name()], minute)
						summaries[r.Name()] = alert.Annotations.Get("summary")
					}
				}
			}
		}
	}
	when = map[string]string{}
	for name, all := range at {
		when[name] = fmt.Sprintf("%d-%d", all[0], all[len(all)-1])
		require.Len(t, slices.Compact(all), all[len(all)-1]-all[0]+1, "%s pauses", name)
	}
	return when, summaries
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	const unknown, cleanup = `svc_creates_total{job="deployer",svc_outcome="unknown"} `, `svc_cleanups_total{job="deployer",svc_outcome="unproven"} `
	for name, tt := range map[string]struct {
		series []string
		want   map[string]string
	}{
		"nothing is wrong": {[]string{
			unknown + "0x60", cleanup + "0x60", `svc_creates_total{job="deployer",svc_outcome="created"} 0+3x60`,
			`svc_ledger_in_doubt{job="deployer"} 0x60`, `svc_ledger_overdue{job="deployer"} 0x60`, `svc_ledger_errors_total{job="deployer"} 0x60`,
		}, nil},
		"an outcome is unknown":                    {[]string{unknown + "0x9 1x50"}, map[string]string{"SvcOutcomeUnknown": "10-23"}},
		"it was so before the first scrape":        {[]string{unknown + "_x4 1x55"}, map[string]string{"SvcOutcomeUnknown": "4-18"}},
		"a counter starts again":                   {[]string{unknown + "5x9 0x50"}, map[string]string{"SvcOutcomeUnknown": "0-9"}},
		"a cleanup proved nothing":                 {[]string{cleanup + "0x9 2x50"}, map[string]string{"SvcCleanupUnproven": "10-23"}},
		"an entry is in doubt until it is settled": {[]string{`svc_ledger_in_doubt{job="deployer",instance="a"} 0x9 1x19 0x30`, `svc_ledger_in_doubt{job="deployer",instance="b"} 0x60`}, map[string]string{"SvcEntryInDoubt": "10-29"}},
		"Reap deletes an endpoint in time":         {[]string{`svc_ledger_overdue{job="deployer"} 0x9 1x9 0x40`}, nil},
		"nobody runs Reap":                         {[]string{`svc_ledger_overdue{job="deployer"} 0x9 1x50`}, map[string]string{"SvcLeaseOverdue": "25-59"}},
		"the ledger cannot be read":                {[]string{`svc_ledger_errors_total{job="deployer"} 0x9 1+1x50`}, map[string]string{"SvcLedgerUnreadable": "15-59"}},
	} {
		t.Run(name, func(t *testing.T) {
			when, _ := firing(t, 60, tt.series...)
			if tt.want == nil {
				tt.want = map[string]string{}
			}
			require.Equal(t, tt.want, when)
		})
	}
}

// scrape returns what Prometheus reads at the end of a run, in which an outcome is unknown.
func scrape(t *testing.T) (samples []string) {
	inBubble(t, func(t *testing.T, srv *svctest.Server) {
		err := run(t.Context(), srv, new(lockedBuffer), slog.New(slog.DiscardHandler), func(h http.Handler) error {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			for line := range strings.Lines(w.Body.String()) {
				if !strings.HasPrefix(line, "#") {
					samples = append(samples, strings.TrimSpace(line))
				}
			}
			return nil
		})
		require.NoError(t, err)
	})
	require.NotEmpty(t, samples)
	return samples
}

// TestAlertsFireForARun evaluates the alerts over the metrics of a real run.
func TestAlertsFireForARun(t *testing.T) {
	samples := scrape(t)
	for i, s := range samples {
		samples[i] = s + "x30"
	}
	when, summaries := firing(t, 30, samples...)
	require.Equal(t, map[string]string{"SvcOutcomeUnknown": "0-14", "SvcEntryInDoubt": "0-29"}, when)
	t.Log(summaries)
}

// TestAlertsAndDashboardUseMetricsThatExist looks for each metric of the rules and of the
// dashboard in the output of a run.
func TestAlertsAndDashboardUseMetricsThatExist(t *testing.T) {
	exist := map[string]bool{}
	for _, s := range scrape(t) {
		name, _, _ := strings.Cut(s, "{")
		name, _, _ = strings.Cut(name, " ")
		exist[name] = true
	}
	board, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.True(t, json.Valid(board))
	alerts, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	used := regexp.MustCompile(`\b(svc|http_client)_[a-z_]+(total|bucket|count|in_doubt|overdue|instances|entries)\b`).FindAllString(string(board)+string(alerts), -1)
	require.Greater(t, len(used), 15)
	for _, name := range used {
		require.True(t, exist[name], "%s: no such metric", name)
	}
	var parsed struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(board, &parsed))
	require.Greater(t, len(parsed.Panels), 8)
	for _, p := range parsed.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h").Replace(target.Expr)
			_, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
			require.NoError(t, err, p.Title)
		}
	}
}
