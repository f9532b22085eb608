package waits_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func TestDeployOnFailure(t *testing.T) {
	for name, want := range map[string]bool{"keep": false, "delete": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := svctest.NewInMemory(svctest.WithStatusPath("initializing", "unavailable"))
				var asked error
				_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
					DeleteOnFailure: !want, // ignored, because OnFailure is set
					OnFailure:       func(err *svc.DeployError) bool { asked = err; return want },
				})
				require.ErrorIs(t, err, svc.ErrUnavailable)
				require.ErrorIs(t, asked, svc.ErrUnavailable)
				require.Equal(t, want, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup == svc.CleanupDeleted)
				require.Equal(t, want, srv.Endpoints()[0].Deleted)
			})
		})
	}
}

// If OnCreate fails, the deployment fails. With DeleteOnFailure the endpoint is deleted.
func TestDeployOnCreateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		full := errors.New("disk full")
		_, err := srv.Client().InferenceServices.Deploy(t.Context(), testkit.Demo, &svc.DeployOptions{
			DeleteOnFailure: true,
			OnCreate:        func(*svc.InferenceService) error { return full },
		})
		require.ErrorIs(t, err, full)
		require.Equal(t, svc.CleanupDeleted, testkit.ErrorAs[*svc.DeployError](t, err).Cleanup)
		require.Zero(t, srv.RunningInstances())
	})
}
