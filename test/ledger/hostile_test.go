package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

const foreignToken = "token-of-another-account"

// Only a fresh "not found" of the service lets Forget take the entry of an endpoint.
func TestForgetTakesOnlyTheWordOfTheService(t *testing.T) {
	for name, fault := range map[string]svctest.Fault{
		"page": svctest.ProxyPage(404), "plain text": svctest.RouterNotFound(), "aged": {Status: 404, Body: `{"message":"x"}`, Header: http.Header{"Age": {"50"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client()
				_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
				require.NoError(w, err)
				w.srv.Fault("GET", svctest.RouteEndpoint, fault)
				require.ErrorIs(w, c.Ledger.Forget(w.Context(), w.one()), svc.ErrNotFound)
				require.True(w, w.one().Open())
			})
		})
	}
}

// An endpoint that was renamed keeps its record after its deletion. The record does not free the key, since it might
// be of another endpoint, but somebody can.
func TestForgetTakesADeletedEndpointWithAnotherName(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client()
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		w.srv.Fault("GET", svctest.RouteEndpoint, svctest.Fault{Times: -1, Body: `{"service_id":"svc-1","name":"renamed","is_deleted":true,"status":"stopped"}`})
		require.NoError(w, c.InferenceServices.DeleteAndWait(w.Context(), "svc-1", nil))
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.ErrorIs(w, err, svc.ErrNotFound)
		require.NoError(w, c.Ledger.Forget(w.Context(), w.one()))
		w.srv.ClearFaults()
		_, err = c.InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		require.Equal(w, 2, w.creates())
	})
}

// An ID in the body of an error, or one with another name than was asked for, may be that of
// somebody else's endpoint: the responses to our token prove nothing about it.
func TestIDOfSomebodyElseIsNotKnown(t *testing.T) {
	for name, fault := range map[string]func(id string) svctest.Fault{
		"error body": func(id string) svctest.Fault {
			return svctest.Fault{Status: 500, Body: `{"message":"conflict","service_id":"` + id + `"}`}
		},
		"another name": func(id string) svctest.Fault {
			return svctest.Fault{Body: `{"service_id":"` + id + `","name":"theirs","status":"available"}`, AfterEffect: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				other, err := w.client(svc.WithToken(foreignToken)).InferenceServices.Deploy(w.Context(), request("theirs"), nil)
				require.NoError(w, err)
				later(w, time.Minute)
				w.srv.Fault("POST", svctest.RouteEndpoints, fault(other.ServiceID))
				c := w.client()
				_, _ = c.InferenceServices.Deploy(w.Context(), request("mine"), &svc.DeployOptions{Key: "k"})
				require.ErrorIs(w, c.InferenceServices.DeleteAndWait(testkit.Within(w, time.Hour), other.ServiceID, nil), svc.ErrNotFound)
				e, _ := w.srv.Endpoint(other.ServiceID)
				require.True(w, e.Billed)
				for _, e := range w.entries() {
					require.NotEqual(w, "deleted", string(e.State))
				}
			}, svctest.WithForeignToken(foreignToken))
		})
	}
}

// A page in place of a 401 does not show that a create had no effect, so it is not repeated with
// another token.
func TestCreateIsNotRepeatedAfterAPageWithStatus401(t *testing.T) {
	inWorld(t, func(w *world) {
		asked := 0
		w.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 401, Body: "<html>log in</html>", AfterEffect: true})
		c := w.client(svc.WithTokenSource(func(context.Context) (string, error) {
			asked++
			return []string{w.srv.Token(), "second-token"}[asked%2], nil
		}))
		_, err := c.InferenceServices.Create(w.Context(), request("n"))
		require.Error(w, err)
		require.Equal(w, 1, w.creates())
	}, svctest.WithSecondToken("second-token"))
}

// Caches may repeat several old responses in turn.
func TestCopiesOfSeveralResponsesProveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		inner, hidden, inBody, n := w.srv.HTTPClient().Transport, false, false, 0
		c := w.client(svc.WithHTTPClient(&http.Client{Transport: testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			if !hidden || !strings.HasSuffix(r.URL.Path, "svc-1") {
				return inner.RoundTrip(r)
			}
			n++
			old, body := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {fmt.Sprint("request-", n%3)}}, `{"message":"not found"}`
			if inBody { // the cache has an ID of its own for each response
				old.Set("X-Request-Id", fmt.Sprint("cache-", n))
				body = fmt.Sprintf(`{"message":"not found","request_id":"request-%d"}`, n%3)
			}
			return &http.Response{StatusCode: 404, Header: old, Body: io.NopCloser(strings.NewReader(body))}, nil
		})}))
		_, err := c.InferenceServices.Deploy(w.Context(), request("n"), nil)
		require.NoError(w, err)
		for _, inBody = range []bool{false, true} {
			hidden = true
			require.ErrorIs(w, c.InferenceServices.WaitUntilDeleted(testkit.Within(w, 5*time.Minute), "svc-1", nil), context.DeadlineExceeded, "in the body: %v", inBody)
			hidden = false
		}
	})
}

