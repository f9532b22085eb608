//go:build linux

package ledgerdb_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/ledger/ledgertest"
	"example.com/svc/ledger/sqlledger"
	"example.com/svc/svctest"
)

const safe = "?_pragma=busy_timeout(60000)&_pragma=synchronous(FULL)"

func database(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func open(t *testing.T, driver, dsn string) (ledger.Store, error) {
	t.Helper()
	switch driver {
	case "folder":
		return ledger.Dir(dsn)
	case "sqlite":
		return sqlledger.SQLite(t.Context(), database(t, driver, dsn))
	}
	return sqlledger.Postgres(t.Context(), database(t, driver, dsn))
}

func mustOpen(t *testing.T, driver, dsn string) ledger.Store {
	t.Helper()
	s, err := open(t, driver, dsn)
	require.NoError(t, err)
	return s
}

// databases runs f with a new database of each kind.
func databases(t *testing.T, f func(t *testing.T, driver, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "ledger.db")+safe) })
	t.Run("postgres", func(t *testing.T) { f(t, "postgres", newPostgresDatabase(t)) })
}

func TestPasses(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		ledgertest.Run(t, func() ledger.Store { return mustOpen(t, driver, dsn) })
	})
}

// Many processes may open a new database at the same time. The table is created once.
func TestOpenTogether(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				_, err := open(t, driver, dsn)
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	})
}

func TestDamage(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		s := mustOpen(t, driver, dsn)
		good := []ledger.Record{{Key: "a", Seq: 1}, {Key: "k", Seq: 1}, {Key: "z", Seq: 1}}
		for _, r := range append(good, ledger.Record{Key: "k", Seq: 2}) {
			require.NoError(t, s.Append(t.Context(), r))
		}
		for _, text := range []string{"", "{", `{"key":"k","seq":3}`, `{"key":"a","seq":2}`} {
			_, err := database(t, driver, dsn).Exec(`UPDATE svc_ledger SET record = $1 WHERE "key" = 'k' AND seq = 2`, text)
			require.NoError(t, err)
			all, err := s.List(t.Context(), "")
			require.Equal(t, good, all, "everything else can be read")
			require.ErrorContains(t, err, "record 2 of key k")
			damage, ok := errors.AsType[*ledger.Error](err)
			require.True(t, ok)
			require.Equal(t, "k", damage.Key)
			require.ErrorIs(t, s.Append(t.Context(), ledger.Record{Key: "k", Seq: 2}), fs.ErrExist)
		}
	})
}

func TestNoTable(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		s := mustOpen(t, driver, dsn)
		_, err := database(t, driver, dsn).Exec(`DROP TABLE svc_ledger`)
		require.NoError(t, err)
		_, err = s.List(t.Context(), "")
		require.ErrorContains(t, err, "svc_ledger")
		err = s.Append(t.Context(), ledger.Record{Key: "k", Seq: 1})
		require.ErrorContains(t, err, "record 1 of key k")
		require.NotErrorIs(t, err, fs.ErrExist)
	})
}

// Open refuses a database with settings that can lose commits, or that make a second
// process fail at once.
func TestUnsafeSettings(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "ledger.db")
	for _, settings := range []string{"", "?_pragma=synchronous(FULL)", "?_pragma=busy_timeout(1000)&_pragma=synchronous(NORMAL)", "?_pragma=busy_timeout(1000)&_pragma=synchronous(OFF)"} {
		_, err := open(t, "sqlite", file+settings)
		require.ErrorContains(t, err, "busy_timeout", settings)
	}
	for _, settings := range []string{safe, "?_pragma=busy_timeout(1000)&_pragma=synchronous(EXTRA)"} {
		_, err := open(t, "sqlite", file+settings)
		require.NoError(t, err, settings)
	}
	t.Run("read-only", func(t *testing.T) {
		_, err := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "none.db")+safe+"&mode=ro")
		require.Error(t, err)
		s, err := open(t, "sqlite", file+safe+"&mode=ro")
		require.NoError(t, err)
		require.ErrorContains(t, s.Append(t.Context(), ledger.Record{Key: "k", Seq: 1}), "readonly")
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := newPostgresDatabase(t)
		_, err := open(t, "postgres", dsn+" options='-c synchronous_commit=off'")
		require.ErrorContains(t, err, "synchronous_commit")
		_, err = open(t, "postgres", dsn+" options='-c default_transaction_read_only=on'")
		require.ErrorContains(t, err, "read-only")
	})
}

const (
	childDriver = "SVC_LEDGER_DRIVER"
	childDSN    = "SVC_LEDGER_DSN"
	childURL    = "SVC_LEDGER_URL"
)

