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

// Open refuses a database with settings that can lose commits, or that make a second process fail at
// once. It checks more than one connection, and its error shows the name that works.
func TestUnsafeSettings_D11(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "ledger.db")
	const ok = "?_pragma=busy_timeout(1000)&_pragma=synchronous(FULL)"
	for settings, what := range map[string]string{
		"": "busy_timeout", "?_pragma=synchronous(FULL)": "busy_timeout",
		"?_pragma=busy_timeout(1000)&_pragma=synchronous(NORMAL)": "synchronous", "?_pragma=busy_timeout(1000)&_pragma=synchronous(OFF)": "synchronous",
		ok + "&_pragma=journal_mode(OFF)": "journal_mode is off", ok + "&_pragma=journal_mode(MEMORY)": "journal_mode is memory",
	} {
		_, err := open(t, "sqlite", file+settings)
		require.ErrorContains(t, err, what, settings)
		require.ErrorContains(t, err, "file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)")
	}
	_, err := open(t, "sqlite", "file::memory:"+ok)
	require.ErrorContains(t, err, "the database is not a file")
	for _, settings := range []string{safe, "?_pragma=busy_timeout(1000)&_pragma=synchronous(EXTRA)", ok + "&_pragma=journal_mode(WAL)", ok + "&_pragma=journal_mode(DELETE)"} {
		_, err := open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "ledger.db")+settings)
		require.NoError(t, err, settings)
	}
	db := database(t, "sqlite", file)
	for _, pragma := range []string{"busy_timeout=1000", "synchronous=FULL"} { // on one connection only
		_, err := db.Exec("PRAGMA " + pragma)
		require.NoError(t, err)
	}
	_, err = sqlledger.SQLite(t.Context(), db)
	require.ErrorContains(t, err, "busy_timeout is 0")
	db = database(t, "sqlite", file+safe)
	db.SetMaxOpenConns(1)
	_, err = sqlledger.SQLite(t.Context(), db)
	require.NoError(t, err)
	t.Run("postgres", func(t *testing.T) {
		_, err := open(t, "postgres", newPostgresDatabase(t)+" options='-c synchronous_commit=off'")
		require.ErrorContains(t, err, "synchronous_commit")
	})
}

// That records cannot be written comes to light when the store is opened, unless it must exist: then it can be read.
func TestReadOnlyDatabase_D13(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "ledger.db")
	mustOpen(t, "sqlite", file+safe)
	_, err := open(t, "sqlite", file+safe+"&mode=ro")
	require.ErrorContains(t, err, "the table svc_ledger cannot be written")
	reader, err := sqlledger.SQLite(t.Context(), database(t, "sqlite", file+safe+"&mode=ro"), ledger.MustExist())
	require.NoError(t, err)
	_, err = reader.List(t.Context(), "")
	require.NoError(t, err)
	require.Error(t, reader.Append(t.Context(), ledger.Record{Key: "k", Seq: 1}))
	t.Run("postgres", func(t *testing.T) {
		dsn := newPostgresDatabase(t)
		s := mustOpen(t, "postgres", dsn)
		_, err = open(t, "postgres", dsn+" options='-c default_transaction_read_only=on'")
		require.ErrorContains(t, err, "the table svc_ledger cannot be written")
		all, err := s.List(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, all, "the attempt was rolled back")
	})
}