// A gateway that repeats a create after a lost response may return the refusal of the second
// request, with the record of the first one.
func TestRefusalWithTheRecordOfTheCreateIsNoRefusal(t *testing.T) {
	for _, status := range []int{409, 422, 400, 429} {
		for _, shape := range []string{"record", "nested", "other"} {
			ours := shape != "other"
			inWorld(t, func(w *world) {
				c := w.client(around(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					if r.Method != http.MethodPost {
						return next.RoundTrip(r)
					}
					resp, err := next.RoundTrip(r)
					require.NoError(w, err)
					body, err := io.ReadAll(resp.Body)
					require.NoError(w, err)
					resp.Body.Close()
					switch shape {
					case "nested":
						body = fmt.Appendf(nil, `{"message":"exists","existing":%s}`, body)
					case "other": // an older endpoint with the same name
						body = []byte(`{"service_id":"svc-0","name":"n","description":"of a test"}`)
					}
					resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), -1
					resp.StatusCode = status
					return resp, nil
				}))
				pick := func(_ context.Context, refused []svc.RefusedFlavor) (string, error) {
					if len(refused) > 0 {
						return "", errors.New("no other flavor")
					}
					return "flavor-a", nil
				}
				req := request("n")
				req.ResourceMetadata.FlavorID = ""
				_, err := c.InferenceServices.Deploy(testkit.Within(w, time.Hour), req, &svc.DeployOptions{PickFlavor: pick})
				if !ours {
					require.NotErrorIs(w, err, svc.ErrOutcomeUnknown)
					return
				}
				unknown := testkit.ErrorAs[*svc.OutcomeUnknownError](w, err)
				require.Equal(w, 1, w.creates(), "it must not be sent again")
				if shape == "record" {
					require.Equal(w, "svc-1", unknown.ID)
				}
				_, err = c.Ledger.Adopt(w.Context(), w.one(), "svc-1", nil)
				require.NoError(w, err)
				require.EqualValues(w, ledger.Created, w.one().State)
			})
		}
	}
}

// What lowers the bill does not wait for the rate limiter: a scale to fewer, a DeleteAndWait, and
// Reap.
func TestWhatLowersTheBillDoesNotAskTheLimiter(t *testing.T) {
	blocked := svc.WithRateLimiter(testkit.Limiter(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	for name, call := range map[string]func(w *world, id string) error{
		"scale to 0": func(w *world, id string) error {
			_, err := w.client(blocked).InferenceServices.Scale(w.Context(), id, 0)
			return err
		},
		"scale to fewer": func(w *world, id string) error {
			_, err := w.client(blocked).InferenceServices.Scale(w.Context(), id, 1)
			return err
		},
		"DeleteAndWait": func(w *world, id string) error {
			return w.client(blocked).InferenceServices.DeleteAndWait(w.Context(), id, nil)
		},
		"Reap": func(w *world, _ string) error {
			_, err := w.client(blocked).Ledger.Reap(w.Context(), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				req := request("n")
				req.ResourceMetadata.TargetInstanceNumber = 3
				s, err := w.client().InferenceServices.Deploy(w.Context(), req, &svc.DeployOptions{Key: "k", Lease: time.Minute})
				require.NoError(w, err)
				later(w, time.Hour)
				start := time.Now()
				require.NoError(w, call(w, s.ServiceID))
				require.Less(w, time.Since(start), time.Minute)
				require.Less(w, w.srv.RunningInstances(), 3)
			})
		})
	}
}

// A delete may be refused because the endpoint is deleted already: the reads decide.
func TestRefusedDeleteOfADeletedEndpoint(t *testing.T) {
	page := svctest.ProxyPage(404)
	page.Times = -1
	for name, set := range map[string]func(w *world, id string){
		"409": func(w *world, id string) {
			w.srv.SetField(id, "is_deleted", true)
			w.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 409, Body: `{}`, Times: -1})
		},
		"500": func(w *world, id string) {
			w.srv.SetField(id, "is_deleted", true)
			w.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: 500, Body: `{}`, Times: -1})
		},
		"page": func(w *world, _ string) { w.srv.Fault("*", svctest.RouteEndpoint, page) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client()
				s, err := c.InferenceServices.Deploy(w.Context(), request("n"), nil)
				require.NoError(w, err)
				require.NoError(w, c.InferenceServices.Delete(w.Context(), s.ServiceID))
				set(w, s.ServiceID)
				require.NoError(w, c.InferenceServices.DeleteAndWait(testkit.Within(w, time.Hour), s.ServiceID, nil))
			})
		})
	}
}

// The Date of a copy is no clock.
func TestDateOfACopyIsNoClock(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.client().InferenceServices.Deploy(w.Context(), request("n"), &svc.DeployOptions{Key: "k"})
		require.NoError(w, err)
		old := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		w.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: http.Header{"Age": {"3600"}, "Date": {old}}, Times: -1})
		err = w.client().Ledger.Extend(w.Context(), w.one(), time.Now().Add(8*time.Minute))
		require.Error(w, err, "without a clock of the service nothing is recorded")
		require.NotErrorIs(w, err, context.DeadlineExceeded)
	})
}
