package svctest_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestFlavorsHaveEveryFieldOfTheContract(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		r := send(t, srv, "GET", "/v1/inference-service/flavor", "")
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))
		require.JSONEq(t, `{"flavor_list":[
			{"flavor_id":"f","display_name":"GPU","cluster_id":"c","cluster_flavor_id":"cf",
			 "meta_info":{"cuda":"12.4","region":"cn"},
			 "billing":{"cny_price_unit":3,"usd_price_unit":0.42,"token_price_unit":0.001},
			 "created_at":"2024-05-01 08:00:00","updated_at":"2024-06-01 10:11:12",
			 "deleted_at":null,"is_deleted":false,"available_num":5,"node_max_gpu":4},
			{"flavor_id":"old","display_name":"","cluster_id":"","cluster_flavor_id":"",
			 "meta_info":{"cuda":"","region":""},
			 "billing":{"cny_price_unit":0,"usd_price_unit":0,"token_price_unit":0},
			 "created_at":"2024-06-01 10:11:12","updated_at":"2024-06-01 10:11:12",
			 "deleted_at":"2024-07-01 00:00:00","is_deleted":true,"available_num":0,"node_max_gpu":0}]}`, r.Body)
	}, svctest.WithFlavors(
		svctest.Flavor{ID: "f", DisplayName: "GPU", ClusterID: "c", ClusterFlavorID: "cf", CUDA: "12.4", Region: "cn",
			CNYPrice: 3, USDPrice: 0.42, TokenPrice: 0.001, Stock: 5, MaxGPU: 4,
			CreatedAt: time.Date(2024, 5, 1, 10, 0, 0, 0, time.FixedZone("", 2*3600))},
		svctest.Flavor{ID: "old", DeletedAt: time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC)},
	))
}

func TestEndpointRecordHasEveryFieldOfTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock starts at 2000-01-01 00:00:00 UTC
		srv := svctest.NewInMemory(svctest.WithDeployTime(90 * time.Second))
		created := send(t, srv, "POST", "/v1/inference-service", createBody)
		const record = `{"service_id":"svc-1","name":"demo","description":"a demo endpoint","user_id":"user-1",
			"status":"initializing","status_info":null,
			"resource_metadata":{"resource_display_name":"GPU A","scale_type":"manual","flavor_id":"flavor-1",
				"target_instance_number":2,"scale_policy":null,"VRAM":"24GB","image_size":"10GB"},
			"billing_metadata":{},"endpoint_metadata":{},
			"deploy_metadata":{"image_url":"registry.example/app:1","command":"python serve.py","port":8000,"gpu_num":0},
			"service_type":"normal","created_at":"2000-01-01 00:00:00","updated_at":"2000-01-01 00:00:00",
			"deleted_at":null,"is_deleted":false,"payment_type":"usd"}`
		require.JSONEq(t, record, created.Body)
		require.JSONEq(t, record, send(t, srv, "GET", "/v1/inference-service/svc-1", "").Body)

		time.Sleep(2 * time.Minute)
		ready := send(t, srv, "GET", "/v1/inference-service/svc-1", "").JSON()
		require.Equal(t, "available", ready["status"])
		require.Equal(t, "2000-01-01 00:01:30", ready["updated_at"])
	})
}

func TestEndpointLifecycleFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
		id := create(t, srv)
		time.Sleep(20*time.Minute - 1)
		require.Equal(t, "initializing", status(t, srv, id))
		time.Sleep(1)
		require.Equal(t, "available", status(t, srv, id))

		r := scale(t, srv, id, `"3"`) // a string, like in the example of the contract
		require.Equal(t, "initializing", r.JSON()["status"])
		require.EqualValues(t, 3, r.JSON()["resource_metadata"].(map[string]any)["target_instance_number"])
		require.Equal(t, "initializing", status(t, srv, id))
		require.Equal(t, 3, srv.RunningInstances())
		time.Sleep(20 * time.Minute)
		require.Equal(t, "available", status(t, srv, id))
		require.Equal(t, "available", scale(t, srv, id, "3").JSON()["status"], "an update that changes nothing deploys nothing")

		require.Equal(t, "initializing", scale(t, srv, id, "0").JSON()["status"])
		require.Equal(t, "stopped", status(t, srv, id))
		require.Equal(t, "stopped", scale(t, srv, id, "0").JSON()["status"])
		require.Zero(t, srv.RunningInstances())

		require.Equal(t, "initializing", scale(t, srv, id, "1").JSON()["status"])
		require.Equal(t, "initializing", status(t, srv, id), "a stopped endpoint is deployed again")
		time.Sleep(20 * time.Minute)
		require.Equal(t, "available", status(t, srv, id))

		gone := send(t, srv, "DELETE", "/v1/inference-service/"+id, "")
		require.Equal(t, http.StatusOK, gone.Status)
		require.Empty(t, gone.Body)
		for _, method := range []string{"GET", "DELETE"} {
			require.Equal(t, http.StatusNotFound, send(t, srv, method, "/v1/inference-service/"+id, "").Status)
		}
		require.Equal(t, http.StatusNotFound, scale(t, srv, id, "1").Status)
		e, ok := srv.Endpoint(id)
		require.True(t, ok)
		require.True(t, e.Deleted)
		require.False(t, e.Billed)
		require.Equal(t, time.Now(), e.DeletedAt)
	})
}

func TestZeroDeployTimeIsReadyAtTheFirstRead(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		r := send(t, srv, "POST", "/v1/inference-service", `{"name":"bare"}`)
		require.Equal(t, "initializing", r.JSON()["status"])
		require.Equal(t, "available", status(t, srv, "svc-1"))
	}, svctest.WithDeployTime(0))
}

func TestStock(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		left := func() float64 {
			list := send(t, srv, "GET", "/v1/inference-service/flavor", "").JSON()["flavor_list"].([]any)
			return list[0].(map[string]any)["available_num"].(float64)
		}
		id := create(t, srv)
		require.EqualValues(t, 1, left())
		r := send(t, srv, "POST", "/v1/inference-service", createBody)
		require.Equal(t, http.StatusConflict, r.Status)
		require.Equal(t, "out_of_stock", r.JSON()["code"])
		require.Equal(t, http.StatusConflict, scale(t, srv, id, "4").Status)
		require.Equal(t, http.StatusOK, scale(t, srv, id, "3").Status)
		require.Zero(t, left())
		scale(t, srv, id, "1")
		require.EqualValues(t, 2, left())
		send(t, srv, "DELETE", "/v1/inference-service/"+id, "")
		require.EqualValues(t, 3, left())
		require.Len(t, srv.Endpoints(), 1)
	}, svctest.WithFlavors(svctest.Flavor{ID: "flavor-1", Stock: 3}))
}

func TestEventualConsistency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeployTime(time.Second),
			svctest.WithCreateVisibilityDelay(5*time.Second), svctest.WithStaleReads(3*time.Second))
		id := create(t, srv)
		time.Sleep(5*time.Second - 1)
		require.Equal(t, "Not Found", status(t, srv, id))
		require.Equal(t, http.StatusNotFound, scale(t, srv, id, "1").Status)
		require.Equal(t, http.StatusNotFound, send(t, srv, "DELETE", "/v1/inference-service/"+id, "").Status)
		require.Equal(t, 2, srv.RunningInstances(), "nobody can see it, but it is billed")
		time.Sleep(1)
		require.Equal(t, "available", status(t, srv, id))

		scale(t, srv, id, "4")
		time.Sleep(3*time.Second - 1)
		old := send(t, srv, "GET", "/v1/inference-service/"+id, "").JSON()
		require.Equal(t, "available", old["status"])
		require.EqualValues(t, 2, old["resource_metadata"].(map[string]any)["target_instance_number"])
		time.Sleep(1)
		now := send(t, srv, "GET", "/v1/inference-service/"+id, "").JSON()
		require.EqualValues(t, 4, now["resource_metadata"].(map[string]any)["target_instance_number"])
	})
}

func TestDeleteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeleteTime(time.Minute))
		id := create(t, srv)
		require.Equal(t, http.StatusOK, send(t, srv, "DELETE", "/v1/inference-service/"+id, "").Status)
		time.Sleep(time.Minute - 1)
		require.Equal(t, "available", status(t, srv, id))
		require.Equal(t, http.StatusOK, send(t, srv, "DELETE", "/v1/inference-service/"+id, "").Status)
		require.Equal(t, 2, srv.RunningInstances())
		time.Sleep(1)
		require.Equal(t, "Not Found", status(t, srv, id), "a second DELETE does not start over")
		require.Zero(t, srv.RunningInstances())
	})
}