var (
	processes = flag.Int("processes", 20, "how many processes deploy under one key")
	rounds    = flag.Int("rounds", 3, "under how many keys they do so, one after the other")
)

func request(name string) svc.CreateInferenceServiceRequest {
	return svc.CreateInferenceServiceRequest{Name: name, ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1}}
}

// TestChild is what each process of the test below runs.
func TestChild(t *testing.T) {
	if os.Getenv(childURL) == "" {
		t.Skip("runs only as a child process of other tests")
	}
	s, err := open(t, os.Getenv(childDriver), os.Getenv(childDSN))
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	c, err := svc.NewClient(os.Getenv(childURL), svc.WithToken(svctest.DefaultToken), svc.WithLedger(s), svc.WithUserAgent(fmt.Sprint("pid/", os.Getpid())))
	require.NoError(t, err)
	for round := range *rounds {
		key := fmt.Sprintf("key-%d", round)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		endpoint, err := c.InferenceServices.Deploy(ctx, request(key), &svc.DeployOptions{Key: key})
		cancel()
		unknown, doubt := errors.AsType[*svc.OutcomeUnknownError](err)
		deployed, late := errors.AsType[*svc.DeployError](err)
		switch {
		case err == nil:
			fmt.Println("id", key, endpoint.ServiceID)
		case doubt:
			fmt.Println("doubt", key, unknown.Intent)
		case late && errors.Is(err, context.DeadlineExceeded):
			fmt.Println("id", key, deployed.ServiceID)
		default:
			fmt.Println("failed", err)
		}
	}
}

// Many processes deploy under the same keys, and half of them are killed. At most one
// endpoint is created per key. The other processes return its ID, or an error that says
// that the same create is in doubt.
func TestOneKeyOneCreate(t *testing.T) {
	run := func(t *testing.T, driver, dsn string) {
		srv := svctest.NewServer(svctest.WithDeployTime(100 * time.Millisecond))
		t.Cleanup(srv.Close)
		srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Delay: 100 * time.Millisecond, Times: -1})
		var mu sync.Mutex
		results := map[string]map[string]bool{"id": {}, "doubt": {}} // "key value" by kind
		running := make(map[string]*exec.Cmd)                        // processes by the beginning of their User-Agent
		stop := make(chan struct{})
		var watch, group sync.WaitGroup
		watch.Go(func() { // kills every second process while its create is in flight
			for known := 0; ; time.Sleep(10 * time.Millisecond) {
				select {
				case <-stop:
					return
				default:
				}
				posts := creates(srv)
				for ; known < len(posts); known++ {
					name, _, _ := strings.Cut(posts[known].Header.Get("User-Agent"), " ")
					mu.Lock()
					if cmd := running[name]; known%2 == 0 && cmd != nil {
						_ = cmd.Process.Kill()
					}
					mu.Unlock()
				}
			}
		})
		for i := range *processes {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", fmt.Sprint("-rounds=", *rounds))
			cmd.Env = append(os.Environ(), childDriver+"="+driver, childDSN+"="+dsn, childURL+"="+srv.URL())
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			mu.Lock()
			running[fmt.Sprint("pid/", cmd.Process.Pid)] = cmd
			mu.Unlock()
			if i%2 == 1 {
				time.AfterFunc(time.Duration(rand.N(5000))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
			group.Go(func() {
				for lines := bufio.NewScanner(out); lines.Scan(); {
					f := strings.Fields(lines.Text())
					if len(f) == 3 && results[f[0]] != nil {
						mu.Lock()
						results[f[0]][f[1]+" "+f[2]] = true
						mu.Unlock()
					} else if f[0] == "failed" {
						t.Error(lines.Text())
					}
				}
				_ = cmd.Wait()
			})
		}
		group.Wait()
		close(stop)
		watch.Wait()
		for kind, all := range results {
			seen := make(map[string]bool)
			for result := range all {
				key, _, _ := strings.Cut(result, " ")
				require.False(t, seen[key], "%s has two results: %v", key, all)
				seen[key] = true
			}
			t.Logf("%s: %d of %d keys", kind, len(all), *rounds)
		}
		created := make(map[string]bool)
		for _, e := range srv.Endpoints() {
			require.False(t, created[e.Name], "%s was created twice", e.Name)
			created[e.Name] = true
		}
	}
	t.Run("folder", func(t *testing.T) { run(t, "folder", t.TempDir()) })
	databases(t, run)
}

func creates(srv *svctest.Server) (posts []svctest.Request) {
	for _, r := range srv.Requests() {
		if r.Method == "POST" {
			posts = append(posts, r)
		}
	}
	return posts
}
