package svctest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestForeignTokenSeesNothingOfTheFirstAccount(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		create(t, srv)
		file := srv.AddFile("a", "fine-tune", nil)
		srv.AddPublicFile(svctest.PublicFile{Name: "p"})
		job := srv.AddJob(svctest.Job{})
		foreign := func(method, path, body string) reply {
			return send(t, srv, method, path, body, "Authorization", "Bearer other")
		}
		for _, request := range [][3]string{
			{"GET", endpointPath, ""}, {"DELETE", endpointPath, ""},
			{"PUT", endpointPath, `{"resource_metadata":{"target_instance_number":2}}`},
			{"GET", "/v1/files/" + file, ""}, {"DELETE", "/v1/files/" + file, ""}, {"GET", "/v1/files/" + file + "/presigned_url", ""},
			{"GET", "/v1/svc-video-job/" + job, ""}, {"DELETE", "/v1/svc-video-job/" + job, ""},
		} {
			require.Equal(t, 404, foreign(request[0], request[1], request[2]).Status, request)
		}
		require.Equal(t, "[]", foreign("GET", "/v1/files", "").Body)
		require.JSONEq(t, `{"total_count":0,"job_list":[]}`, foreign("GET", "/v1/svc-video-job", "").Body)
		require.Contains(t, foreign("GET", "/v1/public-files", "").Body, `"p"`)
		require.Contains(t, foreign("GET", "/v1/inference-service/flavor", "").Body, "flavor-1")
		require.Equal(t, 401, send(t, srv, "GET", "/v1/files", "", "Authorization", "other").Status)

		r := foreign("POST", "/v1/inference-service", `{"name":"theirs"}`)
		require.Equal(t, svctest.ForeignUser, r.JSON()["user_id"])
		require.Equal(t, 200, foreign("GET", "/v1/inference-service/svc-2", "").Status)
		require.Equal(t, "Not Found", status(t, srv, "svc-2"))
		require.Equal(t, 200, foreign("POST", "/v1/files", `{"file_name":"b"}`).Status)
		require.NotContains(t, send(t, srv, "GET", "/v1/files", "").Body, `"b"`)
		theirs := srv.AddEndpoint(svctest.Endpoint{UserID: svctest.ForeignUser})
		require.Equal(t, 200, foreign("DELETE", "/v1/inference-service/"+theirs, "").Status)
		e, _ := srv.Endpoint("svc-1")
		require.False(t, e.Deleted)
		require.Equal(t, svctest.DefaultUser, e.UserID)
		require.Contains(t, foreign("GET", "/other", "").Body, "GET /[token]", "no response shows a token")
	}, svctest.WithForeignToken("other"))
}

func TestSecondTokenSeesTheSameAccount(t *testing.T) {
	srv := svctest.NewInMemory(svctest.WithSecondToken("rotated"))
	id := create(t, srv)
	require.Equal(t, 200, send(t, srv, "GET", "/v1/inference-service/"+id, "", "Authorization", "Bearer rotated").Status)
	require.Equal(t, 200, send(t, srv, "GET", "/v1/inference-service/"+id, "").Status)
}