func TestScriptedStatuses(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := create(t, srv)
		for _, want := range []string{"initializing", "scaling", "available", "available"} {
			require.Equal(t, want, status(t, srv, id))
		}
		srv.ScriptStatus(id, "draining", "unavailable")
		e, _ := srv.Endpoint(id)
		require.Equal(t, "draining", e.Status, "looking from outside does not move the script on")
		require.Equal(t, "initializing", scale(t, srv, id, "1").JSON()["status"])
		require.Equal(t, "draining", status(t, srv, id), "a script outlives an update")
		require.Equal(t, "unavailable", status(t, srv, id))
		require.Equal(t, 1, srv.RunningInstances(), "a broken endpoint costs money")
		scale(t, srv, id, "2")
		require.Equal(t, "initializing", status(t, srv, id), "but not once it is used up")

		srv.SetStatus(id, "stopped")
		srv.SetStatusInfo(id, "paused by the owner")
		require.Zero(t, srv.RunningInstances())
		r := send(t, srv, "GET", "/v1/inference-service/"+id, "").JSON()
		require.Equal(t, "stopped", r["status"])
		require.Equal(t, "paused by the owner", r["status_info"])
		require.Equal(t, "initializing", scale(t, srv, id, "2").JSON()["status"], "same number, but stopped: a redeployment")
		require.Equal(t, "initializing", status(t, srv, id))
		srv.SetStatus(id, "odd")
		srv.SetStatus(id, "")
		require.Equal(t, "initializing", status(t, srv, id))
	}, svctest.WithDeployTime(time.Hour), svctest.WithStatusPath("initializing", "scaling", "available"))
}

func TestAddEndpoint(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		a := srv.AddEndpoint(svctest.Endpoint{Name: "a", FlavorID: "flavor-2", Instances: 3})
		b := srv.AddEndpoint(svctest.Endpoint{Name: "b", Status: svctest.StatusUnavailable, Instances: 1})
		c := srv.AddEndpoint(svctest.Endpoint{})
		require.Equal(t, []string{"available", "unavailable", "stopped"}, []string{status(t, srv, a), status(t, srv, b), status(t, srv, c)})
		require.Equal(t, 4, srv.RunningInstances())
		r := send(t, srv, "GET", "/v1/inference-service/"+a, "").JSON()["resource_metadata"].(map[string]any)
		require.Equal(t, "GPU B", r["resource_display_name"])
		require.Equal(t, "16GB", r["VRAM"])
		require.Panics(t, func() { srv.SetStatus("svc-9", "available") })
		_, ok := srv.Endpoint("svc-01")
		require.False(t, ok)
	}, svctest.WithCreateVisibilityDelay(time.Hour))
}

func TestInferenceAddress(t *testing.T) {
	get := func(t *testing.T, srv *svctest.Server, path string) reply {
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.InferenceURL()+"/inference-api/v1/inference_service/"+path, nil)
		require.NoError(t, err)
		r, err := do(t, srv, req) // without a token
		require.NoError(t, err)
		return r
	}
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := create(t, srv)
		require.Equal(t, http.StatusServiceUnavailable, get(t, srv, id).Status)
		require.Equal(t, http.StatusNotFound, get(t, srv, "svc-9").Status)
		srv.SetStatus(id, "available")
		require.JSONEq(t, `{"service_id":"svc-1"}`, get(t, srv, id).Body)
		send(t, srv, "DELETE", "/v1/inference-service/"+id, "")
		require.Equal(t, http.StatusNotFound, get(t, srv, id).Status)
		require.Equal(t, 4, srv.RequestCount("GET", svctest.RouteInference))
	}, svctest.WithDeployTime(time.Hour))
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := create(t, srv)
		require.Equal(t, "GET /", get(t, srv, id).Body)
		require.Equal(t, "GET /v1/chat?x=1", get(t, srv, id+"/v1/chat?x=1").Body)
		require.Equal(t, "GET /a%2Fb", get(t, srv, id+"/a%2Fb").Body)
	}, svctest.WithDeployTime(0), svctest.WithBasePath("api/svc/"), svctest.WithInferenceHandler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Method + " " + r.URL.String())) }),
	))
}
