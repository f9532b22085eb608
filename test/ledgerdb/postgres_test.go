//go:build linux

package ledgerdb_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is the PostgreSQL server of this test run. The first test that needs it starts
// it. It listens on a socket in its own folder.
var server struct {
	once   sync.Once
	folder string
	cmd    *exec.Cmd
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.cmd != nil {
		_ = server.cmd.Process.Signal(syscall.SIGQUIT) // ends at once, without saving
		_ = server.cmd.Wait()
	}
	if server.folder != "" {
		_ = os.RemoveAll(server.folder)
	}
	os.Exit(code)
}

// newPostgresDatabase creates an empty database.
func newPostgresDatabase(t *testing.T) (dsn string) {
	t.Helper()
	bin := postgresPrograms()
	if bin == "" {
		t.Skip("no PostgreSQL server is installed here (initdb and postgres; in Debian the package postgresql), so its store is not tested")
	}
	server.once.Do(func() { server.err = startPostgres(bin) })
	require.NoError(t, server.err)
	name := "t" + strings.ToLower(rand.Text())
	_, err := database(t, "postgres", postgresDSN("postgres")).Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	return postgresDSN(name)
}

func postgresDSN(name string) string {
	return fmt.Sprintf("host=%s user=tester dbname=%s sslmode=disable", server.folder, name)
}

func postgresPrograms() string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if path, err := exec.LookPath("initdb"); err == nil {
		folders = append(folders, filepath.Dir(path))
	}
	for _, folder := range folders {
		_, err1 := os.Stat(filepath.Join(folder, "initdb"))
		_, err2 := os.Stat(filepath.Join(folder, "postgres"))
		if err1 == nil && err2 == nil {
			return folder
		}
	}
	return ""
}

func startPostgres(bin string) (err error) {
	if server.folder, err = os.MkdirTemp("", "pg"); err != nil { // the name must be short, because the path of a socket has a maximum length
		return err
	}
	data := filepath.Join(server.folder, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = server.folder
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
		return cmd
	}
	var as *syscall.Credential
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(server.folder, uid, gid); err != nil {
			return err
		}
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	initdb := run("initdb", "--auth=trust", "--username=tester", "--no-sync", "--pgdata="+data)
	initdb.SysProcAttr.Credential = as
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	cmd := run("postgres", "-D", data, "-k", server.folder, "-c", "listen_addresses=", "-c", "max_connections=400")
	cmd.SysProcAttr.Credential = as
	log, err := os.Create(filepath.Join(server.folder, "log"))
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	server.cmd = cmd
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ready := run("pg_isready", "-h", server.folder, "-U", "tester", "-d", "postgres")
		if ready.Run() == nil {
			return nil
		}
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("the server is not ready after a minute: %s", text)
}
