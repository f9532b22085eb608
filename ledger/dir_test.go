package ledger_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/ledger/ledgertest"
)

func open(t *testing.T, path string) ledger.Store {
	t.Helper()
	s, err := ledger.Dir(path)
	require.NoError(t, err)
	return s
}

func rec(key string, seq int64) ledger.Record {
	return ledger.Record{Key: key, Seq: seq, Intent: rand.Text(), Event: ledger.Intended, At: time.Now().UTC().Round(0)}
}

func names(t *testing.T, path string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != ".svc-ledger" {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestDirPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder")
	ledgertest.Run(t, func() ledger.Store { return open(t, path) })
	for _, name := range names(t, path) {
		require.Regexp(t, `^[a-z0-9_-]+@\d{6}\.json$`, name, "nothing else is left behind")
	}
}

func TestDirFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	s := open(t, path)
	require.Empty(t, names(t, path))
	r := rec("deploy-7", 1)
	require.NoError(t, s.Append(t.Context(), r))
	require.Equal(t, []string{"deploy-7@000001.json"}, names(t, path))
	text, err := os.ReadFile(filepath.Join(path, "deploy-7@000001.json"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf(`{"key":"deploy-7","seq":1,"intent":%q,"event":"intended","at":%q}`+"\n", r.Intent, r.At.Format(time.RFC3339Nano)), string(text))
	for name, mode := range map[string]fs.FileMode{path: 0o700, filepath.Join(path, "deploy-7@000001.json"): 0o600} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
}

// A process may die after any step of Append. Each case is the folder after one step.
func TestDirBetweenSteps(t *testing.T) {
	first, second := rec("k", 1), rec("k", 2)
	record := fmt.Sprintf(`{"key":"k","seq":2,"intent":%q,"event":"intended","at":%q}`, second.Intent, second.At.Format(time.RFC3339Nano))
	for name, tc := range map[string]struct {
		tmp, file string
		stored    bool
	}{
		"an empty temporary file":      {tmp: " "},
		"half of a temporary file":     {tmp: record[:20]},
		"the whole temporary file":     {tmp: record},
		"linked, temporary file there": {tmp: record, file: record, stored: true},
		"done":                         {file: record, stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			require.NoError(t, open(t, path).Append(t.Context(), first))
			if tc.tmp != "" {
				require.NoError(t, os.WriteFile(filepath.Join(path, ".ledger-123"), []byte(strings.TrimSpace(tc.tmp)), 0o600))
			}
			if tc.file != "" {
				require.NoError(t, os.WriteFile(filepath.Join(path, "k@000002.json"), []byte(tc.file), 0o600))
			}
			s := open(t, path)
			all, err := s.List(t.Context(), "")
			require.NoError(t, err)
			want := []ledger.Record{first}
			if tc.stored {
				want = append(want, second)
			}
			require.Equal(t, want, all)
			err = s.Append(t.Context(), rec("k", 2))
			require.Equal(t, tc.stored, errors.Is(err, fs.ErrExist), "%v", err)
		})
	}
}

func TestDirForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "team[a] *?\\") // the characters of a pattern are characters of the name
	require.NoError(t, os.Mkdir(path, 0o700))
	for _, name := range []string{".ledger-old", ".ledger-new", ".ledger-old-2", "README", "k@1.json", "k@0000001.json", "K@000001.json", "k@000001.json~", "k@000001.json.swp", "k@00000x.json", "@000001.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte("{"), 0o600))
		if strings.Contains(name, "old") {
			long := time.Now().Add(-2 * time.Hour)
			require.NoError(t, os.Chtimes(filepath.Join(path, name), long, long))
		}
	}
	s := open(t, path)
	all, err := s.List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, all)
	require.NotContains(t, names(t, path), ".ledger-old")
	require.NotContains(t, names(t, path), ".ledger-old-2")
	require.Contains(t, names(t, path), ".ledger-new", "another process may still be writing this file")
	require.NoError(t, s.Append(t.Context(), rec("k", 1)))
}