// Records are written in ASCII, which every database can store.
func TestDatabaseInLatin1_D13(t *testing.T) {
	name := newPostgresDatabase(t)
	admin := database(t, "postgres", name)
	_, err := admin.Exec(`CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	require.NoError(t, err)
	s := mustOpen(t, "postgres", postgresDSN("latin"))
	r := ledger.Record{Key: "k", Seq: 1, Name: "世界 😀 é", At: time.Now().UTC().Round(0)}
	require.NoError(t, s.Append(t.Context(), r))
	all, err := s.List(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, []ledger.Record{r}, all)
}

// An error after which the server has certainly written nothing is retried.
func TestSerializationFailureIsRetried_D12(t *testing.T) {
	dsn := newPostgresDatabase(t)
	s := mustOpen(t, "postgres", dsn)
	_, err := database(t, "postgres", dsn).Exec(`
		CREATE SEQUENCE tries;
		CREATE FUNCTION fail() RETURNS trigger AS $$ BEGIN
			IF nextval('tries') % 4 <> 0 THEN RAISE EXCEPTION 'try again' USING ERRCODE = TG_ARGV[0]; END IF;
			RETURN NEW;
		END $$ LANGUAGE plpgsql;`)
	require.NoError(t, err)
	for i, code := range []string{"40001", "40P01", "23514"} {
		_, err = database(t, "postgres", dsn).Exec(`DROP TRIGGER IF EXISTS fails ON svc_ledger; CREATE TRIGGER fails BEFORE INSERT ON svc_ledger FOR EACH ROW EXECUTE FUNCTION fail('` + code + `')`)
		require.NoError(t, err)
		err = s.Append(t.Context(), ledger.Record{Key: "k", Seq: int64(i + 1)})
		require.Equal(t, code == "23514", err != nil, "%s: %v", code, err)
	}
}

// TestLedgerThatCannotBeReadIsNotMissing: who takes it for none makes a new one, which knows nothing of what runs.
func TestLedgerThatCannotBeReadIsNotMissing(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		_, err := database(t, driver, dsn).Exec("CREATE TABLE svc_ledger (x VARCHAR(1))")
		require.NoError(t, err)
		for _, opts := range [][]ledger.Option{nil, {ledger.MustExist()}} {
			if driver == "sqlite" {
				_, err = sqlledger.SQLite(t.Context(), database(t, driver, dsn), opts...)
			} else {
				_, err = sqlledger.Postgres(t.Context(), database(t, driver, dsn), opts...)
			}
			require.ErrorContains(t, err, "column")
			require.NotErrorIs(t, err, fs.ErrNotExist)
			require.NotContains(t, err.Error(), "already exists")
		}
	})
}

// Of several processes that make a ledger at once, one has made it.
func TestLedgerMustNotExist(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		made := make(chan error)
		for range 8 {
			db := database(t, driver, dsn)
			go func() {
				var err error
				if driver == "sqlite" {
					_, err = sqlledger.SQLite(t.Context(), db, ledger.MustNotExist())
				} else {
					_, err = sqlledger.Postgres(t.Context(), db, ledger.MustNotExist())
				}
				made <- err
			}()
		}
		n := 0
		for range 8 {
			if err := <-made; err == nil {
				n++
			} else {
				require.ErrorIs(t, err, fs.ErrExist)
			}
		}
		require.Equal(t, 1, n)
		mustOpen(t, driver, dsn)
	})
}

// A ledger that must exist is not made. A database file that was replaced is no longer written to.
func TestLedgerMustExist_D14(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		opened := func() error {
			db := database(t, driver, dsn)
			if driver == "sqlite" {
				_, err := sqlledger.SQLite(t.Context(), db, ledger.MustExist())
				return err
			}
			_, err := sqlledger.Postgres(t.Context(), db, ledger.MustExist())
			return err
		}
		for range 2 {
			require.ErrorIs(t, opened(), fs.ErrNotExist)
		}
		mustOpen(t, driver, dsn)
		require.NoError(t, opened())
	})
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := mustOpen(t, "sqlite", "file:"+path+safe)
	require.NoError(t, s.Append(t.Context(), ledger.Record{Key: "k", Seq: 1}))
	require.NoError(t, os.Rename(path, path+".old"))
	require.ErrorIs(t, s.Append(t.Context(), ledger.Record{Key: "k", Seq: 2}), fs.ErrNotExist)
	mustOpen(t, "sqlite", "file:"+path+safe)
	require.ErrorContains(t, s.Append(t.Context(), ledger.Record{Key: "k", Seq: 2}), "was replaced after it was opened")
}

// With pragmas in the data source name, many Deploys at once do not fail with SQLITE_BUSY.
func TestManyDeploysAtOnce_D11(t *testing.T) {
	databases(t, func(t *testing.T, driver, dsn string) {
		srv := svctest.NewServer()
		t.Cleanup(srv.Close)
		c := srv.Client(svc.WithLedger(mustOpen(t, driver, dsn)))
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				if _, err := c.InferenceServices.Create(t.Context(), request(fmt.Sprint("n", i))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
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