func TestDirDamage(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"key":"k","seq":2,`, "no JSON": "hello", "another record": `{"key":"k","seq":3}`, "another key": `{"key":"kk","seq":2}`, "wrong type": `{"key":"k","seq":"2"}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			s := open(t, path)
			var good []ledger.Record
			for _, r := range []ledger.Record{rec("a", 1), rec("k", 1), rec("k", 2), rec("k", 3), rec("z", 1)} {
				require.NoError(t, s.Append(t.Context(), r))
				if r.Key != "k" || r.Seq != 2 {
					good = append(good, r)
				}
			}
			file := filepath.Join(path, "k@000002.json")
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			all, err := s.List(t.Context(), "")
			require.Equal(t, good, all, "everything else can be read")
			require.ErrorContains(t, err, file)
			damage, ok := errors.AsType[*ledger.Error](err)
			require.True(t, ok)
			require.Equal(t, "k", damage.Key)
			_, err = s.List(t.Context(), "k")
			require.ErrorContains(t, err, file)
			_, err = s.List(t.Context(), "a")
			require.NoError(t, err)
			require.ErrorIs(t, s.Append(t.Context(), rec("k", 2)), fs.ErrExist, "the damaged file must not be overwritten")
		})
	}
}

// Fields of a later version are not an error. A huge number in a file name takes no extra
// time or memory.
func TestDirLaterVersions(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	require.NoError(t, os.WriteFile(filepath.Join(path, "k@000001.json"), []byte(`{"key":"k","seq":1,"new":{"x":1}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, "k@999999999999999999.json"), []byte(`{"key":"k","seq":999999999999999999}`), 0o600))
	all, err := s.List(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, all, 2)
	_, err = ledger.Fold(all)
	require.ErrorContains(t, err, "record 2 is missing")
}

func TestDirKeys(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	for _, key := range []string{"", "..", "a/b", `a\b`, "A", "a@000001", strings.Repeat("k", 65)} {
		require.Error(t, s.Append(t.Context(), rec(key, 1)), "%q", key)
	}
	require.Error(t, s.Append(t.Context(), rec("k", 0)))
	require.Empty(t, names(t, path))
}

func TestDirUnfit(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	_, err := ledger.Dir(file)
	require.ErrorContains(t, err, file)
	_, err = ledger.Dir(filepath.Join(file, "ledger"))
	require.ErrorContains(t, err, file)

	folder := filepath.Join(path, "ledger")
	s := open(t, folder)
	require.NoError(t, os.RemoveAll(folder))
	err = s.Append(t.Context(), rec("k", 1))
	require.ErrorContains(t, err, filepath.Join(folder, "k@000001.json"))
	require.NotErrorIs(t, err, fs.ErrExist)
	_, err = s.List(t.Context(), "")
	require.ErrorContains(t, err, folder, "a deleted folder must not look like an empty ledger")
}

// A ledger that must exist is not made, and a folder that has lost its mark is not a ledger any more: its
// volume may not be mounted.
func TestDirMustExist_D14(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	_, err := ledger.Dir(path, ledger.MustExist())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, path)
	require.NoDirExists(t, path)
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = ledger.Dir(path, ledger.MustExist())
	require.ErrorContains(t, err, "is not a ledger, or its volume is not mounted")
	require.Empty(t, names(t, path))

	open(t, path)
	s, err := ledger.Dir(path, ledger.MustExist())
	require.NoError(t, err)
	require.NoError(t, s.Append(t.Context(), rec("k", 1)))
	mounted := path + "-mounted"
	require.NoError(t, os.Rename(path, mounted))
	require.NoError(t, os.Mkdir(path, 0o700)) // what lies below the volume
	_, err = s.List(t.Context(), "k")
	require.ErrorIs(t, err, fs.ErrNotExist, "an empty ledger would allow a second endpoint")
	require.ErrorContains(t, s.Append(t.Context(), rec("k", 1)), "is not a ledger, or its volume is not mounted")
	require.Empty(t, names(t, path))
}

// TestDirMustNotExist: of several that make a ledger at once, one has made it.
func TestDirMustNotExist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "ledger")
	made := make(chan error)
	for range 20 {
		go func() {
			_, err := ledger.Dir(path, ledger.MustNotExist())
			made <- err
		}()
	}
	n := 0
	for range 20 {
		if err := <-made; err == nil {
			n++
		} else {
			require.ErrorIs(t, err, fs.ErrExist)
		}
	}
	require.Equal(t, 1, n)
	_, err := ledger.Dir(path, ledger.MustExist())
	require.NoError(t, err)
	open(t, path)
	require.NoError(t, os.Symlink("nowhere", path+"-link"))
	_, err = ledger.Dir(path+"-link", ledger.MustNotExist())
	require.Error(t, err)
	require.NotErrorIs(t, err, fs.ErrExist, "there is no ledger")
}

const (
	childFolder = "SVC_LEDGER_FOLDER"
	childRounds = "SVC_LEDGER_ROUNDS"
)

var (
	processes = flag.Int("processes", 20, "how many processes compete for a key")
	rounds    = flag.Int("rounds", 3, "how many keys they compete for")
)

// TestChild is what the other processes of the tests below run. It tries to append the
// first record of each key, and prints which ones it appended. With a negative number of
// rounds it appends records to a key of its own without end.
func TestChild(t *testing.T) {
	folder := os.Getenv(childFolder)
	if folder == "" {
		t.Skip("runs only as a child process of other tests")
	}
	s := open(t, folder)
	var n int
	fmt.Sscan(os.Getenv(childRounds), &n)
	for round := 0; n < 0 || round < n; round++ {
		r := rec(fmt.Sprintf("key-%d", round), 1)
		if n < 0 {
			r = rec(fmt.Sprintf("own-%d", os.Getpid()), int64(round+1))
		}
		switch err := s.Append(t.Context(), r); {
		case err == nil:
			fmt.Println("won", r.Key, r.Seq, r.Intent)
		case !errors.Is(err, fs.ErrExist):
			fmt.Println("failed", err)
		}
	}
}

func startChild(t *testing.T, folder string, rounds int) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childFolder+"="+folder, fmt.Sprintf("%s=%d", childRounds, rounds))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// Many processes append the first record of the same keys, and half of them are killed.
// Each key has exactly one record, and a process that was told "won" is the one that
// wrote it.
func TestDirOneProcessWins(t *testing.T) {
	folder := t.TempDir()
	type result struct{ key, intent string }
	results := make(chan result, *processes**rounds)
	finished := make(chan struct{})
	for i := range *processes {
		cmd, lines := startChild(t, folder, *rounds)
		if i%2 == 1 {
			time.AfterFunc(time.Duration(i)*2*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
		go func() {
			for lines.Scan() {
				if f := strings.Fields(lines.Text()); f[0] == "won" && len(f) == 4 {
					results <- result{f[1], f[3]}
				} else if f[0] == "failed" {
					t.Error(lines.Text())
				}
			}
			_ = cmd.Wait()
			finished <- struct{}{}
		}()
	}
	for range *processes {
		<-finished
	}
	close(results)
	s := open(t, folder)
	for round := range *rounds {
		all, err := s.List(context.Background(), fmt.Sprintf("key-%d", round))
		require.NoError(t, err)
		require.Len(t, all, 1)
	}
	for r := range results {
		all, err := s.List(context.Background(), r.key)
		require.NoError(t, err)
		require.Equal(t, r.intent, all[0].Intent)
	}
}

// A process is killed while it writes. Only whole records are left, and every record that
// Append reported as written is there.
func TestDirKilled(t *testing.T) {
	folder := t.TempDir()
	for range 5 {
		cmd, lines := startChild(t, folder, -1)
		told := make(map[string]string)
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			require.Equal(t, "won", f[0])
			if told[f[2]] = f[3]; len(told) == 20 {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		all, err := open(t, folder).List(t.Context(), fmt.Sprintf("own-%d", cmd.Process.Pid))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(all), len(told))
		for _, r := range all[:len(told)] {
			require.Equal(t, told[fmt.Sprint(r.Seq)], r.Intent)
		}
	}
}
